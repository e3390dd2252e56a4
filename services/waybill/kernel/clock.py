"""Time as an argument: the clock protocol and the one text form of an instant.

Cores never ask what time it is; shells pass `now`. Instants are timezone-aware UTC datetimes with
millisecond precision at every edge, so that a signed body renders to the same bytes for ever.
"""

from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "format_instant", "parse_instant", "truncate_to_ms"]


class Clock(Protocol):
    """Where a shell gets the time from; tests pass one they can move."""

    def now(self) -> datetime:
        """Return the wall clock, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back and count while the machine sleeps (leases are measured in them)."""
        ...


def truncate_to_ms(instant: datetime) -> datetime:
    """Drop what the wire cannot carry: everything below a millisecond."""
    return instant - timedelta(microseconds=instant.microsecond % 1000)


def format_instant(instant: datetime) -> str:
    """Render as RFC 3339 in UTC with exactly three fraction digits: `2026-11-30T14:54:46.120Z`."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime has no instant: attach a time zone")
    utc = instant.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def parse_instant(text: str) -> datetime:
    """Read an RFC 3339 instant with an explicit offset into UTC; raises ValueError when it has none."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"no UTC offset in {text!r}")
    return instant.astimezone(UTC)
