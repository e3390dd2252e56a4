"""The commands a run sends: of a tenant of its own, about aggregates nobody else names, with data marked `isTest`.

Each has an aggregate of its own unless a step needs several in a row, so that a listener that keeps sequences sees a
first number each time.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import ENVELOPE_VERSION, GapEntry, GapResolution
from waybill.contracts.status_query import StatusQuery, status_query_id
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant, delivery_id

__all__ = ["Cast", "data_of", "gap_resolution", "make_command", "status_query", "tricky_data"]

_SOURCE: Final = "urn:waybill:conformance"
_LIFETIME: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who speaks to whom about what."""

    tenant: Tenant
    destination: DestinationName
    command_type: str
    #: Members of the data beside `isTest` and `subject`.
    data: Mapping[str, Any]


def data_of(cast: Cast, subject: str) -> bytes:
    """Return the data of a command."""
    return json.dumps({"isTest": True, "subject": subject, **cast.data}, separators=(",", ":")).encode()


def tricky_data(cast: Cast, subject: str) -> bytes:
    """Return data that change when somebody parses them and writes them again."""
    plain = data_of(cast, subject).removesuffix(b"}")
    text = ', "amount" : 1.10, "big": 12345678901234567890, "text": "\u00e9 \u2028 \U0001f600 <>&", "a\\u0062c": 1e2 }'
    return plain + text.encode()


def make_command(cast: Cast, command_id: uuid.UUID, aggregate: str, now: datetime, *, sequence: int = 1) -> Command:
    """Return a command; single fields are replaced by the steps that need it."""
    return Command(
        command_id=CommandId(command_id),
        tenant=cast.tenant,
        aggregate=Aggregate(aggregate),
        sequences={cast.destination: sequence},
        optional_destinations=frozenset(),
        source=_SOURCE,
        command_type=cast.command_type,
        issued_at=now,
        expires_at=now + _LIFETIME,
        content_type="application/json",
        data_schema=None,
        operation_id=None,
        request_id=None,
        request_size=None,
        instruction_version=1,
        replaces=None,
        config_version=1,
        capability=cast.command_type,
        capability_version=1,
        legal_versions=None,
        config_versions=None,
        envelope_version=ENVELOPE_VERSION,
        data_form=DataForm.CLEAR,
        data_key_id=None,
        data_ref=None,
        data_digest=None,
        traceparent=None,
        data=data_of(cast, aggregate.partition("/")[2]),
    )


def gap_resolution(
    cast: Cast, resolution_id: uuid.UUID, aggregate: str, now: datetime, entries: tuple[GapEntry, ...]
) -> GapResolution:
    """Return what tells a listener not to wait."""
    return GapResolution(
        resolution_id=DeliveryId(resolution_id),
        tenant=cast.tenant,
        destination=cast.destination,
        aggregate=Aggregate(aggregate),
        source=_SOURCE,
        issued_at=now,
        config_version=1,
        entries=entries,
    )


def status_query(cast: Cast, about: Command, body_sha256: str, now: datetime) -> StatusQuery:
    """Return the question what became of a command."""
    delivery = delivery_id(about.command_id, cast.destination)
    return StatusQuery(
        query_id=status_query_id(delivery, int(now.timestamp() * 1000), "conformance"),
        tenant=cast.tenant,
        destination=cast.destination,
        aggregate=about.aggregate,
        source=_SOURCE,
        asked_at=now,
        config_version=1,
        delivery_id=delivery,
        operation_id=about.operation_id or str(delivery),
        body_sha256=body_sha256,
    )
