"""Whose turn it is: the sequence check of a listener that takes each aggregate's deliveries in order only.

`last` is the number up to which everything was executed or will not come in its turn; the next one is `last + 1`. What
a gap resolution told counts as passed: *final* never comes, *deferred* may come later and is then executed although
it is older (DC-12, DC-13).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import Resolution
from waybill.contracts.problem import Problem

__all__ = ["Told", "advance", "check_turn"]

#: The HTTP status that says: not yet.
TOO_EARLY = 425


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a gap resolution said of one number."""

    delivery_id: UUID
    resolution: Resolution


def check_turn(sequence: int, delivery_id: UUID, last: int, told: Mapping[int, Told]) -> Problem | None:
    """Refuse a delivery that is not known yet and whose turn it is not.

    Args:
        sequence: the delivery's.
        delivery_id: its identity.
        last: everything up to here has passed.
        told: what gap resolutions said, by sequence.
    """
    if sequence == last + 1:
        return None
    if sequence > last + 1:
        return Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="gap", status=TOO_EARLY, expected_sequence=last + 1)
    found = told.get(sequence)
    if found == Told(delivery_id=delivery_id, resolution=Resolution.DEFERRED):
        return None
    detail = "a later one of this aggregate was taken, and nobody said that this one may come after it"
    return Problem(code=ErrorCode.VERSION_CONFLICT, reason="older_sequence", detail=detail)


def advance(last: int, told: Collection[int]) -> int:
    """Return up to where everything has passed, once the numbers that were told are passed over."""
    while last + 1 in told:
        last += 1
    return last
