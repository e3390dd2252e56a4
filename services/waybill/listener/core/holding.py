"""What a listener that reads a topic does with a delivery whose turn has not come: hold it, within bounds.

A request can be answered `425` and come again; a record of a topic cannot. So it is held until the ones before it
were executed or resolved, and then released in order (DC-13). The hold is bounded by count and by age, because what
is held must not be committed: past a bound the delivery is answered as the gap it is, and the sender decides.

Whoever reads the topic keeps the `Hold` of each aggregate; nothing here does I/O or knows a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

__all__ = ["Bounds", "Hold", "hold", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much waits, and how long."""

    #: Deliveries of one aggregate.
    max_count: int = 100
    #: Since the first time a delivery was held.
    max_age: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What waits of one aggregate: since when, by sequence."""

    since: Mapping[int, datetime] = field(default_factory=dict)

    def overdue(self, bounds: Bounds, now: datetime) -> tuple[int, ...]:
        """Return what waits longer than it may, in order: each is answered as a gap."""
        return tuple(sorted(number for number, since in self.since.items() if now - since > bounds.max_age))

    def without(self, *numbers: int) -> "Hold":
        """Return what waits once some were answered."""
        return replace(self, since={number: since for number, since in self.since.items() if number not in numbers})


def hold(held: Hold, sequence: int, bounds: Bounds, now: datetime) -> Hold | None:
    """Hold one more delivery; None when no more fit. A copy of one that is held keeps its place and its age."""
    if sequence in held.since:
        return held
    if len(held.since) >= bounds.max_count:
        return None
    return replace(held, since={**held.since, sequence: now})


def release(held: Hold, last: int) -> tuple[int, ...]:
    """Return what may be judged again once everything up to `last` has passed: older ones, then those in a row."""
    freed = sorted(number for number in held.since if number <= last)
    while last + 1 in held.since:
        last += 1
        freed.append(last)
    return tuple(freed)
