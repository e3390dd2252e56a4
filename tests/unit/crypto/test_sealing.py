"""Seals: they open under one key, in one place, unchanged, or not at all."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.crypto.keys import Algorithm, KeyRecord, Secret
from waybill.crypto.sealing import SealBinding, SealingKeys, UnsealError, seal, sealed_key_id, unseal
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, Tenant

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOTH = [Algorithm.AES_256_GCM, Algorithm.CHACHA20_POLY1305]


def key(seed: int, algorithm: Algorithm = Algorithm.AES_256_GCM, *, name: str | None = None) -> KeyRecord:
    return KeyRecord(
        key_id=name or f"acme-{seed}",
        algorithm=algorithm,
        secret=Secret(bytes([seed]) * 32),
        not_before=NOW + timedelta(days=seed),
        not_after=None,
    )


def place(tenant: str = "acme", aggregate: str = "subject/1", command_type: str = "subject.erase") -> SealBinding:
    return SealBinding(tenant=Tenant(tenant), aggregate=Aggregate(aggregate), command_type=command_type)


@pytest.mark.parametrize("algorithm", BOTH)
@given(data=st.binary(max_size=300), aggregate=st.text(st.characters(codec="utf-8"), max_size=40))
def test_what_was_sealed_opens(algorithm: Algorithm, data: bytes, aggregate: str) -> None:
    sealed = seal(key(1, algorithm), data, place(aggregate=aggregate))

    assert unseal(SealingKeys([key(2), key(1, algorithm)]), sealed, place(aggregate=aggregate)) == data
    assert sealed_key_id(sealed) == "acme-1"


def test_the_same_data_never_give_the_same_seal_twice() -> None:
    assert len({seal(key(1), b"data", place()) for _ in range(100)}) == 100


@pytest.mark.parametrize("algorithm", BOTH)
def test_one_bit_anywhere_and_it_stays_shut(algorithm: Algorithm) -> None:
    keys = SealingKeys([key(1, algorithm)])
    sealed = seal(key(1, algorithm), b"data", place())
    for position in range(len(sealed)):
        for bit in range(8):
            copy = bytearray(sealed)
            copy[position] ^= 1 << bit

            with pytest.raises(UnsealError):
                unseal(keys, bytes(copy), place())


@pytest.mark.parametrize(
    "elsewhere",
    [place(tenant="other"), place(aggregate="subject/2"), place(command_type="subject.export")],
    ids=["tenant", "aggregate", "command type"],
)
def test_moved_to_another_command_it_stays_shut(elsewhere: SealBinding) -> None:
    sealed = seal(key(1), b"data", place())

    with pytest.raises(UnsealError, match="does not open"):
        unseal(SealingKeys([key(1)]), sealed, elsewhere)


def test_no_two_places_are_bound_alike() -> None:
    """Texts shifted across a border between fields are another place."""
    sealed = seal(key(1), b"data", place(tenant="acme", aggregate="x/1", command_type="t"))

    with pytest.raises(UnsealError):
        unseal(SealingKeys([key(1)]), sealed, place(tenant="acmex", aggregate="/1", command_type="t"))


def test_a_wrong_key_under_the_right_name_stays_shut() -> None:
    sealed = seal(key(1), b"data", place())

    with pytest.raises(UnsealError, match="does not open"):
        unseal(SealingKeys([key(2, name="acme-1")]), sealed, place())
    with pytest.raises(UnsealError, match="another algorithm"):
        unseal(SealingKeys([key(1, Algorithm.CHACHA20_POLY1305)]), sealed, place())


def test_without_its_key_it_says_which_one_is_missing() -> None:
    sealed = seal(key(1), b"data", place())

    with pytest.raises(UnsealError, match="acme-1"):
        unseal(SealingKeys([key(2)]), sealed, place())


@given(st.binary(max_size=80))
def test_bytes_that_are_no_seal_are_refused(data: bytes) -> None:
    for sealed in (data, b"WBS\x01" + data, b"WBS\x02" + data):
        with pytest.raises(UnsealError):
            unseal(SealingKeys([key(1)]), sealed, place())


def test_the_newest_valid_key_seals_and_retired_ones_still_open() -> None:
    keys = SealingKeys([key(1), key(2), key(9)])
    now = NOW + timedelta(days=3)

    assert keys.current(now).key_id == "acme-2"
    assert keys.get("acme-1") is not None


def test_without_a_valid_key_nothing_is_sealed() -> None:
    with pytest.raises(ConfigError, match="waybill keys seal-new"):
        SealingKeys([key(9)]).current(NOW)


def test_a_signing_key_does_not_seal() -> None:
    with pytest.raises(ConfigError, match="signs"):
        seal(key(1, Algorithm.ED25519), b"data", place())
