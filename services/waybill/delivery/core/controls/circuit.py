"""When a destination counts as dead, and how one finds out that it lives again.

It opens when nearly everything fails that is attempted within a window, over several aggregates: one sick aggregate
has its own backoff and never closes the road for its neighbours. Open means that nothing starts. Then it is half
open: one attempt at a time is let through, and the first one that is not a failure of transport or of the destination
closes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.delivery.core.classify import Verdict

__all__ = ["Circuit", "CircuitRule", "CircuitState", "is_sick"]

_SICK: Final = frozenset({ErrorCode.TRANSIENT_NETWORK, ErrorCode.SOURCE_UNAVAILABLE})
#: Answers about one delivery's time and order, not about the destination.
_ABOUT_ONE: Final = frozenset({408, 425})


class CircuitState(StrEnum):
    """Whether attempts go through."""

    #: They do.
    CLOSED = "closed"
    #: None does until some time has passed.
    OPEN = "open"
    #: One at a time, to find out.
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When it opens and how long it stays so."""

    #: Failures within the window, the share of all ends they make, and the aggregates they came from, at least.
    failures: int = 20
    share: float = 0.9
    aggregates: int = 5
    window_s: float = 10.0
    #: The first wait, doubled after each probe that failed, up to the longest.
    first_wait_s: float = 1.0
    longest_wait_s: float = 10.0


def is_sick(verdict: Verdict) -> bool:
    """Whether an end says that the destination cannot be reached or cannot serve."""
    return verdict.code in _SICK and verdict.http_status not in _ABOUT_ONE


class Circuit:
    """The circuit of one destination in one process; told the time and what ended."""

    __slots__ = ("_aggregates", "_failures", "_good", "_rule", "_since", "_waits", "opened_at", "probe_at", "state")

    def __init__(self, rule: CircuitRule | None = None) -> None:
        self._rule = rule or CircuitRule()
        self.state = CircuitState.CLOSED
        self._waits = 0
        #: While it is not closed: when it opened, and when the next attempt finds out; boot-time seconds.
        self.opened_at, self.probe_at = 0.0, 0.0
        self._good = 0
        self._begin(float("-inf"), 0)

    def failed(self, aggregate: str, mono: float, good: int) -> None:
        """Learn of a sick end.

        Args:
            aggregate: whose attempt it was.
            mono: boot-time seconds.
            good: ends that were not sick, so far.
        """
        if self.state is CircuitState.HALF_OPEN:
            self._open(mono, good)
        if self.state is not CircuitState.CLOSED:
            return
        rule = self._rule
        if mono - self._since > rule.window_s:
            self._begin(mono, good)
        self._failures += 1
        if len(self._aggregates) < rule.aggregates:
            self._aggregates.add(aggregate)
        is_wide = len(self._aggregates) >= rule.aggregates
        ends = self._failures + good - self._good
        if is_wide and self._failures >= rule.failures and self._failures >= rule.share * ends:
            self._open(mono, good)

    def look(self, mono: float, good: int) -> CircuitState:
        """Let time pass; return where it stands."""
        if self.state is CircuitState.CLOSED:
            return self.state
        if good > self._good:  # somebody got through, a probe or a straggler
            self.close(mono, good)
        elif self.state is CircuitState.OPEN and mono >= self.probe_at:
            self.state = CircuitState.HALF_OPEN
        return self.state

    def close(self, mono: float, good: int) -> None:
        """Begin anew, as people may also ask for."""
        self.state, self._waits = CircuitState.CLOSED, 0
        self._begin(mono, good)

    def _open(self, mono: float, good: int) -> None:
        rule = self._rule
        if self.state is CircuitState.CLOSED:
            self.opened_at = mono
        self.state, self._good = CircuitState.OPEN, good
        self.probe_at = mono + min(rule.first_wait_s * 2.0 ** min(self._waits, 20), rule.longest_wait_s)
        self._waits += 1

    def _begin(self, mono: float, good: int, aggregates: Iterable[str] = ()) -> None:
        self._since, self._good, self._failures = mono, good, 0
        self._aggregates = set(aggregates)
