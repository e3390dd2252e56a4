"""What an answer to a status query proves: profile by time by answer, and what is not believed."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.fabric import Profile, Proof, RetryPolicy
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.contracts.status_query import Said, StatusAnswer, render_status_answer
from waybill.delivery.core.asking import Close, Doubt, Heard, Later, Next, Resend, Terms, first_due, follow, hear
from waybill.delivery.core.repeats import RepeatRule

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
GRACE, SETTLE = timedelta(seconds=25), timedelta(minutes=10)
SETTLED = SINCE + GRACE + SETTLE
POLICY = RetryPolicy(base_s=1.0, cap_s=60.0)
DURABLE, BOUNDED, NEVER = Profile.DURABLE_IDEMPOTENT, Profile.BOUNDED_DEDUPLICATION, Profile.NON_IDEMPOTENT
QUERY, DELIVERY = "6b1f8f6c-5d6e-5b0c-8a55-0d6c1ad0a7f3", "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
RECEIPT = Receipt(status=ReceiptStatus.DONE, source_version="7", count=1, evidence="crm:1", delivery_id=DELIVERY)


def terms(profile: Profile) -> Terms:
    rule = RepeatRule(profile=profile, max_attempts=3, max_age=timedelta(hours=1), not_done=frozenset())
    return Terms(rule=rule, policy=POLICY, settle_after=SETTLE, grace=GRACE)


def doubt(*, life: timedelta = timedelta(days=1), sends: int = 1, age: timedelta = timedelta(0)) -> Doubt:
    return Doubt(delivery_id=DELIVERY, since=SINCE, expires_at=SINCE + life, sends=sends, first_sent_at=SINCE - age)


def told(step: Next) -> str:
    match step:
        case Close():
            return "acknowledged"
        case Resend():
            return "again"
        case Later():
            return "ask"


EARLY, LATE = SETTLED - timedelta(milliseconds=1), SETTLED
#: What was said and when it was asked, then what follows at: durable, bounded within its bound, bounded beyond, never.
TABLE = {
    "done at once": (Said.DONE, SINCE, "acknowledged", "acknowledged", "acknowledged", "acknowledged"),
    "done when settled": (Said.DONE, LATE, "acknowledged", "acknowledged", "acknowledged", "acknowledged"),
    "not done, asked too early": (Said.NOT_DONE, EARLY, "ask", "ask", "ask", "ask"),
    "not done, settled": (Said.NOT_DONE, LATE, "again", "again", "ask", "again"),
    "absent, asked too early": (Said.ABSENT, EARLY, "ask", "ask", "ask", "ask"),
    "absent, settled": (Said.ABSENT, LATE, "acknowledged", "acknowledged", "acknowledged", "acknowledged"),
    "in progress at once": (Said.IN_PROGRESS, SINCE, "ask", "ask", "ask", "ask"),
    "in progress when settled": (Said.IN_PROGRESS, LATE, "ask", "ask", "ask", "ask"),
    "nothing believed at once": (None, SINCE, "ask", "ask", "ask", "ask"),
    "nothing believed when settled": (None, LATE, "ask", "ask", "ask", "ask"),
}


@pytest.mark.requirement("AM-1", "AM-2", "AM-4", "GW-11", "GW-12")
@pytest.mark.parametrize(("said", "asked_at", "durable", "within", "beyond", "never"), TABLE.values(), ids=TABLE)
def test_what_follows_an_answer(
    said: Said | None, asked_at: datetime, durable: str, within: str, beyond: str, never: str
) -> None:
    heard = Heard(said=said, detail="said")
    spent = [doubt(sends=3), doubt(sends=2, age=timedelta(hours=1))]

    def follows(profile: Profile, what: Doubt) -> str:
        return told(follow(terms(profile), what, heard, asked_at, asked_at + timedelta(seconds=1)))

    assert follows(DURABLE, doubt()) == durable
    assert follows(BOUNDED, doubt()) == within
    assert [follows(BOUNDED, what) for what in spent] == [beyond, beyond]
    assert follows(NEVER, doubt()) == never


@pytest.mark.requirement("AM-1", "DC-8")
@pytest.mark.parametrize("profile", Profile)
def test_what_was_not_done_is_not_sent_after_its_expiry_and_never_reported_as_failed(profile: Profile) -> None:
    heard = Heard(said=Said.NOT_DONE, detail="not_done")

    step = follow(terms(profile), doubt(life=SETTLE), heard, LATE, LATE)

    assert told(step) == "ask"


@pytest.mark.requirement("RS-6", "AM-2")
def test_the_wait_grows_with_the_doubt_and_ends_no_later_than_it_can_be_settled() -> None:
    heard = Heard(said=None, detail="http_503")

    def wait_s(age: timedelta) -> float:
        step = follow(terms(NEVER), doubt(), heard, SINCE + age, SINCE + age)
        assert isinstance(step, Later)
        return (step.due - SINCE - age).total_seconds()

    assert first_due(POLICY, SINCE) == SINCE + timedelta(seconds=1)
    assert 0.5 <= wait_s(timedelta(0)) <= 1.0
    assert 10.0 <= wait_s(timedelta(seconds=20)) <= 20.0
    assert 30.0 <= wait_s(timedelta(days=7)) <= 60.0
    assert wait_s(GRACE + SETTLE - timedelta(seconds=5)) == 5.0


@given(
    age=st.timedeltas(timedelta(0), timedelta(days=40)),
    said=st.sampled_from([*Said, None]),
    profile=st.sampled_from(Profile),
)
def test_nothing_is_sent_again_before_it_is_settled_and_what_waits_is_asked_later(
    age: timedelta, said: Said | None, profile: Profile
) -> None:
    now = SINCE + age
    step = follow(terms(profile), doubt(), Heard(said=said, detail=""), now, now)

    if isinstance(step, Resend):
        assert SETTLED <= now < SINCE + timedelta(days=1)
    if isinstance(step, Later):
        assert now < step.due <= now + timedelta(seconds=60)


def answer(said: Said, *, query: str = QUERY, delivery: str = DELIVERY, receipt: Receipt | None = None) -> bytes:
    return render_status_answer(StatusAnswer(query_id=query, delivery_id=delivery, said=said, receipt=receipt))


OTHER = Receipt(status=ReceiptStatus.DONE, source_version="7", count=1, evidence="crm:1", delivery_id=QUERY)
PART = Receipt(status=ReceiptStatus.PARTIAL, source_version="7", count=1, evidence="crm:1")
#: Status and body, then what is believed where the proof is a receipt, and where it is a status.
ANSWERS = {
    "done": (200, answer(Said.DONE, receipt=RECEIPT), "done", "done"),
    "done without a receipt": (200, answer(Said.DONE), "receipt_without_status", "done"),
    "done, evidence missing": (
        200,
        answer(Said.DONE, receipt=Receipt(status=ReceiptStatus.DONE, source_version="7", count=1)),
        "receipt_without_evidence",
        "done",
    ),
    "done in part": (200, answer(Said.DONE, receipt=PART), "partial", "done"),
    "done, receipt of another": (200, answer(Said.DONE, receipt=OTHER), "receipt_of_another_delivery", "done"),
    "not done": (200, answer(Said.NOT_DONE), "not_done", "not_done"),
    "in progress": (200, answer(Said.IN_PROGRESS), "in_progress", "in_progress"),
    "an answer to another question": (200, answer(Said.NOT_DONE, query=DELIVERY), "answer_to_another_question", None),
    "about another delivery": (200, answer(Said.NOT_DONE, delivery=QUERY), "answer_to_another_question", None),
    "an answer to nobody's question": (200, b'{"status":"not_done"}', "answer_unreadable", None),
    "a receipt instead": (200, b'{"status":"done","source_version":"1","count":1}', "answer_unreadable", None),
    "an empty 200": (200, b"", "answer_unreadable", None),
    "a page of a proxy": (200, b"<html>", "answer_unreadable", None),
    "a bare 404": (404, b"", "http_404", None),
    "a document with 404": (404, answer(Said.NOT_DONE), "http_404", None),
    "a redirect": (302, answer(Said.NOT_DONE), "http_302", None),
    "a conflict": (409, b"{}", "http_409", None),
    "no authority": (401, b"{}", "http_401", None),
    "broken": (503, b"", "http_503", None),
    "accepted": (202, answer(Said.DONE, receipt=RECEIPT), "http_202", None),
}


@pytest.mark.requirement("AM-2", "DC-3", "DC-17")
@pytest.mark.parametrize(("status", "body", "with_receipt", "by_status"), ANSWERS.values(), ids=ANSWERS)
def test_only_an_answer_that_names_question_and_delivery_is_believed(
    status: int, body: bytes, with_receipt: str, by_status: str | None
) -> None:
    def heard(proof: Proof) -> Heard:
        return hear(status, body, query_id=QUERY, delivery_id=DELIVERY, proof=proof)

    believed = set(Said)
    for proof, expected in ((Proof.RECEIPT, with_receipt), (Proof.STATUS, by_status or with_receipt)):
        found = heard(proof)
        assert found.detail == expected
        assert found.said == (Said(expected) if expected in believed else None)
        assert (found.http_status, len(found.answer_sha256 or "")) == (status, 64)
    assert (heard(Proof.RECEIPT).proven is not None) == (with_receipt == "done")


GONE = replace(RECEIPT, status=ReceiptStatus.ABSENT, count=0)
#: What an answer says, then what is believed of it where absence was declared to prove, and where it was not.
ABSENCES = {
    "absent, with its proof": (answer(Said.ABSENT, receipt=GONE), "absent", None),
    "absent, by its word alone": (answer(Said.ABSENT), None, None),
    "absent, evidence missing": (answer(Said.ABSENT, receipt=replace(GONE, evidence=None)), None, None),
    "absent, receipt of another": (answer(Said.ABSENT, receipt=replace(GONE, delivery_id=QUERY)), None, None),
    "absent, yet something was counted": (answer(Said.ABSENT, receipt=replace(GONE, count=1)), None, None),
    "absent, the receipt says done": (answer(Said.ABSENT, receipt=RECEIPT), None, None),
    "done: it was absent when it was executed": (answer(Said.DONE, receipt=GONE), "done", None),
}


@pytest.mark.requirement("AM-4")
@pytest.mark.parametrize("proof", Proof)
@pytest.mark.parametrize(("body", "declared", "undeclared"), ABSENCES.values(), ids=ABSENCES)
def test_absence_proves_only_with_evidence_and_where_it_was_declared(
    body: bytes, declared: str | None, undeclared: str | None, proof: Proof
) -> None:
    for absence_proves, expected in ((True, declared), (False, undeclared)):
        asked = {"query_id": QUERY, "delivery_id": DELIVERY, "proof": proof, "absence_proves": absence_proves}
        heard = hear(200, body, **asked)  # type: ignore[arg-type]
        assert heard.said == (None if expected is None else Said(expected))
        assert (heard.proven is not None) == (expected is not None)


def test_what_a_destination_says_in_words_is_not_kept() -> None:
    canary = "8f14e45f-secret"
    body = json.dumps({"query_id": canary, "delivery_id": canary, "status": canary}).encode()

    assert canary not in str(hear(200, body, query_id=QUERY, delivery_id=DELIVERY, proof=Proof.RECEIPT))
