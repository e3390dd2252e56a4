"""What became of a delivery: the question a destination is asked, and the document it answers with.

The question is a signed event of its own type under an id of its own, so that nobody can take it for a delivery. It
carries what a destination needs to find the delivery and to know that it is the same: its id, its operation and the
digest of its body. The answer names question and delivery: an answer to another question, or a page that some proxy
put in its place, says nothing.
"""

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from waybill.contracts.receipt import Receipt, parse_receipt, render_receipt
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant

__all__ = [
    "STATUS_QUERY_TYPE",
    "Said",
    "StatusAnswer",
    "StatusQuery",
    "parse_status_answer",
    "render_status_answer",
    "render_status_query",
    "status_query_id",
]

#: The event type of the question.
STATUS_QUERY_TYPE: Final = "waybill.status-query"
#: An answer larger than this is not read: a receipt and two ids.
MAX_BYTES: Final = 66_560


class Said(StrEnum):
    """What a destination says became of a delivery."""

    #: Done; the receipt is beside it.
    DONE = "done"
    #: Nothing of it was done, and nothing of it is under way.
    NOT_DONE = "not_done"
    #: What it is about is not there, whoever took it away; the receipt that says so is beside it (AM-4).
    ABSENT = "absent"
    #: It is being done: ask again.
    IN_PROGRESS = "in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusQuery:
    """One question about one delivery."""

    query_id: uuid.UUID
    tenant: Tenant
    destination: DestinationName
    aggregate: Aggregate
    source: str
    asked_at: datetime
    config_version: int
    delivery_id: DeliveryId
    operation_id: str
    #: Of the body every attempt sends, lower-case hex.
    body_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """What came back."""

    query_id: str
    delivery_id: str
    said: Said
    #: With `done` and `absent`; a destination whose "done" is believed by its word alone has none.
    receipt: Receipt | None = None


def status_query_id(delivery: DeliveryId, asked_ms: int, asker: str) -> uuid.UUID:
    """Return the id of one question: another one for each time it is asked."""
    return uuid.uuid5(delivery, f"status/{asked_ms}/{asker}")


def render_status_query(query: StatusQuery) -> bytes:
    """Return the body of a question."""
    document = {
        "specversion": "1.0",
        "id": str(query.query_id),
        "source": query.source,
        "type": STATUS_QUERY_TYPE,
        "subject": query.aggregate,
        "time": format_instant(query.asked_at),
        "datacontenttype": "application/json",
        "tenant": query.tenant,
        "destination": query.destination,
        "configversion": query.config_version,
        "envelopeversion": 1,
        "dataform": "clear",
        "data": {
            "delivery_id": str(query.delivery_id),
            "operation_id": query.operation_id,
            "body_sha256": query.body_sha256,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def render_status_answer(answer: StatusAnswer) -> bytes:
    """Return the document a destination answers with."""
    document: dict[str, object] = {
        "query_id": answer.query_id,
        "delivery_id": answer.delivery_id,
        "status": answer.said.value,
    }
    if answer.receipt is not None:
        document["receipt"] = json.loads(render_receipt(answer.receipt))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def parse_status_answer(body: bytes) -> StatusAnswer:
    """Read an answer; unknown fields are ignored.

    Raises:
        ContractError: it is not such a document. Names the field only.
    """
    if len(body) > MAX_BYTES:
        raise ContractError(f"the answer is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ContractError("the answer is no JSON") from error
    match document:
        case {"query_id": str(query_id), "delivery_id": str(delivery_id), "status": str(status)}:
            pass
        case _:
            raise ContractError("the answer names no query_id, delivery_id and status")
    if status not in set(Said):
        raise ContractError("the answer's status is none of ours")
    receipt = document.get("receipt")
    return StatusAnswer(
        query_id=query_id,
        delivery_id=delivery_id,
        said=Said(status),
        receipt=None if receipt is None else parse_receipt(json.dumps(receipt).encode()),
    )
