"""Signed receipts against their golden file, which listeners in other languages read too."""

from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from waybill.contracts.receipt import Receipt, ReceiptStatus, render_receipt
from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.listener.core.signed_receipts import NotProven, Proven, sign_receipt, verify_receipt

Vectors = Callable[[str], list[dict[str, Any]]]


def receipt_of(case: dict[str, Any]) -> Receipt:
    read = {
        "status": ReceiptStatus,
        **dict.fromkeys(("occurred_at", "received_at", "executed_at"), datetime.fromisoformat),
    }
    return Receipt(**{name: read.get(name, lambda value: value)(value) for name, value in case["receipt"].items()})


def keys_of(case: dict[str, Any]) -> list[KeyRecord]:
    return [
        KeyRecord(
            key_id=key["kid"],
            algorithm=Algorithm.ED25519,
            secret=Secret(b64decode(key["private"].removeprefix("whsk_"))),
            not_before=datetime.fromisoformat(key["not_before"]),
            not_after=datetime.fromisoformat(key["not_after"]) if key["not_after"] else None,
        )
        for key in case["ed25519_keys"]
    ]


@pytest.mark.requirement("DC-17")
def test_every_case_is_rendered_and_signed_to_its_bytes(vectors: Vectors) -> None:
    for case in vectors("signed_receipts.json"):
        rendered = render_receipt(receipt_of(case))

        assert (case["name"], rendered.decode()) == (case["name"], case["body"])
        assert (case["name"], sign_receipt(rendered, Signer(keys_of(case))).decode()) == (case["name"], case["signed"])


@pytest.mark.requirement("DC-17")
def test_every_signed_case_is_proven_by_each_of_its_signatures(vectors: Vectors) -> None:
    proven = 0
    for case in vectors("signed_receipts.json"):
        keys = VerificationKeys.from_jwks(jwks_document(keys_of(case)))

        found = verify_receipt(case["signed"].encode(), keys)

        if case["signed"] == case["body"]:
            assert isinstance(found, NotProven)
            assert found.reason == "unsigned"
        else:
            assert isinstance(found, Proven), case["name"]
            assert found.receipt == receipt_of(case)
            proven += 1
    assert proven >= 9
