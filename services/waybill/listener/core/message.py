"""What a handler gets and what it gives back.

A handler is called with a `Received` command and an open transaction and returns `Done`: everything that makes a
receipt complete (DC-17). It refuses by raising `Refuse`; then the transaction is rolled back and nothing of the
delivery is recorded, so that a listener that was mended can accept the same delivery later.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import DataForm
from waybill.contracts.envelope import Envelope
from waybill.contracts.receipt import MAX_TEXT, Receipt, ReceiptStatus
from waybill.crypto.sealing import SealBinding, SealingKeys, unseal
from waybill.kernel.errors import RefusedError

__all__ = ["Done", "Received", "Refuse", "build_receipt", "operation_digest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One verified command. `envelope` holds every attribute; the methods open the data."""

    envelope: Envelope
    #: When the request reached this listener.
    received_at: datetime

    @property
    def data(self) -> bytes:
        """The producer's bytes; sealed ones still sealed, none for a reference."""
        return self.envelope.data

    def json(self) -> Any:
        """Parse clear JSON data.

        Raises:
            Refuse: VALIDATION; the data are sealed, elsewhere, or not JSON.
        """
        if self.envelope.data_form is not DataForm.CLEAR:
            raise Refuse(ErrorCode.VALIDATION, "data_not_clear")
        return _load(self.envelope.data)

    def unseal(self, keys: SealingKeys) -> bytes:
        """Open sealed data.

        Raises:
            Refuse: VALIDATION; the data are not sealed.
            UnsealError: they do not open; the listener answers VALIDATION with the reason `unseal`.
        """
        envelope = self.envelope
        if envelope.data_form is not DataForm.SEALED:
            raise Refuse(ErrorCode.VALIDATION, "data_not_sealed")
        binding = SealBinding(tenant=envelope.tenant, aggregate=envelope.aggregate, command_type=envelope.command_type)
        return unseal(keys, envelope.data, binding)

    def unseal_json(self, keys: SealingKeys) -> Any:
        """Open sealed data and parse them; raises as `unseal` and `json` do."""
        return _load(self.unseal(keys))


def _load(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refuse(ErrorCode.VALIDATION, "data_not_json") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a handler did."""

    #: The version of the destination's own data after the operation.
    source_version: str
    #: Where the proof lies: a reference, never the content.
    evidence: str
    #: How many things were affected (0 is an answer), a digest over them, or both.
    count: int | None = None
    digest: str | None = None
    #: ABSENT: it is not there, and nothing was done. Closes a delivery only where fabric.yaml declares that it proves.
    status: ReceiptStatus = ReceiptStatus.DONE
    #: When it happened at the source, where the source says so.
    occurred_at: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what would not be a complete receipt."""
        if not self.source_version or not self.evidence:
            raise ValueError("a receipt needs source_version and evidence")
        if max(map(len, (self.source_version, self.evidence, self.digest or ""))) > MAX_TEXT:
            raise ValueError(f"source_version, evidence and digest have at most {MAX_TEXT:,} characters each")
        if self.count is None and not self.digest:
            raise ValueError("a receipt needs count or digest")
        if self.status is ReceiptStatus.ABSENT and self.count:
            raise ValueError("what was absent was not counted: count is 0 or left out")


class Refuse(RefusedError):  # noqa: N818 - handlers read `raise Refuse(...)`
    """Raise in a handler to refuse: the transaction is rolled back and the sender gets the code.

    RATE_LIMIT, SOURCE_UNAVAILABLE and TRANSIENT_NETWORK are tried again by the sender, not before `retry_after`;
    every other code ends the attempt. `detail` travels to the sender but is not recorded: no personal data in it.
    """

    code = "refused_by_handler"

    def __init__(self, code: ErrorCode, reason: str, *, detail: str = "", retry_after: timedelta | None = None) -> None:
        super().__init__(f"{code.value}: {reason}", rule=reason)
        self.error_code = code
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


def build_receipt(command: Received, done: Done, executed_at: datetime) -> Receipt:
    """Return the receipt of an execution."""
    return Receipt(
        status=done.status,
        delivery_id=str(command.envelope.delivery_id),
        operation_id=command.envelope.operation_id,
        source_version=done.source_version,
        count=done.count,
        digest=done.digest,
        evidence=done.evidence,
        occurred_at=done.occurred_at,
        received_at=command.received_at,
        executed_at=executed_at,
    )


def operation_digest(envelope: Envelope) -> bytes:
    """Return SHA-256 over what is to be done, the same for two deliveries that ask for the same thing."""
    digest = hashlib.sha256()
    for part in (
        envelope.command_type,
        envelope.aggregate,
        envelope.content_type,
        envelope.data_form.value,
        envelope.data_ref or "",
        envelope.data_digest or "",
    ):
        text = part.encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    digest.update(envelope.data)
    return digest.digest()
