"""The note beside a committed offset: read back as written, also by who does not know all of it."""

import uuid

import pytest

from waybill.delivery.core.position import MAX_METADATA, MAX_UNSETTLED, Position
from waybill.kernel.errors import ContractError

NOTE = Position(
    epoch=uuid.UUID(int=1),
    released=False,
    sent_to=300,
    settled_to=200,
    unsettled=(100, 130),
    heard_to=7,
    beacon=uuid.UUID(int=2),
)


def test_a_note_is_read_back_as_it_was_written() -> None:
    assert Position.decode(NOTE.encode()) == NOTE


def test_a_note_of_a_version_that_knew_no_beacons_names_none() -> None:
    assert Position.decode(NOTE.encode().partition(";beacon=")[0]).beacon is None


def test_a_note_of_a_version_that_heard_no_results_begins_at_the_first() -> None:
    assert Position.decode(NOTE.encode().replace(";heard_to=7", "")).heard_to == 0


def test_a_damaged_beacon_is_refused() -> None:
    with pytest.raises(ContractError, match="beacon"):
        Position.decode(NOTE.encode().replace(str(NOTE.beacon), "gone"))


def test_the_longest_note_fits() -> None:
    far = 2**62
    longest = Position(
        epoch=uuid.uuid4(),
        released=True,
        sent_to=far,
        settled_to=far,
        decided_to=far,
        heard_to=far,
        unsettled=tuple(range(far - MAX_UNSETTLED * 2**20, far, 2**20)),
        beacon=uuid.uuid4(),
    )

    assert len(longest.encode()) <= MAX_METADATA


@pytest.mark.parametrize(
    ("record", "past"), [(99, True), (100, False), (101, True), (130, False), (199, True), (200, False)]
)
def test_what_is_past_is_below_the_offset_or_settled_beside_it(record: int, past: bool) -> None:
    assert NOTE.is_past(100, record) is past
