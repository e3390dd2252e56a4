"""Sharing what is scarce between those who want it: nobody gets more than it wants while another gets less than it."""

from collections.abc import Sequence
from typing import Final

__all__ = ["Bucket", "share_out", "share_per_process"]

#: A bucket that was not used holds what comes in so long.
_BURST_S: Final = 0.25


def share_out(total: int, wants: Sequence[int], first: int = 0) -> list[int]:
    """Divide a whole number among wants, max-min fair.

    Args:
        total: what there is.
        wants: what each could use.
        first: whose turn it is for what is left over; callers raise it from time to time.

    Returns:
        A share per want: at most what it wants; together the total, or all wants when those are less.
    """
    shares = [0] * len(wants)
    count = len(wants)
    order = [(first + place) % count for place in range(count)]
    hungry = [place for place in order if wants[place] > 0]
    left = min(total, sum(wants))
    while left > 0:
        each = max(left // len(hungry), 1)
        for place in hungry[:left]:
            given = min(each, wants[place] - shares[place], left)
            shares[place] += given
            left -= given
        hungry = [place for place in hungry if shares[place] < wants[place]]
    return shares


def share_per_process(limit: float, owned: int, partitions: int) -> float:
    """Return the part of a limit for a process that owns so many of all partitions."""
    return limit * min(owned, partitions) / partitions if partitions > 0 else 0.0


class Bucket:
    """How many attempts a rate allows by now: whole ones, and little saved for later."""

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = 1.0
        self._at: float | None = None

    def fill(self, rate_per_s: float, mono: float) -> int:
        """Let time pass and return how many attempts may start."""
        passed = 0.0 if self._at is None else mono - self._at
        self._at = mono
        self._tokens = min(self._tokens + rate_per_s * passed, max(1.0, rate_per_s * _BURST_S))
        return max(int(self._tokens), 0)

    def spend(self) -> None:
        """Count one attempt."""
        self._tokens -= 1.0
