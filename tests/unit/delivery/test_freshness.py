"""Two attempts of a delivery never carry the same timestamp."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.delivery.core.freshness import Signed, second_after

pytestmark = pytest.mark.requirement("GW-3")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_what_was_signed_in_this_second_waits_for_the_next_and_nothing_else_does() -> None:
    signed = Signed()
    signed.note("a", NOON_MS + 400)

    assert signed.not_before("a", at(0.5)) == at(1)
    assert signed.not_before("a", at(1)) is None
    assert signed.not_before("b", at(0.5)) is None


def test_a_try_that_ends_late_does_not_hide_newer_ones() -> None:
    signed = Signed()
    signed.note("new", NOON_MS + 1100)
    signed.note("slow", NOON_MS + 900)

    assert signed.not_before("new", at(1.5)) == at(2)
    assert signed.not_before("slow", at(1.5)) is None


def test_only_one_second_is_remembered() -> None:
    signed = Signed()
    for n in range(100):
        signed.note(f"d-{n}", NOON_MS + n * 1000)

    assert [n for n in range(100) if signed.not_before(f"d-{n}", at(n + 0.5))] == [99]


def test_the_next_second_is_a_whole_one() -> None:
    assert second_after(NOON_MS) == second_after(NOON_MS + 999) == at(1)
