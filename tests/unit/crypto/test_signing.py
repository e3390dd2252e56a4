"""Signatures: what is believed, what is not, and for how long."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document, new_key, retire
from waybill.crypto.signing import Signer, parse_hmac_secrets
from waybill.crypto.verifying import (
    Accept,
    Refuse,
    RefuseReason,
    SignatureHeaders,
    Verdict,
    VerificationKeys,
    verify,
)
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = int(NOW.timestamp())
ID = "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
BODY = b'{"specversion":"1.0","data":{"subject":"8f14e45f"}}'
SHARED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FIVE_MINUTES = timedelta(minutes=5)


def key(seed: int, not_before: datetime = NOW - timedelta(days=30), not_after: datetime | None = None) -> KeyRecord:
    return KeyRecord(
        key_id=f"acme-{seed}",
        algorithm=Algorithm.ED25519,
        secret=Secret(bytes([seed]) * 32),
        not_before=not_before,
        not_after=not_after,
    )


def public(*keys: KeyRecord, shared: str = "") -> VerificationKeys:
    return VerificationKeys.from_jwks(jwks_document(keys), parse_hmac_secrets(shared))


def headers(
    signature: str | None, *, webhook_id: str | None = ID, timestamp: str | None = str(STAMP)
) -> SignatureHeaders:
    return SignatureHeaders(webhook_id=webhook_id, timestamp=timestamp, signature=signature)


def refused(reason: RefuseReason) -> Verdict:
    return Refuse(reason=reason)


def flips(text: bytes) -> Sequence[bytes]:
    """Return the text once for every bit, that bit turned over."""
    found = []
    for position in range(len(text)):
        for bit in range(8):
            copy = bytearray(text)
            copy[position] ^= 1 << bit
            found.append(bytes(copy))
    return found


@pytest.mark.requirement("DC-9")
def test_one_bit_of_the_body_breaks_every_form_of_signature() -> None:
    keys = public(key(1), shared=SHARED)
    for signer in (Signer([key(1)]), Signer([], parse_hmac_secrets(SHARED))):
        signature = signer.sign(ID, STAMP, BODY)
        assert isinstance(verify(headers(signature), BODY, keys, NOW), Accept)

        for body in flips(BODY):
            assert isinstance(verify(headers(signature), body, keys, NOW), Refuse)


@pytest.mark.requirement("DC-9")
def test_one_bit_of_the_signature_breaks_it() -> None:
    """Also in the last character before the padding, whose low bits carry nothing."""
    keys = public(key(1), shared=SHARED)
    for signer in (Signer([key(1)]), Signer([], parse_hmac_secrets(SHARED))):
        signature = signer.sign(ID, STAMP, BODY)

        for text in flips(signature.encode()):
            verdict = verify(headers(text.decode("latin-1")), BODY, keys, NOW)
            assert isinstance(verdict, Refuse), text


@pytest.mark.requirement("DC-9")
def test_one_bit_of_id_or_timestamp_breaks_it() -> None:
    keys = public(key(1))
    signature = Signer([key(1)]).sign(ID, STAMP, BODY)

    for text in flips(ID.encode()):
        assert isinstance(verify(headers(signature, webhook_id=text.decode("latin-1")), BODY, keys, NOW), Refuse)
    for text in flips(str(STAMP).encode()):
        assert isinstance(verify(headers(signature, timestamp=text.decode("latin-1")), BODY, keys, NOW), Refuse)


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (0, Accept(key_id="acme-1")),
        (300, Accept(key_id="acme-1")),
        (-300, Accept(key_id="acme-1")),
        (300.001, Refuse(reason=RefuseReason.TIMESTAMP_TOO_OLD)),
        (-300.001, Refuse(reason=RefuseReason.TIMESTAMP_TOO_NEW)),
        (86_400, Refuse(reason=RefuseReason.TIMESTAMP_TOO_OLD)),
        (-86_400, Refuse(reason=RefuseReason.TIMESTAMP_TOO_NEW)),
    ],
)
def test_the_tolerance_has_two_sides(seconds: float, verdict: Verdict) -> None:
    signature = Signer([key(1)]).sign(ID, STAMP, BODY)

    now = NOW + timedelta(seconds=seconds)

    assert verify(headers(signature), BODY, public(key(1)), now, FIVE_MINUTES) == verdict


def test_a_signature_under_a_foreign_key_is_a_mismatch() -> None:
    signature = Signer([key(2)]).sign(ID, STAMP, BODY)

    assert verify(headers(signature), BODY, public(key(1)), NOW) == refused(RefuseReason.SIGNATURE_MISMATCH)


@pytest.mark.parametrize(
    ("given_headers", "reason"),
    [
        (headers(None), RefuseReason.MISSING_HEADER),
        (headers("v1,AAAA", webhook_id=None), RefuseReason.MISSING_HEADER),
        (headers("v1,AAAA", timestamp=None), RefuseReason.MISSING_HEADER),
        (headers("v1,AAAA", timestamp="nan"), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", timestamp="-1"), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", timestamp="1e9"), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", timestamp=f"{STAMP}.5"), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", timestamp="9" * 40), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", timestamp=f"\u0661{STAMP}"), RefuseReason.MALFORMED_HEADER),
        (headers("v1,AAAA", webhook_id=""), RefuseReason.MALFORMED_HEADER),
        (headers("v1a,not base64"), RefuseReason.MALFORMED_HEADER),
        (headers("v1a," + "A" * 10_000), RefuseReason.MALFORMED_HEADER),
        (headers(""), RefuseReason.NO_USABLE_KEY),
        (headers("v2,AAAA"), RefuseReason.NO_USABLE_KEY),
        (headers("v1,AAAA"), RefuseReason.NO_USABLE_KEY),
        (headers("v1a,AAAA"), RefuseReason.SIGNATURE_MISMATCH),
        (headers("v1a,"), RefuseReason.SIGNATURE_MISMATCH),
    ],
)
def test_headers_that_prove_nothing_are_refused(given_headers: SignatureHeaders, reason: RefuseReason) -> None:
    assert verify(given_headers, BODY, public(key(1)), NOW) == refused(reason)


def test_a_shared_secret_signature_is_not_believed_where_none_is_shared() -> None:
    signature = Signer([], parse_hmac_secrets(SHARED)).sign(ID, STAMP, BODY)

    assert verify(headers(signature), BODY, public(key(1)), NOW) == refused(RefuseReason.NO_USABLE_KEY)


def test_unknown_kinds_beside_a_good_entry_do_no_harm() -> None:
    signature = Signer([key(1)]).sign(ID, STAMP, BODY)

    verdict = verify(headers(f"v9,??? {signature} v1x,AAAA"), BODY, public(key(1)), NOW)

    assert verdict == Accept(key_id="acme-1")


@pytest.mark.requirement("GW-3")
def test_timestamp_and_signature_change_and_each_verifies() -> None:
    signer, keys = Signer([key(1)]), public(key(1))
    seen = set()
    for attempt in range(5):
        stamp = STAMP + attempt
        signature = signer.sign(ID, stamp, BODY)
        seen.add(signature)

        assert isinstance(verify(headers(signature, timestamp=str(stamp)), BODY, keys, NOW), Accept)
    assert len(seen) == 5


@pytest.mark.requirement("GW-19")
def test_while_keys_rotate_old_and_new_listeners_believe() -> None:
    old = key(1)
    retiring, fresh = (*retire([old], NOW, timedelta(hours=1)), replace(key(2), not_before=NOW))
    signer = Signer([retiring, fresh])
    signature = signer.sign(ID, STAMP, BODY)

    assert signature.count("v1a,") == 2
    assert verify(headers(signature), BODY, public(old), NOW) == Accept(key_id="acme-1")
    assert verify(headers(signature), BODY, public(fresh), NOW) == Accept(key_id="acme-2")
    assert isinstance(verify(headers(signature), BODY, public(retiring, fresh), NOW), Accept)


@pytest.mark.requirement("GW-19")
def test_a_retired_key_signs_nothing_that_is_believed() -> None:
    """Whoever stole it can still sign; listeners that know its window do not believe it afterwards."""
    end = NOW + timedelta(hours=1)
    stolen, fresh = key(1), replace(key(2), not_before=NOW)
    keys = public(replace(stolen, not_after=end), fresh)
    later = end + timedelta(seconds=2)
    stamp = int(later.timestamp())

    forged = Signer([stolen]).sign(ID, stamp, BODY)
    honest = Signer([replace(stolen, not_after=end), fresh]).sign(ID, stamp, BODY)

    verdict = verify(headers(forged, timestamp=str(stamp)), BODY, keys, later)

    assert verdict == refused(RefuseReason.SIGNATURE_MISMATCH)
    assert honest.count("v1a,") == 1
    assert verify(headers(honest, timestamp=str(stamp)), BODY, keys, later) == Accept(key_id="acme-2")


@pytest.mark.requirement("GW-19")
def test_two_shared_secrets_rotate_as_well() -> None:
    other = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    signature = Signer([], parse_hmac_secrets(f"{SHARED} {other}")).sign(ID, STAMP, BODY)

    for shared in (SHARED, other):
        assert verify(headers(signature), BODY, public(shared=shared), NOW) == Accept(key_id="")


@given(st.integers(0, 400), st.integers(1, 400), st.integers(0, 400))
def test_what_a_signer_signs_its_public_keys_believe(start: int, length: int, at: int) -> None:
    """At every second, a key signs exactly when the published window of that key covers the timestamp."""
    not_before = NOW + timedelta(milliseconds=500 * start)
    windowed = key(1, not_before=not_before, not_after=not_before + timedelta(milliseconds=500 * length))
    stamp = STAMP + at
    try:
        signature = Signer([windowed]).sign(ID, stamp, BODY)
    except ConfigError:
        assert not not_before.timestamp() <= stamp < not_before.timestamp() + length / 2
        return

    now = datetime.fromtimestamp(stamp, UTC)

    assert isinstance(verify(headers(signature, timestamp=str(stamp)), BODY, public(windowed), now), Accept)


def test_a_signer_without_a_valid_key_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="waybill keys list"):
        Signer([key(1, not_before=NOW + timedelta(days=1))]).sign(ID, STAMP, BODY)


@pytest.mark.parametrize(
    "text", ["sesame", "whsec_", "whsec_!!!", "whsec_" + base64.b64encode(b"short").decode(), "whsec_" + "A" * 200]
)
def test_a_shared_secret_that_is_none_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_hmac_secrets(text)

    assert text not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"keys": {}},
        {"keys": [{"kty": "OKP", "crv": "Ed25519"}]},
        {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]},
        {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "A" * 43, "nbf": "now"}]},
    ],
)
def test_a_damaged_key_set_is_refused(document: object) -> None:
    with pytest.raises(ConfigError, match="JSON Web Key Set"):
        VerificationKeys.from_jwks(document)


def test_keys_of_other_kinds_in_a_set_are_ignored() -> None:
    document = jwks_document([key(1)])
    assert isinstance(document["keys"], list)
    document["keys"].insert(0, {"kty": "RSA", "n": "x", "e": "AQAB"})
    signature = Signer([key(1)]).sign(ID, STAMP, BODY)

    assert isinstance(verify(headers(signature), BODY, VerificationKeys.from_jwks(document), NOW), Accept)


def test_a_public_key_as_text_verifies() -> None:
    signature = Signer([key(1)]).sign(ID, STAMP, BODY)

    assert isinstance(verify(headers(signature), BODY, VerificationKeys.from_text(key(1).public_text()), NOW), Accept)
    with pytest.raises(ConfigError, match="whpk_"):
        VerificationKeys.from_text("whsk_AAAA")


def test_a_secret_shows_nothing() -> None:
    fresh = new_key(Algorithm.ED25519, Tenant("acme"), NOW)
    spelt = base64.b64encode(fresh.secret.reveal()).decode()

    for text in (repr(fresh), str(fresh.secret), f"{fresh.secret}", repr([fresh.secret])):
        assert spelt not in text
        assert repr(fresh.secret.reveal()) not in text
