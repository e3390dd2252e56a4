"""Which deliveries may be sent once more or issued again, and when sending them is stopped.

What is refused has a rule of its own, and is counted by it: a replay that leaves something out says why. The owner of
each delivery judges again (`core.decisions`); what is refused here it would void, except what a later command
replaced: only the read model knows of that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final, TypeVar

from waybill.contracts.states import State
from waybill.delivery.core.gaps import CANCELLED, FOR_GOOD, SUPERSEDED
from waybill.delivery.core.retry import EXPIRED

__all__ = ["Ended", "Refusal", "batches", "is_too_much", "refusal_of", "reissue_refusal_of"]

T = TypeVar("T")

#: Decisions at a time: few at first, so that a mistake is seen while it is small.
_FIRST: Final = 10
_MOST: Final = 100


class Refusal(StrEnum):
    """Why a delivery is not sent once more, or not issued again."""

    #: It was acknowledged: nothing is left to do.
    ACKNOWLEDGED = "acknowledged"
    #: It may have happened: ask its destination, or acknowledge it with evidence.
    AMBIGUOUS = "ambiguous"
    #: It is on its way.
    UNDER_WAY = "under_way"
    #: An exception was opened for it.
    EXCEPTION = "exception"
    #: A later command replaces it.
    SUPERSEDED = "superseded"
    #: People took it back.
    CANCELLED = "cancelled"
    #: Its time is over: reissue it.
    EXPIRED = "expired"
    #: It can never be read.
    UNREADABLE = "unreadable"
    #: The same was decided before, on the same version of its state.
    DECIDED = "decided"
    #: It need not be issued again: the same may be sent once more.
    REDRIVABLE = "redrivable"


@dataclass(frozen=True, slots=True)
class Ended:
    """Where a delivery stands, as the read model tells it."""

    state: State
    detail: str | None
    expires_at: datetime | None
    #: A later command of its aggregate names its command in `replaces`.
    is_replaced: bool


_BY_STATE: Final = {
    State.ACKNOWLEDGED: Refusal.ACKNOWLEDGED,
    State.AMBIGUOUS: Refusal.AMBIGUOUS,
    State.EXCEPTION: Refusal.EXCEPTION,
    State.QUEUED: Refusal.UNDER_WAY,
    State.DELIVERED: Refusal.UNDER_WAY,
    State.RETRYING: Refusal.UNDER_WAY,
}
_BY_DETAIL: Final = {SUPERSEDED: Refusal.SUPERSEDED, CANCELLED: Refusal.CANCELLED, EXPIRED: Refusal.EXPIRED}


def refusal_of(ended: Ended, now: datetime) -> Refusal | None:
    """Return the rule that keeps a delivery from being sent once more; None where it may be."""
    if ended.state in _BY_STATE:
        return _BY_STATE[ended.state]
    if ended.is_replaced:
        return Refusal.SUPERSEDED
    if ended.detail in FOR_GOOD:
        return _BY_DETAIL.get(ended.detail or "", Refusal.UNREADABLE)
    if ended.expires_at is None or ended.expires_at <= now:
        return Refusal.EXPIRED
    return None


def reissue_refusal_of(ended: Ended, now: datetime) -> Refusal | None:
    """Return the rule that keeps a delivery from being issued again as a new command; None where it may be."""
    rule = refusal_of(ended, now)
    if rule is None:
        return Refusal.REDRIVABLE
    return None if rule in {Refusal.EXPIRED, Refusal.CANCELLED} else rule


def batches(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield what is decided at a time: few, then twice as many, up to a bound."""
    rest, size = iter(items), _FIRST
    while batch := tuple(islice(rest, size)):
        yield batch
        size = min(size * 2, _MOST)


def is_too_much(judged: int, setbacks: int, share: float) -> bool:
    """Whether so many of the last decisions led nowhere that no more are made.

    Args:
        judged: decisions with a verdict.
        setbacks: those that were void, and deliveries that ended without acknowledgement once more.
        share: of what was judged, what may be a setback.
    """
    return judged >= _FIRST and setbacks > share * judged
