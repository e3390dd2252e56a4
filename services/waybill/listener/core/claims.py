"""What a listener records of a message when its execution begins, made from the message alone."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import assert_never

from waybill.contracts.envelope import GAP_RESOLUTION_TYPE, Envelope, GapResolution
from waybill.contracts.status_query import STATUS_QUERY_TYPE, StatusQuery
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.core.dedup import Identity
from waybill.listener.core.message import operation_digest

__all__ = ["Claim", "claim_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A delivery as it is recorded."""

    tenant: Tenant
    destination: DestinationName
    identity: Identity
    command_type: str
    aggregate: str
    received_at: datetime
    #: None for what never expires.
    expires_at: datetime | None


def claim_of(message: Envelope | GapResolution | StatusQuery, body: bytes, received_at: datetime) -> Claim:
    """Return what a message claims; a status query claims what the delivery it asks about would."""
    identity, command_type = _identity(message, body)
    return Claim(
        tenant=message.tenant,
        destination=message.destination,
        identity=identity,
        command_type=command_type,
        aggregate=message.aggregate,
        received_at=received_at,
        expires_at=message.expires_at if isinstance(message, Envelope) else None,
    )


def _identity(message: Envelope | GapResolution | StatusQuery, body: bytes) -> tuple[Identity, str]:
    match message:
        case Envelope():
            identity = Identity(
                delivery_id=message.delivery_id,
                operation_id=message.operation_id,
                body_digest=sha256(body).digest(),
                operation_digest=operation_digest(message),
            )
            return identity, message.command_type
        case GapResolution():
            digest = sha256(body).digest()
            identity = Identity(
                delivery_id=message.resolution_id,
                operation_id=str(message.resolution_id),
                body_digest=digest,
                operation_digest=digest,
            )
            return identity, GAP_RESOLUTION_TYPE
        case StatusQuery():
            digest = bytes.fromhex(message.body_sha256)
            identity = Identity(
                delivery_id=message.delivery_id,
                operation_id=message.operation_id,
                body_digest=digest,
                operation_digest=digest,
            )
            return identity, STATUS_QUERY_TYPE
        case _:
            assert_never(message)
