"""Fabric events: what subscribers may be told about deliveries, as command types that Waybill alone emits."""

from collections.abc import Mapping
from typing import Final

from waybill.contracts.states import State

__all__ = ["DELIVERY_AGGREGATE", "DELIVERY_EVENTS", "EVENT_TYPES", "RESERVED_PREFIX"]

#: Command types that begin so are Waybill's own; a delivery of one is never told about.
RESERVED_PREFIX: Final = "waybill."
#: The aggregate type of events about deliveries; the outbox that numbers it is where they are written.
DELIVERY_AGGREGATE: Final = "waybill.delivery"
#: The state a delivery came to → the type of the event about it.
DELIVERY_EVENTS: Final[Mapping[State, str]] = {
    State.ACKNOWLEDGED: "waybill.delivery.acknowledged",
    State.FAILED: "waybill.delivery.failed",
    State.AMBIGUOUS: "waybill.delivery.ambiguous",
    State.DEAD_LETTER: "waybill.delivery.dead_lettered",
}
#: All there are, sorted.
EVENT_TYPES: Final = tuple(sorted(DELIVERY_EVENTS.values()))
