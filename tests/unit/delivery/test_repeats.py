"""What may be repeated: profile by phase by answer, and what an unanswered attempt allows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.fabric import Profile, RetryPolicy
from waybill.contracts.states import Move
from waybill.delivery.core.answered import as_document, read_document
from waybill.delivery.core.classify import Failure, Proven, Verdict, judge_failure, judge_status
from waybill.delivery.core.records import Try
from waybill.delivery.core.repeats import Asks, Lost, Prior, RepeatRule, Send, resume
from waybill.delivery.core.retry import Again, End, History, decide
from waybill.kernel.errors import ContractError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy(base_s=1.0, cap_s=60.0)
DURABLE, BOUNDED, NEVER = Profile.DURABLE_IDEMPOTENT, Profile.BOUNDED_DEDUPLICATION, Profile.NON_IDEMPOTENT
GRACE = timedelta(seconds=25)


def rule(profile: Profile, *, not_done: frozenset[int] = frozenset({503})) -> RepeatRule:
    return RepeatRule(profile=profile, max_attempts=3, max_age=timedelta(minutes=10), not_done=not_done)


def history(*, sends: int, age: timedelta = timedelta(0), acted: bool = False, left_s: float = 86_400.0) -> History:
    return History(
        delivery_id="d",
        attempts=sends,
        sent=sends > 1,
        may_have_acted=acted,
        expires_at=NOW + timedelta(seconds=left_s),
        is_row=True,
        fresh_from=NOW,
        sends=sends,
        first_sent_at=NOW - age if sends else None,
    )


def told(profile: Profile, verdict: Verdict, past: History) -> str:
    decision = decide(POLICY, rule(profile), past, verdict, NOW)
    return "again" if isinstance(decision, Again) else decision.move.value


#: The end of the attempt, then what follows at each profile: durable, bounded within its bound, bounded beyond, never.
TABLE = {
    "refused connection": (judge_failure(Failure.CONNECT), "again", "again", "again", "again"),
    "connect timeout": (judge_failure(Failure.CONNECT_TIMEOUT), "again", "again", "again", "again"),
    "no free connection": (judge_failure(Failure.POOL_TIMEOUT), "again", "again", "again", "again"),
    "write error": (judge_failure(Failure.WRITE), "again", "again", "lose_track", "lose_track"),
    "reset": (judge_failure(Failure.READ), "again", "again", "lose_track", "lose_track"),
    "no answer in time": (judge_failure(Failure.TIMEOUT), "again", "again", "lose_track", "lose_track"),
    "not HTTP": (judge_failure(Failure.ANSWER), "fail", "lose_track", "lose_track", "lose_track"),
    "anything else": (judge_failure(Failure.UNKNOWN), "lose_track", "lose_track", "lose_track", "lose_track"),
    "502": (judge_status(502), "again", "again", "lose_track", "lose_track"),
    "504": (judge_status(504), "again", "again", "lose_track", "lose_track"),
    "500": (judge_status(500), "again", "again", "lose_track", "lose_track"),
    "503, declared as not done": (judge_status(503), "again", "again", "lose_track", "again"),
    "429, not declared": (judge_status(429), "again", "again", "lose_track", "lose_track"),
    "400": (judge_status(400), "fail", "fail", "fail", "fail"),
    "409": (judge_status(409), "fail", "fail", "fail", "fail"),
    "410": (judge_status(410), "fail", "fail", "fail", "fail"),
    "bare 200": (judge_status(200), "fail", "lose_track", "lose_track", "lose_track"),
    "202": (judge_status(202), "fail", "lose_track", "lose_track", "lose_track"),
    "302": (judge_status(302), "fail", "fail", "fail", "fail"),
}


@pytest.mark.requirement("GW-9", "GW-11", "GW-12", "AM-1", "AM-5", "ET-2", "ET-3")
@pytest.mark.parametrize(("verdict", "durable", "within", "beyond", "never"), TABLE.values(), ids=TABLE)
def test_what_follows_an_attempt(verdict: Verdict, durable: str, within: str, beyond: str, never: str) -> None:
    sends = 0 if verdict.phase is Phase.BEFORE_SENDING else 1
    spent = history(sends=3 * sends, acted=False)

    assert [
        told(DURABLE, verdict, history(sends=sends)),
        told(BOUNDED, verdict, history(sends=sends)),
        told(BOUNDED, verdict, spent),
        told(NEVER, verdict, history(sends=sends)),
    ] == [durable, within, beyond, never]


@pytest.mark.requirement("GW-11")
def test_a_bounded_destination_is_not_asked_again_after_its_age() -> None:
    young, old = timedelta(minutes=9), timedelta(minutes=10)

    assert told(BOUNDED, judge_status(502), history(sends=1, age=young)) == "again"
    assert told(BOUNDED, judge_status(502), history(sends=1, age=old)) == "lose_track"


@pytest.mark.requirement("GW-11")
def test_the_age_counts_where_the_next_attempt_would_start_not_where_the_last_one_ended() -> None:
    late = judge_status(503, retry_after_s=600.0)

    assert told(BOUNDED, late, history(sends=1, age=timedelta(seconds=1))) == "lose_track"


@pytest.mark.requirement("AM-1")
@pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
def test_a_refusal_after_an_attempt_that_may_have_acted_is_not_the_end_of_it(status: int) -> None:
    acted = history(sends=2, acted=True)

    assert told(BOUNDED, judge_status(status), acted) == "lose_track"
    assert told(DURABLE, judge_status(status), acted) == ("lose_track" if status == 410 else "fail")


def test_only_a_durable_destination_is_tried_again_at_once() -> None:
    fresh = [
        decide(POLICY, rule(profile), _in_memory(), judge_failure(Failure.CONNECT), NOW)
        for profile in (DURABLE, BOUNDED, NEVER)
    ]

    assert [isinstance(again, Again) and again.is_hot for again in fresh] == [True, False, False]


def _in_memory() -> History:
    return History(
        delivery_id="d",
        attempts=0,
        sent=False,
        may_have_acted=False,
        expires_at=NOW + timedelta(days=1),
        is_row=False,
        fresh_from=NOW,
    )


@pytest.mark.requirement("AM-1", "GW-12")
def test_an_unanswered_attempt_at_a_destination_that_cannot_repeat_is_never_made_again() -> None:
    for waited in (timedelta(0), timedelta(days=300)):
        assert isinstance(_resume(NEVER, sends=1, waited=waited), Lost)


@pytest.mark.requirement("GW-11")
def test_an_unanswered_attempt_is_repeated_within_the_bound_and_only_when_it_is_surely_over() -> None:
    assert _resume(BOUNDED, sends=1, waited=timedelta(seconds=5)) == Asks(NOW - timedelta(seconds=5) + GRACE)
    assert isinstance(_resume(BOUNDED, sends=1, waited=GRACE), Send)
    assert isinstance(_resume(BOUNDED, sends=3, waited=GRACE), Lost)
    assert isinstance(_resume(BOUNDED, sends=1, waited=timedelta(minutes=10)), Lost)


@pytest.mark.requirement("DC-8", "AM-1")
@pytest.mark.parametrize("profile", [BOUNDED, NEVER])
def test_an_expired_delivery_with_an_unanswered_attempt_is_ambiguous(profile: Profile) -> None:
    assert isinstance(_resume(profile, sends=1, waited=timedelta(0), is_expired=True), Lost)


def _resume(profile: Profile, *, sends: int, waited: timedelta, is_expired: bool = False) -> object:
    prior = Prior(sends=sends, first_sent_at=NOW - waited, last_sent_at=NOW - waited)
    return resume(rule(profile), prior, NOW, GRACE, is_expired=is_expired)


codes = st.none() | st.sampled_from(ErrorCode)
verdicts = st.builds(
    Verdict,
    code=codes,
    phase=st.sampled_from(Phase),
    detail=st.none() | st.text(max_size=10),
    may_have_acted=st.booleans(),
    http_status=st.none() | st.integers(100, 599),
    proven=st.none() | st.builds(Proven, status=st.just("done"), source_version=st.text(max_size=5)),
    retry_after_s=st.none() | st.floats(0, 100),
    expected_sequence=st.none() | st.integers(1, 2**31 - 1),
    accepted_for_s=st.none(),
)


@pytest.mark.requirement("GW-12")
@given(verdicts, st.integers(0, 5), st.frozensets(st.sampled_from([429, 503])))
def test_nothing_that_may_have_acted_is_followed_by_another_attempt_where_that_cannot_be_borne(
    verdict: Verdict, sends: int, not_done: frozenset[int]
) -> None:
    past = history(sends=sends)
    decision = decide(POLICY, rule(NEVER, not_done=not_done), past, verdict, NOW)

    if verdict.code is not None and verdict.may_have_acted and verdict.phase is not Phase.BEFORE_SENDING:
        assert isinstance(decision, End)
        assert decision.move is Move.LOSE_TRACK


@given(verdicts)
def test_an_answer_is_read_back_as_it_was_with_the_epoch_it_was_given_under(verdict: Verdict) -> None:
    attempt = Try(2, 1000, 1500, "ab" * 32)

    found, read = read_document(as_document(verdict, attempt), "e-1")

    assert (found, read) == (verdict, attempt._replace(epoch="e-1"))


@pytest.mark.parametrize("change", [{"form": 2}, {"code": "NEW"}, {"number": None}])
def test_an_answer_of_an_unknown_form_is_refused(change: dict[str, object]) -> None:
    document = as_document(judge_status(503), Try(1, 1, 2, "x")) | change
    if change.get("number", 0) is None:
        del document["number"]

    with pytest.raises(ContractError):
        read_document(document, "e")


#: Attempts before, their age, then whether one that is written down may be made at: durable, bounded, never.
WAITED = {
    "a first one, however late": (0, timedelta(days=1), True, True, True),
    "within count and age": (2, timedelta(minutes=9), True, True, True),
    "waited past the age": (1, timedelta(minutes=10), True, False, True),
    "beyond the count": (3, timedelta(minutes=1), True, False, True),
}


@pytest.mark.requirement("GW-11")
@pytest.mark.parametrize(("sends", "age", "durable", "bounded", "never"), WAITED.values(), ids=WAITED)
def test_an_attempt_that_waited_for_its_turn_is_made_only_while_it_is_remembered(
    sends: int, age: timedelta, durable: bool, bounded: bool, never: bool
) -> None:
    found = [rule(profile).bears(sends, NOW - age, NOW) for profile in (DURABLE, BOUNDED, NEVER)]

    assert found == [durable, bounded, never]
