"""A receipt: what a destination states it did. Only a complete one closes a delivery (DC-3, DC-17).

Complete means: status, source version, evidence reference, and a count or a digest or both. A `200` with an empty
body, a receipt that lacks one of them, or one that speaks of another delivery proves nothing: the answer is
VALIDATION and the task stays open. Times are the destination's own; none is derived from another.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from waybill.kernel.clock import format_instant, parse_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DeliveryId

__all__ = ["CONTENT_TYPE", "MAX_TEXT", "Receipt", "ReceiptStatus", "parse_receipt", "render_receipt"]

CONTENT_TYPE: Final = "application/json"
#: A receipt larger than this is not read: evidence is a reference, not a copy.
MAX_BYTES: Final = 65_536
MAX_TEXT: Final = 2_048


class ReceiptStatus(StrEnum):
    """What the destination says became of the operation."""

    #: All of it was done, or was done before.
    DONE = "done"
    #: A part was done; the task stays open with PARTIAL_SOURCE.
    PARTIAL = "partial"
    #: What it is about is not there, and nothing was done. Proof only where the destination declares it (AM-4).
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What came back, complete or not: a field the destination left out is None."""

    status: ReceiptStatus | None = None
    #: As text; compared as text.
    delivery_id: str | None = None
    operation_id: str | None = None
    #: The version of the destination's own data after the operation.
    source_version: str | None = None
    #: How many things were affected; 0 is an answer.
    count: int | None = None
    #: `algorithm:hex` over what was affected.
    digest: str | None = None
    #: Where the proof lies: a reference, never the content.
    evidence: str | None = None
    #: When it happened at the source, reached the listener, was executed there.
    occurred_at: datetime | None = None
    received_at: datetime | None = None
    executed_at: datetime | None = None

    def missing(self) -> tuple[str, ...]:
        """Name what DC-17 asks for and this receipt lacks; `count` stands for "count or digest"."""
        found = [
            name
            for name in ("status", "source_version", "evidence")
            if getattr(self, name) is None or getattr(self, name) == ""
        ]
        if self.count is None and not self.digest:
            found.append("count")
        return tuple(found)

    def complete(self) -> bool:
        """Whether it carries everything that DC-17 asks for."""
        return not self.missing()

    def contradicts_itself(self) -> bool:
        """Whether it says that nothing was there, and yet that something was affected."""
        return self.status is ReceiptStatus.ABSENT and bool(self.count)

    def speaks_of(self, delivery: DeliveryId) -> bool:
        """Whether it is not a receipt of some other delivery; one without an id answers the request it came with."""
        return self.delivery_id is None or self.delivery_id == str(delivery)


_TEXTS: Final = ("delivery_id", "operation_id", "source_version", "digest", "evidence")
_TIMES: Final = ("occurred_at", "received_at", "executed_at")


def render_receipt(receipt: Receipt) -> bytes:
    """Return the document, absent fields left out, always in the same order."""
    document: dict[str, object] = {}
    for name in ("status", "delivery_id", "operation_id", "source_version", "count", "digest", "evidence", *_TIMES):
        value = getattr(receipt, name)
        if value is not None:
            document[name] = format_instant(value) if isinstance(value, datetime) else value
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def parse_receipt(body: bytes) -> Receipt:
    """Read an answer's body; unknown fields are ignored, absent ones are None.

    Raises:
        ContractError: no JSON object (an empty body too), or a field of the wrong type. Names the field only.
    """
    if len(body) > MAX_BYTES:
        raise ContractError(f"the receipt is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ContractError("the answer is not a receipt: no JSON") from error
    if not isinstance(document, dict):
        raise ContractError("the answer is not a receipt: no JSON object")
    texts = {name: _text(document, name) for name in (*_TEXTS, *_TIMES, "status")}
    reading = "status"
    try:
        status = ReceiptStatus(texts["status"]) if texts["status"] is not None else None
        times: dict[str, datetime | None] = {}
        for reading in _TIMES:
            text = texts[reading]
            times[reading] = parse_instant(text) if text is not None else None
    except ValueError as error:
        raise ContractError(f"receipt field {reading} is malformed") from error
    return Receipt(
        status=status,
        delivery_id=texts["delivery_id"],
        operation_id=texts["operation_id"],
        source_version=texts["source_version"],
        count=_count(document),
        digest=texts["digest"],
        evidence=texts["evidence"],
        **times,
    )


def _text(document: dict[str, object], name: str) -> str | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > MAX_TEXT):
        raise ContractError(f"receipt field {name} is not a string of at most {MAX_TEXT} characters")
    return value


def _count(document: dict[str, object]) -> int | None:
    value = document.get("count")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**63:
        raise ContractError("receipt field count is not a whole number from 0")
    return value
