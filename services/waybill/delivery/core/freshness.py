"""No two attempts of a delivery carry the same timestamp, so none carries the signature of another (GW-3).

A timestamp on the wire is a whole second. Another attempt in the second of the one before would repeat timestamp
and signature and look like a copy on the way; it waits for the next second instead, since a timestamp ahead of the
clock would say something that is not so. What is tried again is planned so (`fresh_due`); what comes again by
itself, such as a repeat of the relay, is held back just before it would be sent (`Signed`).
"""

from datetime import UTC, datetime, timedelta

__all__ = ["Signed", "fresh_due", "second_after"]

_SECOND = timedelta(seconds=1)


def second_after(started_ms: int) -> datetime:
    """Return the start of the second that follows an attempt's."""
    return datetime.fromtimestamp(started_ms // 1000 + 1, UTC)


def fresh_due(due: datetime, fresh_from: datetime) -> datetime:
    """Return `due`, or exactly one second later when it lies in the second of the attempt before.

    Args:
        due: when the jitter wants it, not before that second.
        fresh_from: the start of the next second.

    The fraction of the second stays, so that what was spread by jitter stays spread.
    """
    return due if due >= fresh_from else due + _SECOND


class Signed:
    """The deliveries signed in the newest second; bounded by what can be sent in one."""

    __slots__ = ("_ids", "_over", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._over = datetime.fromtimestamp(0, UTC)
        self._ids: set[str] = set()

    def note(self, delivery_id: str, started_ms: int) -> None:
        """Remember an attempt that has ended; attempts may end in another order than they started."""
        second = started_ms // 1000
        if second > self._second:
            self._second, self._over = second, second_after(started_ms)
            self._ids.clear()
        if second == self._second:
            self._ids.add(delivery_id)

    def not_before(self, delivery_id: str, now: datetime) -> datetime | None:
        """Return when a delivery may be signed again; None when it may now."""
        return self._over if now < self._over and delivery_id in self._ids else None
