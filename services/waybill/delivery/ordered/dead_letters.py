"""What is told of a record nobody can take: where it lies and why, nothing of what it says."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from waybill.contracts.codes import ErrorCode
from waybill.delivery.core.records import dead_letter_id, millis
from waybill.infra.kafka import Record
from waybill.kernel.ids import Tenant

__all__ = ["Letter", "Recorded", "dead_letter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Why a record, or one delivery of it, ends here."""

    code: ErrorCode
    cause: str
    detail: str
    destination: str | None = None
    delivery_id: str | None = None
    aggregate: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Who records it, when, and under which configuration."""

    tenant: Tenant
    topic: str
    by: str
    at: datetime
    config_version: int


def dead_letter(record: Record, letter: Letter, recorded: Recorded) -> dict[str, Any]:
    """Return the document of `DeadLetter.avsc`; its bytes stay in the topic, only their digest is told."""
    value = record.value or b""
    return {
        "dead_letter_id": dead_letter_id(recorded.topic, record.partition, record.offset, letter.destination or ""),
        "tenant": recorded.tenant,
        "topic": recorded.topic,
        "partition": record.partition,
        "offset": record.offset,
        "destination": letter.destination,
        "delivery_id": letter.delivery_id,
        "aggregate": letter.aggregate,
        "sequence": letter.sequence,
        "code": letter.code.value,
        "cause": letter.cause,
        "detail": letter.detail,
        "value_sha256": sha256(value).hexdigest(),
        "value_bytes": len(value),
        "owner": None,
        "config_version": recorded.config_version,
        "recorded_by": recorded.by,
        "recorded_at": millis(recorded.at),
    }
