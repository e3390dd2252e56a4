"""One reviewed table from what an attempt came to, to the fourteen codes and whether it is tried again."""

import json

import pytest

from waybill.contracts.codes import RETRIED, ErrorCode, Phase
from waybill.contracts.fabric import Proof
from waybill.delivery.core.answer import judge_answer
from waybill.delivery.core.classify import FAILURES, Failure, Verdict, judge_failure, judge_status
from waybill.infra.http_client import PostFailure

DELIVERY = "3f0c1d0e-aaaa-5000-8000-000000000001"
COMPLETE = {"status": "done", "source_version": "7", "count": 1, "digest": "sha256:00", "evidence": "urn:e:1"}


def judged(status: int, body: object = b"", proof: Proof = Proof.RECEIPT) -> tuple[ErrorCode | None, str | None]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    verdict = judge_answer(status, raw, delivery_id=DELIVERY, proof=proof, wait_s=None)
    return verdict.code, verdict.detail


@pytest.mark.requirement("GW-9", "ET-2", "ET-4")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (100, ErrorCode.VALIDATION),  # no final answer
        (202, ErrorCode.PERMANENT_UNSUPPORTED),  # a result later: not in this profile
        (204, ErrorCode.VALIDATION),  # a bare 2xx closes nothing
        (301, ErrorCode.VALIDATION),  # never followed
        (307, ErrorCode.VALIDATION),
        (400, ErrorCode.VALIDATION),
        (401, ErrorCode.AUTH),
        (403, ErrorCode.AUTHZ),
        (404, ErrorCode.NOT_FOUND),
        (405, ErrorCode.PERMANENT_UNSUPPORTED),
        (408, ErrorCode.TRANSIENT_NETWORK),
        (409, ErrorCode.VERSION_CONFLICT),
        (410, ErrorCode.PERMANENT_UNSUPPORTED),
        (418, ErrorCode.PERMANENT_UNSUPPORTED),  # other 4xx are not retried
        (425, ErrorCode.SOURCE_UNAVAILABLE),
        (429, ErrorCode.RATE_LIMIT),
        (500, ErrorCode.SOURCE_UNAVAILABLE),
        (502, ErrorCode.TRANSIENT_NETWORK),
        (503, ErrorCode.SOURCE_UNAVAILABLE),
        (504, ErrorCode.TRANSIENT_NETWORK),
        (599, ErrorCode.SOURCE_UNAVAILABLE),
        (700, ErrorCode.VALIDATION),  # not HTTP
    ],
)
def test_a_status_has_one_code(status: int, code: ErrorCode) -> None:
    assert judged(status)[0] is code


@pytest.mark.requirement("ET-2", "ET-3")
def test_only_the_three_transient_codes_are_retried() -> None:
    retried = {status for status in range(100, 1000) if judge_status(status).is_retried}

    assert retried == {408, 425, 429, *range(500, 600)}
    assert {f for f in Failure if judge_failure(f).is_retried} == {
        Failure.CONNECT,
        Failure.CONNECT_TIMEOUT,
        Failure.POOL_TIMEOUT,
        Failure.WRITE,
        Failure.READ,
        Failure.TIMEOUT,
    }


@pytest.mark.requirement("AM-5", "ET-4")
def test_every_failure_of_the_client_has_a_line_and_only_those_before_the_first_byte_say_so() -> None:
    assert set(FAILURES) == set(Failure)
    assert {f.value for f in Failure} == {f.value for f in PostFailure}
    unsent = {f for f in Failure if judge_failure(f).phase is Phase.BEFORE_SENDING}
    assert unsent == {
        Failure.CONNECT,
        Failure.CONNECT_TIMEOUT,
        Failure.POOL_TIMEOUT,
        Failure.REFUSED,
        Failure.UNBUILDABLE,
    }
    assert not any(judge_failure(f).may_have_acted for f in unsent)
    assert all(judge_failure(f).may_have_acted for f in set(Failure) - unsent)
    assert {s for s in (408, 429, 500, 502, 503, 504) if judge_status(s).may_have_acted} == {500, 502, 504}


@pytest.mark.requirement("AM-5", "ET-2")
def test_a_destination_waybill_does_not_go_to_is_a_refusal_that_names_its_rule_and_is_not_tried_again() -> None:
    verdict = judge_failure(Failure.REFUSED, "egress_loopback")

    assert (verdict.code, verdict.detail, verdict.phase) == (
        ErrorCode.POLICY_BLOCK,
        "egress_loopback",
        Phase.BEFORE_SENDING,
    )
    assert (verdict.is_retried, verdict.may_have_acted) == (False, False)


@pytest.mark.requirement("GW-9")
@pytest.mark.parametrize("proof", Proof)
def test_no_redirect_is_ever_a_success(proof: Proof) -> None:
    judged_all = {judged(status, COMPLETE, proof) for status in range(300, 400)}

    assert judged_all == {(ErrorCode.VALIDATION, "redirect_refused")}


@pytest.mark.requirement("DC-17", "DC-3")
@pytest.mark.parametrize("missing", ["status", "source_version", "evidence"])
def test_a_receipt_without_one_field_is_validation(missing: str) -> None:
    document = {key: value for key, value in COMPLETE.items() if key != missing}

    assert judged(200, document) == (ErrorCode.VALIDATION, f"receipt_without_{missing}")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (COMPLETE, (None, None)),
        ({**COMPLETE, "digest": None}, (None, None)),  # count alone
        ({**COMPLETE, "count": None}, (None, None)),  # digest alone
        ({**COMPLETE, "count": 0, "digest": None}, (None, None)),  # nothing there is an answer
        ({**COMPLETE, "count": None, "digest": None}, (ErrorCode.VALIDATION, "receipt_without_count")),
        ({**COMPLETE, "delivery_id": DELIVERY}, (None, None)),
        ({**COMPLETE, "delivery_id": "other"}, (ErrorCode.VALIDATION, "receipt_of_another_delivery")),
        ({**COMPLETE, "status": "partial"}, (ErrorCode.PARTIAL_SOURCE, "partial")),
        ({**COMPLETE, "status": "maybe"}, (ErrorCode.VALIDATION, "receipt_unreadable")),
        ({**COMPLETE, "count": True}, (ErrorCode.VALIDATION, "receipt_unreadable")),
        ({**COMPLETE, "count": -1}, (ErrorCode.VALIDATION, "receipt_unreadable")),
        ([], (ErrorCode.VALIDATION, "receipt_unreadable")),
        (b"{", (ErrorCode.VALIDATION, "receipt_unreadable")),
        (b"", (ErrorCode.VALIDATION, "receipt_unreadable")),
    ],
)
def test_a_2xx_is_judged_by_its_receipt(document: object, expected: tuple[ErrorCode | None, str | None]) -> None:
    assert judged(200, document) == expected


def test_where_a_status_is_proof_any_2xx_but_202_closes() -> None:
    assert judged(200, b"", Proof.STATUS) == (None, None)
    assert judged(202, b"", Proof.STATUS)[0] is ErrorCode.PERMANENT_UNSUPPORTED


@pytest.mark.requirement("ET-1")
@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (422, "MULTIPLE_MATCH", ErrorCode.MULTIPLE_MATCH),  # says more than the status
        (503, "RATE_LIMIT", ErrorCode.RATE_LIMIT),
        (503, "POLICY_BLOCK", ErrorCode.POLICY_BLOCK),  # a refusal may stop a retry
        (422, "SOURCE_UNAVAILABLE", ErrorCode.VALIDATION),  # nothing makes a retry of a refusal
        (500, "AMBIGUOUS_RESULT", ErrorCode.AMBIGUOUS_RESULT),
        (503, "INVENTED", ErrorCode.VALIDATION),  # nobody invents a fifteenth
    ],
)
def test_a_problem_of_ours_may_narrow_but_never_widen(status: int, kind: str, expected: ErrorCode) -> None:
    assert judged(status, {"type": f"urn:waybill:error:{kind}", "reason": "why"})[0] is expected


def test_every_code_but_three_is_left_alone_when_a_problem_names_it() -> None:
    for code in set(ErrorCode) - RETRIED:
        assert judged(503, {"type": f"urn:waybill:error:{code}", "reason": "r"}) == (code, "r")


@pytest.mark.requirement("AM-4", "DC-3")
@pytest.mark.parametrize(
    ("status", "body", "declared", "undeclared"),
    [
        (200, {**COMPLETE, "status": "absent", "count": 0}, None, ErrorCode.NOT_FOUND),
        (200, {**COMPLETE, "status": "absent", "count": None}, None, ErrorCode.NOT_FOUND),
        (200, {**COMPLETE, "status": "absent", "count": 1}, ErrorCode.VALIDATION, ErrorCode.VALIDATION),
        (200, {**COMPLETE, "status": "absent", "evidence": None}, ErrorCode.VALIDATION, ErrorCode.VALIDATION),
        (404, b"", ErrorCode.NOT_FOUND, ErrorCode.NOT_FOUND),
        (404, {**COMPLETE, "status": "absent", "count": 0}, ErrorCode.NOT_FOUND, ErrorCode.NOT_FOUND),
        (404, {"type": "urn:waybill:error:NOT_FOUND", "reason": "gone"}, ErrorCode.NOT_FOUND, ErrorCode.NOT_FOUND),
    ],
    ids=["proven", "by digest", "counted", "no evidence", "bare 404", "receipt with 404", "problem"],
)
def test_what_is_not_there_was_done_only_where_that_was_declared(
    status: int, body: object, declared: ErrorCode | None, undeclared: ErrorCode | None
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def judged_where(*, absence_proves: bool) -> Verdict:
        return judge_answer(
            status, raw, delivery_id=DELIVERY, proof=Proof.RECEIPT, wait_s=None, absence_proves=absence_proves
        )

    assert judged_where(absence_proves=True).code is declared
    refused = judged_where(absence_proves=False)
    assert (refused.code, refused.is_retried) == (undeclared, False)
