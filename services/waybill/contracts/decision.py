"""What people decided about one delivery, as it travels to the owner of its partition.

A decision is a row of the control database and a record of `waybill.<tenant>.decisions`, keyed by the aggregate so that
it lies in the partition of the command. Nobody sets a state: the owner judges the decision against where the
delivery stands then, and carries it out or voids it.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from waybill.contracts.codec import AvroReader, AvroWriter
from waybill.contracts.states import State
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DestinationName, Tenant

__all__ = ["CANCELLABLE", "Decision", "DecisionKind", "decision_id", "read_decision", "write_decision"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The states in which a delivery may be taken back.
CANCELLABLE: Final = (State.QUEUED, State.RETRYING)


class DecisionKind(StrEnum):
    """What was decided."""

    #: Do not deliver it, if nothing of it can have been sent.
    CANCEL = "cancel"
    #: Deliver it once more: same id, same bytes, before it expires.
    REDRIVE = "redrive"
    #: Go on behind it, although it ended without acknowledgement.
    SKIP = "skip"
    #: A newer command replaces it: as cancel, decided by the worker that read the newer one.
    SUPERSEDE = "supersede"
    #: People have seen that it was done; where, they say with the decision.
    ACKNOWLEDGE = "acknowledge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision."""

    decision_id: uuid.UUID
    tenant: Tenant
    destination: DestinationName
    aggregate: Aggregate
    kind: DecisionKind
    #: Either the delivery, or its number within aggregate and destination.
    delivery_id: uuid.UUID | None
    sequence: int | None
    #: The version of the state it was made on; None where states are named.
    version: int | None
    #: The states in which it counts; empty where a version is named.
    states: tuple[State, ...]
    decided_by: str
    #: Why, in words; no personal data.
    reason: str
    decided_at: datetime
    #: Where it can be seen that it was done, and the digest of what is there; an acknowledgement needs the first.
    evidence: str | None = None
    evidence_digest: str | None = None


def decision_id(about: uuid.UUID, kind: DecisionKind, version: int | None) -> uuid.UUID:
    """Return the identity of a decision: the same about the same, however often it is made."""
    return uuid.uuid5(about, f"{kind.value}/{'' if version is None else version}")


def write_decision(decision: Decision, writer: AvroWriter) -> bytes:
    """Return the framed record."""
    return writer.encode(
        {
            "decision_id": str(decision.decision_id),
            "tenant": decision.tenant,
            "destination": decision.destination,
            "aggregate": decision.aggregate,
            "kind": decision.kind.value,
            "delivery_id": None if decision.delivery_id is None else str(decision.delivery_id),
            "sequence": decision.sequence,
            "version": decision.version,
            "states": [state.value for state in decision.states],
            "decided_by": decision.decided_by,
            "reason": decision.reason,
            "decided_at": (decision.decided_at - _EPOCH) // timedelta(milliseconds=1),
            "evidence": decision.evidence,
            "evidence_digest": decision.evidence_digest,
        }
    )


def read_decision(value: bytes, reader: AvroReader) -> Decision:
    """Read a record.

    Raises:
        ContractError: it is no decision this version can read.
    """
    found: dict[str, Any] = reader.decode(value)
    try:
        at = found["decided_at"]
        return Decision(
            decision_id=uuid.UUID(found["decision_id"]),
            tenant=Tenant(found["tenant"]),
            destination=DestinationName(found["destination"]),
            aggregate=Aggregate(found["aggregate"]),
            kind=DecisionKind(found["kind"]),
            delivery_id=uuid.UUID(found["delivery_id"]) if found["delivery_id"] is not None else None,
            sequence=found["sequence"],
            version=found["version"],
            states=tuple(State(word) for word in found["states"]),
            decided_by=found["decided_by"],
            reason=found["reason"],
            decided_at=at if isinstance(at, datetime) else _EPOCH + timedelta(milliseconds=at),
            evidence=found["evidence"],
            evidence_digest=found["evidence_digest"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ContractError("a decision has a field that cannot be read") from error
