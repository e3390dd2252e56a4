"""A receipt that proves by itself who stated it: signed by the listener's own key, verified by anybody, offline.

The signature is the last member of the receipt. Signed are, as Standard Webhooks does it, the delivery id, the second
of `executed_at` and the bytes of the receipt without that member; so the file that was stored is all one needs beside
the public key, and a key is judged at the time of the execution, also years after it was retired. A quotation mark in
a JSON string is escaped, so the member is found without parsing, and nothing in a receipt can imitate it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from waybill.contracts.receipt import Receipt, parse_receipt
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import Refuse, SignatureHeaders, VerificationKeys, verify
from waybill.kernel.errors import ContractError

__all__ = ["NotProven", "Proven", "is_signed", "sign_receipt", "verify_receipt"]

_MARK: Final = b',"signature":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """It was stated by the holder of the key, and is complete."""

    receipt: Receipt
    #: Empty for a shared secret.
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotProven:
    """It says something, and proves nothing."""

    receipt: Receipt
    #: `unsigned`, `incomplete`, or a word of the signature check.
    reason: str
    #: What an incomplete one lacks.
    missing: tuple[str, ...] = ()


def is_signed(rendered: bytes) -> bool:
    """Whether a receipt carries a signature, good or not."""
    return _MARK in rendered


def sign_receipt(rendered: bytes, signer: Signer) -> bytes:
    """Return a rendered receipt with its signature; one that has no delivery or no time is returned as it is.

    Raises:
        ConfigError: no key is valid at the time of the execution.
    """
    receipt = parse_receipt(rendered)
    if receipt.delivery_id is None or receipt.executed_at is None:
        return rendered
    signature = signer.sign(receipt.delivery_id, int(receipt.executed_at.timestamp()), rendered)
    return rendered[:-1] + _MARK + signature.encode() + b'"}'


def verify_receipt(body: bytes, keys: VerificationKeys) -> Proven | NotProven:
    """Decide whether a receipt proves what it says.

    Raises:
        ContractError: this is no receipt.
    """
    body = body.strip()
    receipt = parse_receipt(body)
    _refuse_repeated(body)
    unsigned, mark, rest = body.rpartition(_MARK)
    if not mark or not rest.endswith(b'"}'):
        return NotProven(receipt=receipt, reason="unsigned")
    if receipt.delivery_id is None or receipt.executed_at is None:
        missing = [name for name in ("delivery_id", "executed_at") if getattr(receipt, name) is None]
        return NotProven(receipt=receipt, reason="incomplete", missing=tuple(missing))
    signed = SignatureHeaders(
        webhook_id=receipt.delivery_id,
        timestamp=str(int(receipt.executed_at.timestamp())),
        signature=rest[:-2].decode("ascii", "replace"),
    )
    verdict = verify(signed, unsigned + b"}", keys, receipt.executed_at, None)
    if isinstance(verdict, Refuse):
        return NotProven(receipt=receipt, reason=verdict.reason.value)
    if missing_fields := receipt.missing():
        return NotProven(receipt=receipt, reason="incomplete", missing=missing_fields)
    return Proven(receipt=receipt, key_id=verdict.key_id)


def _refuse_repeated(body: bytes) -> None:
    """Refuse a member that is there twice: two readers could see two receipts under one signature."""

    def unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ContractError("a member of the receipt is there twice")
        return found

    json.loads(body, object_pairs_hook=unique)
