"""When a delivery is tried again, and what it becomes when it is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.fabric import Profile, RetryPolicy
from waybill.contracts.states import TRANSITIONS, Move, State
from waybill.delivery.core.classify import Failure, Verdict, judge_failure, judge_status
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.retry import Again, End, History, backoff_s, decide, expired, moved
from waybill.kernel.errors import InvariantBroken

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy(base_s=1.0, cap_s=600.0, hot_attempts=3)
DURABLE = RepeatRule(profile=Profile.DURABLE_IDEMPOTENT, max_attempts=1, max_age=timedelta(0), not_done=frozenset())


def history(
    attempts: int = 0,
    *,
    is_row: bool = False,
    acted: bool = False,
    left: timedelta = timedelta(days=1),
    fresh_from: datetime = NOW,
) -> History:
    return History(
        delivery_id="d",
        attempts=attempts,
        sent=acted,
        may_have_acted=acted,
        expires_at=NOW + left,
        is_row=is_row,
        fresh_from=fresh_from,
    )


@pytest.mark.requirement("DC-19")
@given(attempts=st.integers(1, 10_000), delivery=st.uuids().map(str))
def test_every_delay_lies_between_zero_and_the_capped_exponential(attempts: int, delivery: str) -> None:
    assert 0 <= backoff_s(POLICY, delivery, attempts) <= min(600.0, 2.0 ** min(attempts - 1, 40))


@pytest.mark.requirement("DC-19")
def test_two_hundred_deliveries_do_not_fire_in_one_instant() -> None:
    delays = {round(backoff_s(POLICY, f"delivery-{n}", 5), 3) for n in range(200)}

    assert len(delays) > 190


def test_the_first_tries_stay_in_memory_then_a_row_takes_over() -> None:
    hot = [decide(POLICY, DURABLE, history(n), judge_status(503), NOW) for n in range(5)]

    assert [isinstance(again, Again) and again.is_hot for again in hot] == [True, True, True, False, False]


def test_a_delivery_that_is_a_row_is_never_hot() -> None:
    again = decide(POLICY, DURABLE, history(0, is_row=True), judge_status(503), NOW)

    assert isinstance(again, Again)
    assert not again.is_hot


@pytest.mark.requirement("GW-10")
def test_retry_after_is_a_floor_and_goes_to_a_row_at_once() -> None:
    again = decide(POLICY, DURABLE, history(), judge_status(429, retry_after_s=90), NOW)

    jitter = timedelta(seconds=backoff_s(POLICY, "d", 1))
    assert again == Again(due=NOW + timedelta(seconds=90) + jitter, is_hot=False)


@pytest.mark.requirement("GW-10", "DC-8")
def test_nothing_is_due_after_expiry() -> None:
    again = decide(POLICY, DURABLE, history(left=timedelta(seconds=5)), judge_status(429, retry_after_s=90), NOW)

    assert again == Again(due=NOW + timedelta(seconds=5), is_hot=False)


@pytest.mark.requirement("GW-3")
@given(ms=st.integers(0, 999), attempts=st.integers(0, 3), delivery=st.uuids().map(str))
def test_no_retry_is_due_in_the_second_of_the_try_before_and_the_spread_stays(
    ms: int, attempts: int, delivery: str
) -> None:
    now = NOW + timedelta(milliseconds=ms)
    fresh_from = NOW + timedelta(seconds=1)
    quick = RetryPolicy(base_s=0.1, cap_s=0.5)

    again = decide(
        quick, DURABLE, replace(history(attempts, fresh_from=fresh_from), delivery_id=delivery), judge_status(503), now
    )

    assert isinstance(again, Again)
    assert again.due >= fresh_from
    wait = timedelta(seconds=backoff_s(quick, delivery, attempts + 1))
    assert again.due - now - wait in {timedelta(0), timedelta(seconds=1)}


@pytest.mark.requirement("GW-3", "DC-8")
def test_waiting_for_another_second_never_passes_expiry() -> None:
    near = history(left=timedelta(milliseconds=500), fresh_from=NOW + timedelta(seconds=1))

    again = decide(RetryPolicy(base_s=0.01, cap_s=0.01), DURABLE, near, judge_status(503), NOW)

    assert again == Again(due=NOW + timedelta(milliseconds=500), is_hot=False)


@pytest.mark.requirement("DC-8")
def test_expiry_is_a_refusal_only_when_no_byte_left() -> None:
    assert expired(sent=False) == End(move=Move.FAIL, code=ErrorCode.POLICY_BLOCK, detail="expired")
    assert expired(sent=True) == End(move=Move.LOSE_TRACK, code=ErrorCode.AMBIGUOUS_RESULT, detail="expired")


@pytest.mark.parametrize(
    ("verdict", "acted", "move"),
    [
        (Verdict(code=None, phase=Phase.AFTER_SENDING), False, Move.ACKNOWLEDGE),
        (judge_status(409), False, Move.FAIL),
        (judge_status(410), False, Move.FAIL),
        (judge_status(410), True, Move.LOSE_TRACK),  # an earlier try may have acted
        (judge_failure(Failure.UNKNOWN), False, Move.LOSE_TRACK),  # not classified: not retried (ET-3)
        (judge_failure(Failure.ANSWER), False, Move.FAIL),
    ],
)
def test_what_is_not_retried_ends(verdict: Verdict, acted: bool, move: Move) -> None:
    end = decide(POLICY, DURABLE, history(acted=acted), verdict, NOW)

    assert isinstance(end, End)
    assert end.move is move


@pytest.mark.requirement("RS-2")
@given(state=st.sampled_from(State), move=st.sampled_from(Move))
def test_a_move_outside_the_table_is_refused(state: State, move: Move) -> None:
    if (state, move) in TRANSITIONS:
        assert moved(state, move) is TRANSITIONS[state, move]
    else:
        with pytest.raises(InvariantBroken):
            moved(state, move)
