"""From the state of a delivery, or a control of a destination, to the event about it, if there is one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from waybill.contracts.events import (
    DELIVERY_AGGREGATE,
    DELIVERY_EVENTS,
    DESTINATION_AGGREGATE,
    DESTINATION_EVENTS,
    RESERVED_PREFIX,
)
from waybill.contracts.states import State
from waybill.kernel.clock import format_instant
from waybill.kernel.ids import DeliveryId, outcome_id

__all__ = ["MAX_AGGREGATE", "Event", "Turn", "event_of", "event_of_turn"]

#: Characters of an aggregate, `type/id`, as the outbox takes it.
MAX_AGGREGATE: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that is to be told."""

    #: The same whenever the same fact is read; of a delivery's move also the id of its outcome.
    event_id: UUID
    event_type: str
    aggregate_type: str
    #: What orders it among events: the aggregate of the command it is about, or the destination.
    aggregate_id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A control by which a destination came to stand otherwise than before."""

    number: int
    tenant: str
    destination: str
    before: str
    standing: str
    at: datetime
    by: str
    reason: str


def event_of(state: Mapping[str, Any]) -> Event | None:
    """Return the event about a delivery's state, by the field names of `TaskState.avsc`; None where there is none.

    Raises:
        ValueError: an identifier is no UUID, or the state is none.
    """
    event_type = DELIVERY_EVENTS.get(State(state["state"]))
    if event_type is None or state["command_type"].startswith(RESERVED_PREFIX):
        return None
    event_id = outcome_id(DeliveryId(UUID(state["delivery_id"])), state["version"])
    return Event(
        event_id=event_id,
        event_type=event_type,
        aggregate_type=DELIVERY_AGGREGATE,
        aggregate_id=_aggregate_id(state["aggregate"]),
        data={
            "eventId": str(event_id),
            "tenant": state["tenant"],
            "destination": state["destination"],
            "deliveryId": state["delivery_id"],
            "commandId": state["command_id"],
            "commandType": state["command_type"],
            "aggregate": state["aggregate"],
            "sequence": state["sequence"],
            "requestId": state["request_id"],
            "state": state["state"],
            "version": state["version"],
            "errorCode": state["error_code"],
            "detail": state["detail"],
            "attempts": state["attempt"],
            "proofLevel": state["proof_level"],
            "at": format_instant(state["updated_at"]),
        },
    )


def event_of_turn(turn: Turn) -> Event:
    """Return the event about a turn."""
    name = f"waybill:destination-event/{turn.tenant}/{turn.destination}/{turn.number}/{format_instant(turn.at)}"
    event_id = uuid5(NAMESPACE_URL, name)
    return Event(
        event_id=event_id,
        event_type=DESTINATION_EVENTS[turn.standing],
        aggregate_type=DESTINATION_AGGREGATE,
        aggregate_id=turn.destination,
        data={
            "eventId": str(event_id),
            "tenant": turn.tenant,
            "destination": turn.destination,
            "standing": turn.standing,
            "before": turn.before,
            "by": turn.by,
            "reason": turn.reason,
            "at": format_instant(turn.at),
        },
    )


def _aggregate_id(aggregate: str) -> str:
    """Return an id for any aggregate: itself, or its digest where it would be too long behind the type."""
    if len(aggregate) + len(DELIVERY_AGGREGATE) + 1 <= MAX_AGGREGATE:
        return aggregate
    return f"sha256:{hashlib.sha256(aggregate.encode()).hexdigest()}"
