"""A destination that says "too many" is left alone, all of it, until the time it named or a backoff is over.

The delivery that was told so spent nothing by it: it was refused unseen. What is counted is the destination's: one
more strike each time it says so after the last wait was over, and none once it has served something since.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from waybill.contracts.fabric import RetryPolicy
from waybill.delivery.core.retry import backoff_s

__all__ = ["Throttle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Until when nothing is attempted at a destination, and how often in a row it asked for that."""

    until: datetime
    #: When it was told so; what attempts under way are told later does not begin it anew.
    since: datetime
    strikes: int
    #: Attempts that had ended well when the last strike came.
    good: int

    @classmethod
    def after(
        cls, before: "Throttle | None", destination: str, policy: RetryPolicy, wait_s: float | None, *, at: datetime,
        good: int,
    ) -> "Throttle":  # fmt: skip
        """Return the throttle after a 429.

        Args:
            before: the one in force until now.
            destination: its name; the jitter comes from it and the strikes.
            policy: its backoff, where it named no time.
            wait_s: what `Retry-After` asked for.
            at: when the answer came.
            good: attempts that have ended well so far.
        """
        if before is not None and at < before.until:  # said to an attempt that was under way: the same strike
            strikes, good, since, floor = before.strikes, before.good, before.since, before.until
        else:
            strikes = 1 if before is None or good > before.good else before.strikes + 1
            since = floor = at
        wait = backoff_s(policy, destination, strikes) if wait_s is None else wait_s
        return cls(until=max(floor, at + timedelta(seconds=wait)), since=since, strikes=strikes, good=good)
