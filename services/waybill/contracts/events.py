"""Fabric events: what subscribers may be told, as command types that Waybill alone emits."""

from collections.abc import Mapping
from typing import Final

from waybill.contracts.states import State

__all__ = [
    "DELIVERY_AGGREGATE",
    "DELIVERY_EVENTS",
    "DESTINATION_AGGREGATE",
    "DESTINATION_EVENTS",
    "EVENT_TYPES",
    "RESERVED_PREFIX",
]

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
#: The aggregate type of events about destinations, numbered by the same outbox.
DESTINATION_AGGREGATE: Final = "waybill.destination"
#: The standing that people or a guard gave a destination → the type of the event about it.
DESTINATION_EVENTS: Final[Mapping[str, str]] = {
    "paused": "waybill.destination.paused",
    "draining": "waybill.destination.draining",
    "closed": "waybill.destination.closed",
    "running": "waybill.destination.resumed",
}
#: All there are, sorted.
EVENT_TYPES: Final = tuple(sorted([*DELIVERY_EVENTS.values(), *DESTINATION_EVENTS.values()]))
