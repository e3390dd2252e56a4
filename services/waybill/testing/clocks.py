"""A clock a test can move.

It satisfies `waybill.kernel.clock.Clock`. Wall time and monotonic time move together unless a test says
otherwise: a clock that jumps (NTP, a restored machine) is `jump`, time that passes is `advance`.
"""

from datetime import UTC, datetime, timedelta

__all__ = ["MovableClock"]


class MovableClock:
    """Stands still until moved. Safe to read from several threads; one thread moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        if self._now.tzinfo is None:
            raise ValueError("a naive datetime has no instant: attach a time zone")
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """Return the wall clock as last moved."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that only `advance` moves."""
        return self._monotonic

    def advance(self, by: timedelta | float) -> datetime:
        """Let time pass (seconds or a timedelta, never negative) and return the new wall clock."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("time does not pass backwards: use jump() for a wall clock that was set back")
        self._now += step
        self._monotonic += step.total_seconds()
        return self._now

    def jump(self, to: datetime) -> None:
        """Set the wall clock, either way, without any time passing."""
        if to.tzinfo is None:
            raise ValueError("a naive datetime has no instant: attach a time zone")
        self._now = to
