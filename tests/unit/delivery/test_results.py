"""Which results are believed, and which of them move the delivery they are about."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import Profile, ResultSource, RetryPolicy
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.contracts.result import Result, parse_result, render_result
from waybill.contracts.states import Move, State
from waybill.crypto.keys import Algorithm, KeyRecord, Secret
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.delivery.core.answer import accepted
from waybill.delivery.core.answered import as_document, read_document
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.records import Try
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.results.believing import Arrived, Heard, Refused, hear, signature_of, tell_apart
from waybill.delivery.core.results.weighing import NO_RESULT, moves
from waybill.delivery.core.retry import Again, Await, End, History, decide
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant
from waybill.listener.results import sign_result

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ACME, CRM = Tenant("acme"), DestinationName("crm")
DONE = Receipt(status=ReceiptStatus.DONE, source_version="7", count=1, evidence="crm:1")
RESULT = Result(
    result_id=uuid.UUID(int=1),
    tenant=ACME,
    destination=CRM,
    aggregate=Aggregate("unit/1"),
    delivery_id=DeliveryId(uuid.UUID(int=2)),
    stated_at=NOW,
    receipt=DONE,
)


def key(seed: int) -> KeyRecord:
    return KeyRecord(
        key_id=f"k{seed}",
        algorithm=Algorithm.ED25519,
        secret=Secret(bytes([seed]) * 32),
        not_before=NOW - timedelta(days=30),
        not_after=None,
    )


KEYS = VerificationKeys.from_text(key(1).public_text())


def sent(result: Result, *, seed: int = 1, signed_at: datetime = NOW, at: datetime = NOW) -> Arrived:
    signed = sign_result(result, Signer([key(seed)]), signed_at)
    return Arrived(offset=5, signed=signature_of(signed.headers), body=signed.body, at=at)


def heard(arrived: Arrived) -> Heard | Refused:
    return hear(arrived, KEYS, ACME, CRM)


def _signed(body: bytes, webhook_id: str = "x") -> Arrived:
    timestamp = int(NOW.timestamp())
    headers = (
        ("webhook-id", webhook_id.encode()),
        ("webhook-timestamp", str(timestamp).encode()),
        ("webhook-signature", Signer([key(1)]).sign(webhook_id, timestamp, body).encode()),
    )
    return Arrived(offset=5, signed=signature_of(headers), body=body, at=NOW)


def _under_another_id() -> Arrived:
    return _signed(render_result(RESULT), str(uuid.UUID(int=7)))


#: What is done to the true result → why it is refused.
FORGED: dict[str, tuple[Callable[[], Arrived], str]] = {
    "another destination's key": (lambda: sent(RESULT, seed=2), "signature_mismatch"),
    "another tenant's result": (lambda: sent(replace(RESULT, tenant=Tenant("globex"))), "tenant"),
    "another destination's result": (lambda: sent(replace(RESULT, destination=DestinationName("cad"))), "destination"),
    "one byte changed": (lambda: replace(sent(RESULT), body=sent(RESULT).body.replace(b"crm:1", b"crm:2")), "signature_mismatch"),
    "no signature": (lambda: replace(sent(RESULT), signed=signature_of(())), "missing_header"),
    "signed under another id": (_under_another_id, "id_mismatch"),
    "signed, and no result": (lambda: _signed(b"{}"), "unreadable"),
    "without evidence": (lambda: sent(replace(RESULT, receipt=replace(DONE, evidence=None))), "receipt_without_evidence"),
    "without version": (lambda: sent(replace(RESULT, receipt=replace(DONE, source_version=None))), "receipt_without_source_version"),
    "without count and digest": (lambda: sent(replace(RESULT, receipt=replace(DONE, count=None))), "receipt_without_count"),
    "of another delivery": (lambda: sent(replace(RESULT, receipt=replace(DONE, delivery_id=str(uuid.UUID(int=9))))), "receipt_of_another_delivery"),
}  # fmt: skip


@pytest.mark.requirement("DC-10", "DC-17", "DC-18")
@pytest.mark.parametrize(("forge", "reason"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_or_incomplete_result_is_refused_and_says_why(forge: Callable[[], Arrived], reason: str) -> None:
    assert heard(forge()) == Refused(reason=reason)


def test_a_header_that_is_there_twice_counts_as_absent() -> None:
    signed = sign_result(RESULT, Signer([key(1)]), NOW)

    assert signature_of((*signed.headers, signed.headers[0])).webhook_id is None


@pytest.mark.requirement("CK-3")
@pytest.mark.parametrize(("skew", "is_flagged"), [(timedelta(minutes=4), False), (timedelta(hours=2), True), (timedelta(hours=-2), True)])  # fmt: skip
def test_a_wrong_clock_flags_a_result_and_refuses_nothing(skew: timedelta, is_flagged: bool) -> None:
    found = heard(sent(RESULT, signed_at=NOW - skew))

    assert isinstance(found, Heard)
    assert (found.is_quarantined, found.skew) == (is_flagged, skew)
    assert found.verdict.is_proven
    assert found.verdict.detail == ("clock_is_wrong" if is_flagged else None)


@pytest.mark.requirement("RS-2", "RS-5")
@pytest.mark.parametrize("state", list(State))
def test_what_a_proof_and_a_failure_move(state: State) -> None:
    failure = Verdict(code=ErrorCode.POLICY_BLOCK, phase=NO_RESULT.phase)

    proof_moves = state in {State.QUEUED, State.RETRYING, State.DELIVERED, State.AMBIGUOUS}
    assert moves(state, Verdict(code=None, phase=NO_RESULT.phase)) is proof_moves
    assert moves(state, failure) is (state is State.DELIVERED)


def test_a_failure_is_judged_as_its_code_says() -> None:
    problem = Problem(code=ErrorCode.POLICY_BLOCK, reason="legal_hold", detail="never recorded")

    found = heard(sent(replace(RESULT, receipt=None, problem=problem)))

    assert isinstance(found, Heard)
    assert (found.verdict.code, found.verdict.detail, found.verdict.may_have_acted) == (
        ErrorCode.POLICY_BLOCK,
        "legal_hold",
        False,
    )


@pytest.mark.requirement("DC-12")
def test_what_was_said_before_is_refused_wherever_it_lies() -> None:
    one, two = sent(RESULT), replace(sent(RESULT), offset=6)
    said = heard(one)
    taken = [(one, said), (two, said), (replace(one, offset=7), Refused(reason="unreadable"))]

    def reasons(known: dict[str, tuple[int, int]]) -> list[str | None]:
        entries = tell_apart(taken, known, partition=0)
        return [entry.taken.reason if isinstance(entry.taken, Refused) else None for entry in entries]

    assert reasons({}) == [None, "replayed", "unreadable"]
    assert reasons({str(RESULT.result_id): (1, 5)}) == ["replayed", "replayed", "unreadable"]
    assert reasons({str(RESULT.result_id): (0, 5)}) == [None, "replayed", "unreadable"], "read again after a crash"


def _decide(profile: Profile, verdict: Verdict) -> Again | Await | End:
    rule = RepeatRule(profile=profile, max_attempts=2, max_age=timedelta(minutes=1), not_done=frozenset({503}))
    history = History(
        delivery_id=str(uuid.UUID(int=2)),
        attempts=1,
        sent=True,
        may_have_acted=True,
        expires_at=NOW + timedelta(days=1),
        is_row=True,
        sends=1,
        first_sent_at=NOW,
        fresh_from=NOW,
    )
    return decide(RetryPolicy(), rule, history, verdict, NOW)


@pytest.mark.requirement("RS-4", "GW-12")
def test_a_wait_that_is_over_is_decided_about_by_profile() -> None:
    assert isinstance(_decide(Profile.DURABLE_IDEMPOTENT, NO_RESULT), Again)
    assert isinstance(_decide(Profile.BOUNDED_DEDUPLICATION, NO_RESULT), Again)
    lost = _decide(Profile.NON_IDEMPOTENT, NO_RESULT)
    assert isinstance(lost, End)
    assert (lost.move, lost.detail) == (Move.LOSE_TRACK, "no_result")


@pytest.mark.requirement("RS-4")
def test_only_a_destination_that_declares_results_may_answer_later() -> None:
    verdict = accepted(202, ResultSource(keys=(), wait_s=60.0))

    assert accepted(202, None) is None
    assert accepted(200, ResultSource(keys=())) is None
    assert verdict is not None
    assert not verdict.is_proven
    assert _decide(Profile.NON_IDEMPOTENT, verdict) == Await(due=NOW + timedelta(seconds=60))


def test_an_accepted_attempt_is_read_back_from_its_intent_and_older_answers_too() -> None:
    verdict = accepted(202, ResultSource(keys=(), wait_s=60.0))
    assert verdict is not None
    document = as_document(verdict, Try(1, 0, 0, ""))

    assert read_document(document, "e")[0] == verdict
    del document["accepted_for_s"]
    assert read_document(document, "e")[0].accepted_for_s is None


def test_a_result_reads_back_as_it_was_rendered() -> None:
    assert parse_result(render_result(RESULT)) == RESULT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"type":"waybill.result"', '"type":"subject.erase"'),
        ('"tenant":"acme"', '"tenant":1'),
        ('"tenant":"acme"', '"tenant":"acme","tenant":"acme"'),
        ('"receipt":', '"receipts":'),
        ('"time":"2026', '"time":"soon'),
    ],
)
def test_what_is_no_result_is_not_read(old: str, new: str) -> None:
    with pytest.raises(ContractError):
        parse_result(render_result(RESULT).decode().replace(old, new).encode())


def test_a_result_says_one_thing() -> None:
    with pytest.raises(ValueError, match="receipt or a problem"):
        replace(RESULT, receipt=None)
    assert "problem" not in json.loads(render_result(RESULT))["data"]
