"""Typed identifiers and the one way each derived identifier is computed.

Every worker, read model and listener computes the same delivery id for the same command and destination,
so nobody has to store or agree on it (DC-6, GW-1). A derived id is a UUIDv5: its namespace is the id it
hangs on, its name says what it is.
"""

import re
import uuid
from typing import Final, NewType

CommandId = NewType("CommandId", uuid.UUID)
DeliveryId = NewType("DeliveryId", uuid.UUID)
OutcomeId = NewType("OutcomeId", uuid.UUID)
AttemptId = NewType("AttemptId", uuid.UUID)
Tenant = NewType("Tenant", str)
DestinationName = NewType("DestinationName", str)
#: `type/id`, the Kafka key; opaque, never personal data.
Aggregate = NewType("Aggregate", str)

#: Tenants, destinations and outboxes: they become parts of topic names, group ids and metric labels.
NAME_PATTERN: Final = re.compile(r"^[a-z][a-z0-9-]{0,29}$")
#: An aggregate type, as `fabric.yaml` maps it to the outbox that numbers it.
AGGREGATE_TYPE_PATTERN: Final = re.compile(r"^[a-z][a-z0-9_.-]{0,62}$")
#: The longest aggregate (`type/id`) in characters; the outbox holds the same number in a constraint.
MAX_AGGREGATE_LENGTH: Final = 255


def delivery_id(command: CommandId, destination: DestinationName) -> DeliveryId:
    """Return the identity under which a command is offered to one destination, the same for ever."""
    return DeliveryId(uuid.uuid5(command, destination))


def outcome_id(delivery: DeliveryId, state_version: int) -> OutcomeId:
    """Return the id of the transition that gave a delivery its `state_version`; readers drop a repeat."""
    return OutcomeId(uuid.uuid5(delivery, f"state/{state_version}"))


def attempt_id(delivery: DeliveryId, *, partition: int, offset: int, epoch: uuid.UUID, attempt: int) -> AttemptId:
    """Return the id of one try.

    A repeat by the relay (another offset) or after a takeover (another epoch) is audited as one more
    attempt; a rebuilt Kafka transaction of the same owner is not (AT-2).
    """
    return AttemptId(uuid.uuid5(delivery, f"attempt/{partition}/{offset}/{epoch}/{attempt}"))
