"""The guard against mass dead-lettering: too many deliveries that end refused, too close together, mean one cause.

A wrong key, a wrong address or a release gone wrong refuses everything, and each refusal ends a delivery that people
must then bring back one by one. Before that becomes a mass the destination is paused, with the reason; what was not
attempted yet waits in Kafka, and people resume it once they have removed the cause.
"""

from dataclasses import dataclass

__all__ = ["RefusalGuard", "RefusalRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRule:
    """How many are too many."""

    #: Refused for good within the window, and the share of all ends that makes, at least.
    refusals: int = 100
    share: float = 0.5
    window_s: float = 60.0


class RefusalGuard:
    """Counts refusals of one destination in one process; told the time and what ended."""

    __slots__ = ("_good", "_refusals", "_rule", "_since")

    def __init__(self, rule: RefusalRule | None = None) -> None:
        self._rule = rule or RefusalRule()
        self._since, self._refusals, self._good = float("-inf"), 0, 0

    def refused(self, mono: float, good: int) -> bool:
        """Learn of a delivery that ended refused for good, and say whether that makes a mass.

        Args:
            mono: boot-time seconds.
            good: attempts that ended well, so far.
        """
        rule = self._rule
        if mono - self._since > rule.window_s:
            self._since, self._refusals, self._good = mono, 0, good
        self._refusals += 1
        ends = self._refusals + good - self._good
        return self._refusals >= rule.refusals and self._refusals >= rule.share * ends

    def forget(self) -> None:
        """Begin anew: people have looked at it."""
        self._since = float("-inf")

    def told(self) -> str:
        """Say what was counted, for people."""
        return f"{self._refusals} deliveries refused for good within {self._rule.window_s:g} s"
