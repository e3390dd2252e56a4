"""Whether a lane goes on behind a delivery that ended without acknowledgement, and what its listener is told then.

| how it ended | the lane goes on where | its listener is told |
| --- | --- | --- |
| cancelled or superseded | everywhere | final |
| ambiguous, and its destination can be asked | nowhere: it is asked first | |
| acknowledged by people | everywhere | final |
| expired | the route of its command type does not say `onExpiry: halt` | final |
| otherwise | the destination says `onUnsettled: continue` | deferred while it may still be sent, else final |

*Final* is a promise: a number that was told final is never sent again, so nothing that can be redriven is told so.
A gap resolution itself is never gone past by another one: refused for good, it halts its lane.
"""

import uuid
from datetime import datetime, timedelta
from typing import Final

from waybill.contracts.envelope import GapEntry, Resolution
from waybill.contracts.fabric import OnUnsettled
from waybill.contracts.states import BY_PEOPLE, State
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.retry import EXPIRED, UNREADABLE
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import DeliveryId

__all__ = ["CANCELLED", "FOR_GOOD", "LIFE", "SUPERSEDED", "entry_of", "goes_on", "hole_id", "resolution_id"]

#: What a delivery carries in `detail` that people, or a newer command, took back before it can have been sent.
CANCELLED: Final = "cancelled"
SUPERSEDED: Final = "superseded"
#: Ends that nothing undoes.
FOR_GOOD: Final = frozenset({CANCELLED, SUPERSEDED, EXPIRED, BY_PEOPLE, UNREADABLE.detail})
#: How long a gap resolution is tried before people must see to it.
LIFE: Final = timedelta(days=365)


def goes_on(
    item: Item, on_unsettled: OnUnsettled, halting_on_expiry: frozenset[str], *, is_asked: bool = False
) -> bool:
    """Whether the lane goes on by itself behind a row that ended without acknowledgement.

    Args:
        item: the delivery of the row, as it ended.
        on_unsettled: what its destination asks for.
        halting_on_expiry: command types whose route says `onExpiry: halt`.
        is_asked: the destination can be asked what became of it.
    """
    if item.is_resolution or (is_asked and item.state is State.AMBIGUOUS):
        return False
    if item.detail in {CANCELLED, SUPERSEDED}:
        return True
    if item.detail == EXPIRED:
        return item.command is None or item.command.command_type not in halting_on_expiry
    return on_unsettled is OnUnsettled.CONTINUE


def entry_of(item: Item, now: datetime) -> GapEntry:
    """Return what a listener is told of a delivery that ended without acknowledgement."""
    if item.delivery_id is None:
        raise InvariantBroken("told the end of a delivery that was not looked into")
    is_over = item.expires_at is None or item.expires_at <= now
    resolution = Resolution.FINAL if is_over or item.detail in FOR_GOOD else Resolution.DEFERRED
    return GapEntry(sequence=item.sequence, delivery_id=DeliveryId(uuid.UUID(item.delivery_id)), resolution=resolution)


def hole_id(tenant: str, destination: str, aggregate: str, sequence: int) -> DeliveryId:
    """Return what stands for the delivery of a number that has none: rows were lost before they reached a topic."""
    name = f"waybill:hole/{tenant}/{destination}/{aggregate}/{sequence}"
    return DeliveryId(uuid.uuid5(uuid.NAMESPACE_URL, name))


def resolution_id(delivery_id: str, version: int) -> DeliveryId:
    """Return the identity of the gap resolution that follows the end a delivery reached with a version of its state."""
    return DeliveryId(uuid.uuid5(uuid.UUID(delivery_id), f"gap/{version}"))
