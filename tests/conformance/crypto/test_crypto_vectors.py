"""Signatures and seals against their golden files."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document
from waybill.crypto.sealing import SealBinding, SealingKeys, _seal, unseal
from waybill.crypto.signing import Signer, parse_hmac_secrets
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.kernel.ids import Aggregate, Tenant

Vectors = Callable[[str], list[dict[str, Any]]]


def keys_of(case: dict[str, Any]) -> list[KeyRecord]:
    """Build the private keys of a case."""
    return [
        KeyRecord(
            key_id=key["kid"],
            algorithm=Algorithm.ED25519,
            secret=Secret(base64.b64decode(key["private"].removeprefix("whsk_"))),
            not_before=datetime.fromisoformat(key["not_before"]),
            not_after=datetime.fromisoformat(key["not_after"]) if key["not_after"] else None,
        )
        for key in case["ed25519_keys"]
    ]


def test_every_case_signs_to_its_header(vectors: Vectors) -> None:
    cases = vectors("signatures.json")

    for case in cases:
        signer = Signer(keys_of(case), parse_hmac_secrets(" ".join(case["hmac_secrets"])))
        header = signer.sign(case["webhook_id"], case["webhook_timestamp"], case["body"].encode())

        assert (case["name"], header) == (case["name"], case["webhook_signature"])
    assert {case["webhook_signature"].count("v1a,") for case in cases} == {0, 1, 2}


def test_each_entry_alone_is_accepted(vectors: Vectors) -> None:
    """A listener that knows only one of the keys, or only the shared secret, believes the body."""
    for case in vectors("signatures.json"):
        secrets = parse_hmac_secrets(" ".join(case["hmac_secrets"]))
        keys = VerificationKeys.from_jwks(jwks_document(keys_of(case)), secrets)
        now = datetime.fromtimestamp(case["webhook_timestamp"], UTC)
        for entry in case["webhook_signature"].split(" "):
            headers = SignatureHeaders(
                webhook_id=case["webhook_id"], timestamp=str(case["webhook_timestamp"]), signature=entry
            )

            assert isinstance(verify(headers, case["body"].encode(), keys, now), Accept)


def test_every_entry_is_what_its_algorithm_alone_gives(vectors: Vectors) -> None:
    """The files hold for readers without our code: plain HMAC-SHA256 and plain Ed25519 over the signed content."""
    for case in vectors("signatures.json"):
        content = case["signed_content"].encode()
        entries = case["webhook_signature"].split(" ")
        macs = [
            base64.b64encode(hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), content, hashlib.sha256))
            for secret in case["hmac_secrets"]
        ]
        assert [entry for entry in entries if entry.startswith("v1,")] == [f"v1,{mac.decode()}" for mac in macs]

        publics = [base64.b64decode(key["public"].removeprefix("whpk_")) for key in case["ed25519_keys"]]
        for entry in entries:
            if entry.startswith("v1a,"):
                signature = base64.b64decode(entry.removeprefix("v1a,"))
                assert any(_verifies(public, signature, content) for public in publics)


def _verifies(public: bytes, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except InvalidSignature:
        return False
    return True


def test_every_seal_is_its_bytes_and_opens(vectors: Vectors) -> None:
    for case in vectors("sealing_v1.json"):
        key = KeyRecord(
            key_id=case["key"]["kid"],
            algorithm=Algorithm(case["key"]["algorithm"]),
            secret=Secret(base64.b64decode(case["key"]["secret_base64"])),
            not_before=datetime(2026, 1, 1, tzinfo=UTC),
            not_after=None,
        )
        place = SealBinding(
            tenant=Tenant(case["tenant"]), aggregate=Aggregate(case["aggregate"]), command_type=case["command_type"]
        )
        sealed = base64.b64decode(case["sealed_base64"])

        assert _seal(key, case["plain"].encode(), place, base64.b64decode(case["nonce_base64"])) == sealed
        assert unseal(SealingKeys([key]), sealed, place).decode() == case["plain"]


@pytest.mark.parametrize("cipher", [AESGCM, ChaCha20Poly1305])
def test_every_seal_is_what_its_algorithm_alone_gives(
    vectors: Vectors, cipher: type[AESGCM | ChaCha20Poly1305]
) -> None:
    names = {AESGCM: "AES-256-GCM", ChaCha20Poly1305: "ChaCha20-Poly1305"}
    (case,) = [case for case in vectors("sealing_v1.json") if case["name"] == names[cipher]]
    nonce = base64.b64decode(case["nonce_base64"])
    sealed = base64.b64decode(case["sealed_base64"])
    head_length = 6 + len(case["key"]["kid"])

    plain = cipher(base64.b64decode(case["key"]["secret_base64"])).decrypt(
        nonce, sealed[head_length + 12 :], base64.b64decode(case["additional_data_base64"])
    )

    assert sealed[head_length : head_length + 12] == nonce
    assert plain.decode() == case["plain"]
