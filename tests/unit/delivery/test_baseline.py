"""What a baseline states: a table of lanes, and properties over any history."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.baseline import LaneStart
from waybill.contracts.envelope import GapEntry, Resolution
from waybill.contracts.fabric import Timeouts
from waybill.contracts.states import State
from waybill.delivery.baseline.sending import Letter, judge_answer
from waybill.delivery.core.baseline.stating import SETTLE, Number, check_standing, cut, state_lanes
from waybill.delivery.core.controls.standing import Control, Standing
from waybill.infra.http_client import Answer
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, DeliveryId

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
ONE = "subject/1"


def number(
    sequence: int, state: State, blocks: bool | None = None, *, detail: str | None = None, expires_at: datetime = LATER
) -> Number:
    return Number(
        aggregate=ONE,
        sequence=sequence,
        delivery_id=uuid.UUID(int=sequence),
        state=state,
        detail=detail,
        expires_at=expires_at,
        blocks=blocks,
    )


#: Not acknowledged of 1 to 5; the next one; what is told, as number and resolution.
TABLE: list[tuple[list[Number], int, list[tuple[int, str]]]] = [
    ([], 6, []),
    # Waiting in the log, tried again, handed over.
    ([number(4, State.QUEUED)], 4, []),
    ([number(3, State.RETRYING, True), number(4, State.QUEUED, True), number(5, State.QUEUED)], 3, []),
    ([number(5, State.DELIVERED, True)], 5, []),
    # An end that halts its lane, or whose gap resolution is still to be told.
    ([number(3, State.FAILED, True), number(4, State.QUEUED, True)], 3, []),
    ([number(3, State.DEAD_LETTER, True)], 3, []),
    # An end that the lane went on behind: it may come once more, or never.
    ([number(3, State.FAILED, False)], 6, [(3, "deferred")]),
    ([number(3, State.AMBIGUOUS, False)], 6, [(3, "deferred")]),
    ([number(3, State.DEAD_LETTER, False), number(5, State.RETRYING, True)], 5, [(3, "deferred")]),
    ([number(3, State.FAILED, False, detail="cancelled")], 6, []),
    ([number(3, State.FAILED, False, expires_at=NOW)], 6, []),
    # Redriven: its own row waits, and holds nobody.
    ([number(3, State.QUEUED, False)], 6, [(3, "deferred")]),
    # Its row is gone behind the retention.
    ([number(3, State.FAILED, None, expires_at=NOW)], 6, []),
    ([number(3, State.FAILED, None)], 6, [(3, "deferred")]),
    # Ahead of the head: a new listener was never told.
    ([number(2, State.RETRYING, True), number(4, State.FAILED, False, detail="cancelled")], 2, [(4, "final")]),
    ([number(2, State.RETRYING, True), number(4, State.FAILED, False)], 2, [(4, "deferred")]),
    ([number(5, State.FAILED, False)], 6, [(5, "deferred")]),
]


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize(("numbers", "following", "told"), TABLE)
def test_where_a_lane_goes_on(numbers: list[Number], following: int, told: list[tuple[int, str]]) -> None:
    stated = state_lanes({ONE: 5}, numbers, (), NOW)

    entries = tuple(
        GapEntry(sequence=each, delivery_id=DeliveryId(uuid.UUID(int=each)), resolution=Resolution(resolution))
        for each, resolution in told
    )
    assert stated.lanes == (LaneStart(aggregate=Aggregate(ONE), next=following, told=entries),)
    assert stated.doubts == {}


def test_an_aggregate_whose_first_has_not_passed_needs_no_word() -> None:
    """Else each new aggregate would change the statement while people read it."""
    assert state_lanes({ONE: 2}, [number(1, State.QUEUED)], (), NOW).lanes == ()


@pytest.mark.parametrize(
    ("numbers", "broken"),
    [
        ([number(3, State.AMBIGUOUS, True)], ()),
        ([number(3, State.AMBIGUOUS, True), number(4, State.QUEUED)], ()),
        ([], (ONE,)),
        ([number(3, State.RETRYING, True)], (ONE,)),
    ],
)
def test_nothing_is_stated_of_a_lane_that_nobody_knows(numbers: list[Number], broken: tuple[str, ...]) -> None:
    stated = state_lanes({ONE: 5, "subject/2": 1}, numbers, broken, NOW)

    assert [lane.aggregate for lane in stated.lanes] == ["subject/2"]
    assert stated.doubts.keys() == {ONE}


states = st.tuples(st.sampled_from(State), st.sampled_from([True, False, None]), st.booleans())


@given(st.lists(states, max_size=8))
def test_a_listener_that_begins_there_meets_exactly_what_is_left(
    history: list[tuple[State, bool | None, bool]],
) -> None:
    """Of any history: below next and not told deferred nothing is sent any more; from next on nothing was acknowledged."""
    numbers = [
        number(sequence, state, blocks, expires_at=NOW if is_over else LATER)
        for sequence, (state, blocks, is_over) in enumerate(history, 1)
        if state is not State.ACKNOWLEDGED
    ]
    # Order is kept: nothing is acknowledged behind what has not passed.
    head = next((each.sequence for each in numbers if not each.has_passed), len(history) + 1)
    if any(state is State.ACKNOWLEDGED for state, _, _ in history[head - 1 :]):
        return
    stated = state_lanes({ONE: len(history)} if history else {}, numbers, (), NOW)
    if stated.doubts or not stated.lanes:
        assert stated.doubts or head == 1
        return
    (lane,) = stated.lanes
    deferred = {entry.sequence for entry in lane.told if entry.resolution is Resolution.DEFERRED}
    may_come = {each.sequence for each in numbers if not each.has_passed or (each.expires_at or NOW) > NOW}

    assert lane.next == head
    assert {each for each in may_come if each < lane.next} == {each for each in deferred if each < lane.next}
    assert lane.next not in {entry.sequence for entry in lane.told}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40, unique=True), st.integers(60, 400))
def test_parts_hold_every_aggregate_once_and_in_order(ids: list[int], limit: int) -> None:
    lanes = [LaneStart(aggregate=Aggregate(name), next=2) for name in sorted(f"subject/{each}" for each in ids)]

    parts = cut(lanes, limit)

    told = [lane["aggregate"] for part in parts for lane in json.loads(part)["lanes"]]
    assert told == [lane.aggregate for lane in lanes]
    assert all(len(part) <= limit for part in parts)


def test_a_lane_that_is_too_much_for_a_part_is_named() -> None:
    entry = GapEntry(sequence=1, delivery_id=DeliveryId(uuid.UUID(int=1)), resolution=Resolution.DEFERRED)

    with pytest.raises(ConfigError, match="subject/1 has 1 deliveries"):
        cut([LaneStart(aggregate=Aggregate(ONE), next=2, told=(entry,))], 100)


def test_there_must_be_something_to_state() -> None:
    with pytest.raises(ConfigError, match="begins with 1"):
        cut([])


TIMEOUTS = Timeouts(total_s=20.0)
LONG_AGO = timedelta(seconds=20) + SETTLE


@pytest.mark.parametrize("standing", [Standing.PAUSED, Standing.DRAINING, Standing.CLOSED])
@pytest.mark.parametrize(("since", "is_fine"), [(LONG_AGO, True), (LONG_AGO - timedelta(milliseconds=1), False)])
def test_a_pause_must_have_settled(standing: Standing, since: timedelta, is_fine: bool) -> None:
    control = Control(tenant="acme", destination="crm", standing=standing, at=NOW - since, by="ann", reason="restore")

    if is_fine:
        check_standing(control, TIMEOUTS, NOW)
    else:
        with pytest.raises(ConfigError, match="try again in"):
            check_standing(control, TIMEOUTS, NOW)


def test_a_destination_that_is_attempted_is_refused() -> None:
    running = Control(tenant="acme", destination="crm", at=NOW - LONG_AGO, by="ann", reason="resumed")
    for control in (None, running):
        with pytest.raises(ConfigError, match="destinations pause"):
            check_standing(control, TIMEOUTS, NOW)


LETTER = Letter(part=1, part_id="p1", digest="sha256:aa", evidence="urn:waybill:baseline:b1", body=b"{}")
RECEIPT: dict[str, Any] = {
    "status": "done",
    "delivery_id": "p1",
    "digest": "sha256:aa",
    "evidence": "urn:waybill:baseline:b1",
    "source_version": "staged",
}


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, RECEIPT, "staged"),
        (200, RECEIPT | {"source_version": "applied"}, "applied"),
        # A receipt of something else, of other data, or one that any listener would give.
        (200, RECEIPT | {"delivery_id": "p2"}, "refused"),
        (200, RECEIPT | {"digest": "sha256:bb"}, "refused"),
        (200, RECEIPT | {"evidence": "urn:waybill:baseline:b2"}, "refused"),
        (200, RECEIPT | {"source_version": "1"}, "refused"),
        (200, {}, "refused"),
        (200, [], "refused"),
        (204, RECEIPT, "refused"),
        (409, {"type": "urn:waybill:error:VERSION_CONFLICT", "reason": "baseline_nonce"}, "refused"),
        (503, {}, "refused"),
    ],
)  # fmt: skip
def test_only_a_receipt_of_this_part_says_that_it_was_taken(status: int, body: object, outcome: str) -> None:
    said = judge_answer(LETTER, Answer(status, json.dumps(body).encode(), None))

    assert (said.outcome, said.is_taken) == (outcome, outcome != "refused")


def test_why_a_part_was_refused_is_told() -> None:
    body = b'{"type":"urn:waybill:error:VERSION_CONFLICT","reason":"baseline_nonce"}'

    assert judge_answer(LETTER, Answer(409, body, None)).detail == "409 VERSION_CONFLICT baseline_nonce"
