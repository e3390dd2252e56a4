"""A signed receipt proves by itself who stated it; whatever was changed proves nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.receipt import app
from waybill.contracts.receipt import Receipt, ReceiptStatus, parse_receipt, render_receipt
from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.errors import ContractError
from waybill.listener.core.signed_receipts import NotProven, Proven, is_signed, sign_receipt, verify_receipt

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
RECEIPT = Receipt(
    status=ReceiptStatus.DONE,
    delivery_id="00000000-0000-0000-0000-000000000001",
    operation_id='op,"signature":"v1a,',
    source_version="v7",
    count=0,
    evidence="crm:1\u2028\U0001f600",
    executed_at=NOW,
)


def key(number: int, **changes: datetime) -> KeyRecord:
    values = {"not_before": NOW - timedelta(days=9), "not_after": NOW + timedelta(days=1), **changes}
    secret = Secret(bytes(range(number, number + 32)))
    return KeyRecord(key_id=f"crm-{number}", algorithm=Algorithm.ED25519, secret=secret, **values)


def keys(*records: KeyRecord) -> VerificationKeys:
    return VerificationKeys.from_jwks(jwks_document(list(records)))


SIGNED = sign_receipt(render_receipt(RECEIPT), Signer([key(1)]))


def reason(body: bytes, known: VerificationKeys) -> str:
    found = verify_receipt(body, known)
    return found.reason if isinstance(found, NotProven) else "proven"


@pytest.mark.requirement("DC-17")
def test_a_signed_receipt_is_a_receipt_and_proves_who_stated_it() -> None:
    assert parse_receipt(SIGNED) == RECEIPT
    assert is_signed(SIGNED)
    assert not is_signed(render_receipt(RECEIPT))
    assert verify_receipt(SIGNED, keys(key(2), key(1))) == Proven(receipt=RECEIPT, key_id="crm-1")
    assert verify_receipt(SIGNED + b"\n", keys(key(1))) == Proven(receipt=RECEIPT, key_id="crm-1")


def test_a_receipt_signed_in_a_rotation_is_proven_under_either_key() -> None:
    both = sign_receipt(render_receipt(RECEIPT), Signer([key(1), key(2)]))

    assert [reason(both, keys(key(number))) for number in (1, 2, 3)] == ["proven", "proven", "signature_mismatch"]


def changed() -> Iterator[bytes]:
    """Yield the receipt with one byte changed, for each byte where it stays a receipt."""
    for position in range(len(SIGNED)):
        yield SIGNED[:position] + bytes([SIGNED[position] ^ 1]) + SIGNED[position + 1 :]


def test_no_changed_byte_is_proven() -> None:
    tried = 0
    for body in changed():
        try:
            assert reason(body, keys(key(1))) != "proven", body
        except ContractError:
            continue
        tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("body", "known", "said"),
    [
        (render_receipt(RECEIPT), keys(key(1)), "unsigned"),
        (SIGNED, keys(key(2)), "signature_mismatch"),
        (SIGNED, keys(key(1, not_after=NOW - timedelta(hours=1))), "no_usable_key"),
        # A key is judged at the time of the execution.
        (SIGNED, keys(key(1, not_after=NOW + timedelta(seconds=1))), "proven"),
        (sign_receipt(render_receipt(replace(RECEIPT, evidence=None)), Signer([key(1)])), keys(key(1)), "incomplete"),
        (SIGNED.replace(b"v1a,", b"v9,"), keys(key(1)), "no_usable_key"),
        (SIGNED[:-1] + b',"more":1}', keys(key(1)), "unsigned"),
    ],
    ids=["unsigned", "another key", "a retired key", "a key retired later", "incomplete", "another kind", "added to"],
)
def test_what_proves_nothing_says_why(body: bytes, known: VerificationKeys, said: str) -> None:
    assert reason(body, known) == said


def test_a_member_that_is_there_twice_is_no_receipt() -> None:
    with pytest.raises(ContractError):
        verify_receipt(SIGNED.replace(b'"count":0', b'"count":5,"count":0'), keys(key(1)))


def test_the_command_verifies_offline(tmp_path: Path) -> None:
    run, jwks, file = CliRunner(), tmp_path / "jwks.json", tmp_path / "receipt.json"
    jwks.write_text(json.dumps(jwks_document([key(1)])))

    def verify(body: bytes, *options: str) -> tuple[int, str]:
        file.write_bytes(body)
        result = run.invoke(app, ["verify", str(file), *options])
        return result.exit_code, result.stdout

    code, said = verify(SIGNED, "--keys", str(jwks), "--json")
    assert (code, json.loads(said)["proven"], json.loads(said)["key_id"]) == (0, True, "crm-1")
    assert verify(SIGNED, "--keys", key(2).public_text(), "--keys", key(1).public_text())[0] == 0
    code, said = verify(SIGNED.replace(b'"count":0', b'"count":1'), "--keys", str(jwks), "--json")
    assert (code, json.loads(said)["reason"]) == (1, "signature_mismatch")
    assert verify(render_receipt(RECEIPT), "--keys", str(jwks))[0] == 1


@pytest.mark.parametrize(("body", "keys_file"), [(b"", "jwks.json"), (SIGNED, "absent.json"), (SIGNED, "receipt.json")])
def test_what_is_no_receipt_or_no_key_is_wrong_input(body: bytes, keys_file: str, tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(jwks_document([key(1)])))
    (tmp_path / "receipt.json").write_bytes(body)

    result = CliRunner().invoke(
        app, ["verify", str(tmp_path / "receipt.json"), "--keys", str(tmp_path / keys_file)], catch_exceptions=True
    )

    assert getattr(result.exception, "code", None) == "config" or result.exit_code == 2
