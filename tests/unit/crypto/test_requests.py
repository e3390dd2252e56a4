"""HTTP Message Signatures: the RFC's own vector, what is no signature, and the digest of a body."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.crypto.ed25519 import PublicKey, SigningKey
from waybill.crypto.requests import (
    ContentCheck,
    Parameters,
    RequestHead,
    content_digest,
    has_signed,
    read_signature,
    sign,
    signature_base,
    to_cover,
)

VECTOR: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "requests_rfc9421.json").read_text(encoding="utf-8")
)
KEY = SigningKey(urlsafe_b64decode(VECTOR["private"] + "="))
PUBLIC = PublicKey(urlsafe_b64decode(VECTOR["public"] + "="))


def head(*more: tuple[str, str], **changes: Any) -> RequestHead:
    asked = VECTOR["request"]
    fields = [(name, value) for name, value in asked["fields"]]
    values = {"method": asked["method"], "authority": "example.com", "target": asked["target"]}
    return RequestHead(**{**values, "fields": (*fields, *more), **changes})


def signed(said: str = VECTOR["signature-input"], value: str = VECTOR["signature"]) -> RequestHead:
    return head(("signature-input", said), ("signature", value))


def test_the_vector_of_the_rfc_is_verified():
    came = signed()
    found = read_signature(came)

    assert found is not None
    assert signature_base(came, found.covered, found.text) == VECTOR["base"].encode()
    assert has_signed(PUBLIC, found, came)


def test_what_we_sign_is_the_vector_of_the_rfc():
    parameters = Parameters(created=VECTOR["created"], key_id=VECTOR["key_id"])

    made = sign(head(), VECTOR["covered"], parameters, KEY, label="sig-b26")

    assert made == {name: VECTOR[name] for name in ("signature-input", "signature")}


@pytest.mark.parametrize(
    ("target", "authority", "component", "value"),
    [
        # RFC 9421, 2.2.6 and 2.2.7: no path is /, no query is ?, and an empty one is too
        ("", "x", "@path", "/"),
        ("/a%2Fb?c", "x", "@path", "/a%2Fb"),
        ("/a", "x", "@query", "?"),
        ("/a?", "x", "@query", "?"),
        ("/a?b=%20?c", "x", "@query", "?b=%20?c"),
        # 2.2.3: lower case, without the port that goes without saying
        ("/", "Example.COM:443", "@authority", "example.com"),
        ("/", "example.com:80", "@authority", "example.com"),
        ("/", "example.com:8080", "@authority", "example.com:8080"),
        # what nobody here reads is absent
        ("/", "x", "@target-uri", None),
        ("/", "x", "x-absent", None),
        # 2.1: several fields of a name are one value
        ("/", "x", "x-twice", "a, b"),
    ],
)
def test_components(target: str, authority: str, component: str, value: str | None):
    asked = head(("x-twice", " a\t"), ("x-twice", "b"), target=target, authority=authority)

    assert asked.component(component) == value


INPUT, SIGNATURE = 'sig1=("@method");created=1;keyid="k"', "sig1=:AAAA:"


@pytest.mark.parametrize(
    ("inputs", "signatures"),
    [
        ([], []),
        ([INPUT], []),
        ([], [SIGNATURE]),
        ([INPUT, INPUT], [SIGNATURE]),
        ([INPUT], [SIGNATURE, SIGNATURE]),
        # two signatures in one field
        ([f'{INPUT}, sig2=("@path");keyid="l"'], [SIGNATURE]),
        ([INPUT], [f"{SIGNATURE}, sig2=:AAAA:"]),
        # the other's label
        ([INPUT], ["sig2=:AAAA:"]),
        # a component with a parameter, twice, in upper case, or not quoted
        (['sig1=("@query-param";name="a");keyid="k"'], [SIGNATURE]),
        (['sig1=("date" "date");keyid="k"'], [SIGNATURE]),
        (['sig1=("Date");keyid="k"'], [SIGNATURE]),
        (["sig1=(date)"], [SIGNATURE]),
        # another spelling than the one that is signed
        (['sig1=("@method"  "@path");keyid="k"'], [SIGNATURE]),
        (['sig1=( "@method");keyid="k"'], [SIGNATURE]),
        (['sig1=("@method"); keyid="k"'], [SIGNATURE]),
        # a parameter twice, unknown, or of another kind
        (['sig1=("@method");keyid="k";keyid="l"'], [SIGNATURE]),
        (['sig1=("@method");colour="k"'], [SIGNATURE]),
        (['sig1=("@method");created="1"'], [SIGNATURE]),
        (['sig1=("@method");keyid=1'], [SIGNATURE]),
        (['sig1=("@method");created=01'], [SIGNATURE]),
        (['sig1=("@method");created=-1'], [SIGNATURE]),
        (['sig1=("@method");created=1.0'], [SIGNATURE]),
        # bytes in no spelling, or in a second one
        ([INPUT], ["sig1=AAAA"]),
        ([INPUT], ["sig1=:AAA:"]),
        ([INPUT], ["sig1=:AAB=:"]),
        ([INPUT], ["sig1=:A-_A:"]),
        # nobody needs so much
        ([f'sig1=("@method");keyid="{"k" * 5000}"'], [SIGNATURE]),
    ],
)
def test_what_is_no_signature(inputs: Sequence[str], signatures: Sequence[str]):
    came = head(*(("signature-input", each) for each in inputs), *(("signature", each) for each in signatures))

    assert read_signature(came) is None


@settings(max_examples=100, deadline=None)
@given(said=st.text(), value=st.text())
def test_whatever_comes_is_a_signature_or_none(said: str, value: str):
    found = read_signature(signed(said, value))

    assert found is None or found.text in said


def test_a_parameter_inside_a_value_is_none():
    found = read_signature(signed('sig1=("@method");keyid="k;created=1";nonce="n"', SIGNATURE))

    assert found is not None
    assert found.parameters == Parameters(key_id="k;created=1", nonce="n")


@pytest.mark.parametrize("value", ["a\nb", "ü"], ids=["a second line", "not ASCII"])
def test_what_cannot_be_signed_in_one_way_is_not(value: str):
    assert signature_base(head(("x-field", value)), ["x-field"], "()") is None
    with pytest.raises(ValueError, match="absent"):
        sign(head(), ["x-absent"], Parameters(), KEY)


def test_what_changes_a_request_is_to_be_covered():
    assert to_cover(head(fields=())) == ("@method", "@authority", "@path", "@query")
    assert to_cover(head(("idempotency-key", "k"))) == (
        "@method",
        "@authority",
        "@path",
        "@query",
        "content-type",
        "idempotency-key",
        "content-digest",
    )


HELLO = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
LONG = dict(VECTOR["request"]["fields"])["content-digest"]


@pytest.mark.parametrize("field", [HELLO, LONG, f"{HELLO}, {LONG}", f"unknown=:AAAA:, {HELLO}"])
def test_a_digest_is_that_of_its_body(field: str):
    body = VECTOR["request"]["body"].encode()
    same, other = ContentCheck(field), ContentCheck(field)
    for at in range(len(body)):
        same.take(body[at : at + 1])
    other.take(body + b" ")

    assert content_digest(body) == HELLO
    assert (same.is_same(), other.is_same()) == (True, False)


def test_of_two_digests_both_have_to_be_true():
    check = ContentCheck(f"{content_digest(b'other')}, {LONG}")
    check.take(VECTOR["request"]["body"].encode())

    assert not check.is_same()


def test_a_body_without_a_digest_is_empty():
    empty, full = ContentCheck(None), ContentCheck(None)
    full.take(b"{}")

    assert (empty.is_same(), full.is_same()) == (True, False)


@pytest.mark.parametrize("field", ["", "sha-256", "sha-256=:AAB=:", "md5=:AAAA:", f"{HELLO},{HELLO}"])
def test_what_is_no_digest(field: str):
    with pytest.raises(ValueError, match=r"digest|Digest"):
        ContentCheck(field)
