"""What must be written again of a delivery after the control database was set back."""

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.states import State
from waybill.delivery.beacons.judging import Kept, Need, Past, Told, needed
from waybill.delivery.core.lanes import HALTING
from waybill.delivery.core.position import Position

#: Offset 100 is committed; 100 and 130 are unsettled, what is below 200 beside them is past; 300 was never attempted.
NOTE = Position(
    epoch=uuid.UUID(int=1),
    released=False,
    sent_to=300,
    settled_to=200,
    unsettled=(100, 130),
    beacon=uuid.UUID(int=2),
)
DURABLE = Past(offset=100, note=NOTE, needs_intent=False)
CAREFUL = replace(DURABLE, needs_intent=True)
PAST, PASSED_OVER, IN_DOUBT, READ, NEVER = 50, 150, 130, 250, 300

ACKED, ACKED_LATE = Told(state=State.ACKNOWLEDGED, version=1), Told(state=State.ACKNOWLEDGED, version=3)
RETRYING, FAILED = Told(state=State.RETRYING, version=2), Told(state=State.FAILED, version=2)
UNTOLD, NO_ROW = Told(), Kept()
ANSWERED = Kept(is_answered=True)


def row(version: int) -> Kept:
    return Kept(version=version)


@pytest.mark.requirement("DC-1", "RS-3")
@pytest.mark.parametrize(
    ("record", "told", "kept", "durable", "careful"),
    [
        # nothing told: it waited, was tried, or was lost; without its row nobody would ever come back to it
        (PAST, UNTOLD, NO_ROW, Need.ROW, Need.AMBIGUOUS),
        (PASSED_OVER, UNTOLD, NO_ROW, Need.ROW, Need.AMBIGUOUS),
        (IN_DOUBT, UNTOLD, NO_ROW, Need.NOTHING, Need.AMBIGUOUS),
        (READ, UNTOLD, NO_ROW, Need.NOTHING, Need.AMBIGUOUS),
        (NEVER, UNTOLD, NO_ROW, Need.NOTHING, Need.NOTHING),
        (PAST, UNTOLD, row(0), Need.NOTHING, Need.AMBIGUOUS),
        # a row that is further than the topic was decided and not told
        (PAST, UNTOLD, row(1), Need.NOTHING, Need.NOTHING),
        (PAST, RETRYING, row(3), Need.NOTHING, Need.NOTHING),
        # an intent that is still there and was answered says it all
        (PAST, UNTOLD, ANSWERED, Need.ROW, Need.ROW),
        (IN_DOUBT, UNTOLD, ANSWERED, Need.NOTHING, Need.NOTHING),
        # to be tried again
        (PAST, RETRYING, NO_ROW, Need.ROW, Need.AMBIGUOUS),
        (PAST, RETRYING, row(1), Need.ROW, Need.AMBIGUOUS),
        (PAST, RETRYING, row(2), Need.NOTHING, Need.AMBIGUOUS),
        (IN_DOUBT, RETRYING, NO_ROW, Need.ROW, Need.AMBIGUOUS),
        # acknowledged: an older row is closed; what is read again must not be taken for new; a repeat must be known
        (PAST, ACKED_LATE, row(2), Need.ROW, Need.ROW),
        (PAST, ACKED_LATE, row(3), Need.NOTHING, Need.NOTHING),
        (PAST, ACKED, NO_ROW, Need.NOTHING, Need.NOTE),
        (PAST, ACKED, ANSWERED, Need.NOTHING, Need.NOTHING),
        (IN_DOUBT, ACKED, NO_ROW, Need.NOTHING, Need.ROW),
        (IN_DOUBT, ACKED_LATE, NO_ROW, Need.ROW, Need.ROW),
        # for people
        (PAST, FAILED, NO_ROW, Need.ROW, Need.ROW),
        (PAST, FAILED, row(1), Need.ROW, Need.ROW),
        (PAST, FAILED, row(2), Need.NOTHING, Need.NOTHING),
    ],
)
def test_what_is_written_of_a_delivery(record: int, told: Told, kept: Kept, durable: Need, careful: Need) -> None:
    assert (needed(DURABLE, record, told, kept), needed(CAREFUL, record, told, kept)) == (durable, careful)


TOLD = st.builds(
    Told, state=st.sampled_from([each for each in State if each is not State.QUEUED]), version=st.integers(1, 4)
) | st.just(UNTOLD)
KEPT = st.builds(Kept, version=st.none() | st.integers(0, 4), is_answered=st.booleans())


@pytest.mark.requirement("DC-1", "AM-1", "GW-12")
@given(st.integers(0, 400), TOLD, KEPT, st.booleans())
def test_nothing_that_is_past_is_without_an_end_or_a_row_and_nothing_careful_is_tried(
    record: int, told: Told, kept: Kept, needs_intent: bool
) -> None:
    past = Past(offset=100, note=NOTE, needs_intent=needs_intent)

    need = needed(past, record, told, kept)

    has_row = kept.version is not None or need in {Need.ROW, Need.AMBIGUOUS}
    assert has_row or told.state is State.ACKNOWLEDGED or not past.is_past(record), "lost"
    is_open = told.state not in {State.ACKNOWLEDGED, State.DELIVERED, *HALTING}
    is_untold = kept.version is not None and kept.version > told.version
    if needs_intent and is_open and past.was_reached(record) and not kept.is_answered and not is_untold:
        assert need is Need.AMBIGUOUS, "it would be tried although it may have acted"
    if need is Need.AMBIGUOUS:
        assert needs_intent, "a destination that deduplicates is asked again"


@given(st.integers(0, 400), TOLD, KEPT, st.booleans())
def test_what_was_written_once_is_not_written_again(record: int, told: Told, kept: Kept, needs_intent: bool) -> None:
    past = Past(offset=100, note=NOTE, needs_intent=needs_intent)
    after = {
        Need.NOTHING: kept,
        Need.ROW: replace(kept, version=told.version),
        Need.AMBIGUOUS: replace(kept, version=told.version + 1),
        Need.NOTE: replace(kept, is_answered=True),
    }

    once = needed(past, record, told, kept)
    twice = needed(past, record, told, after[once])

    assert twice is Need.NOTHING
