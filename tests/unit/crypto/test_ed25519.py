"""Ed25519 as RFC 8032 has it, and what a lax implementation would let through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.crypto.ed25519 import PublicKey, SigningKey

#: Seed, public key, message and signature of section 7.1 of RFC 8032.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
#: The order of the base point.
ORDER = 2**252 + 27742317777372353535851937790883648493
SEED, PUBLIC, MESSAGE, SIGNATURE = (bytes.fromhex(text) for text in RFC_8032[1])


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_the_standard(seed: str, public: str, message: str, signature: str) -> None:
    content = bytes.fromhex(message)

    assert SigningKey(bytes.fromhex(seed)).sign(content).hex() == signature
    assert PublicKey(bytes.fromhex(public)).has_signed(bytes.fromhex(signature), content)


@given(bit=st.integers(0, len(SIGNATURE + MESSAGE) * 8 - 1))
def test_one_other_bit_is_another_signature(bit: int) -> None:
    changed = bytearray(SIGNATURE + MESSAGE)
    changed[bit // 8] ^= 1 << bit % 8

    assert not PublicKey(PUBLIC).has_signed(bytes(changed[:64]), bytes(changed[64:]))


@pytest.mark.parametrize("signature", [b"", SIGNATURE[:-1], SIGNATURE + b"\0", b"\0" * 64])
def test_what_is_no_signature_is_not_anybodys(signature: bytes) -> None:
    assert not PublicKey(PUBLIC).has_signed(signature, MESSAGE)


def test_a_signature_has_one_form() -> None:
    scalar = int.from_bytes(SIGNATURE[32:], "little") + ORDER
    again = SIGNATURE[:32] + scalar.to_bytes(32, "little")

    assert not PublicKey(PUBLIC).has_signed(again, MESSAGE)


def test_a_key_under_which_one_signature_fits_every_content_signs_nothing() -> None:
    identity = b"\x01" + b"\0" * 31

    assert not PublicKey(identity).has_signed(identity + b"\0" * 32, b"anything")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        PublicKey(b"\x02" * size)
    with pytest.raises(ValueError, match="seed"):
        SigningKey(b"\x02" * size)
