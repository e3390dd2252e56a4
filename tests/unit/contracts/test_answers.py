"""Receipts and problems: what an answer can claim and what is believed of it."""

import json
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import STATUS, Problem, parse_problem, render_problem
from waybill.contracts.receipt import Receipt, ReceiptStatus, parse_receipt, render_receipt
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DeliveryId

ID = DeliveryId(uuid.UUID("c2cf06e6-2b02-5e56-93a0-8f1e45542efa"))
WHOLE = Receipt(
    status=ReceiptStatus.DONE,
    delivery_id=str(ID),
    operation_id="op",
    source_version="v7",
    count=2,
    digest="sha-256:00",
    evidence="crm:1",
    occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
    received_at=datetime(2026, 1, 2, tzinfo=UTC),
    executed_at=datetime(2026, 1, 3, tzinfo=UTC),
)


def test_a_whole_receipt_survives_the_wire() -> None:
    assert parse_receipt(render_receipt(WHOLE)) == WHOLE
    assert WHOLE.complete()


@pytest.mark.requirement("DC-17")
@pytest.mark.parametrize("field", ["status", "source_version", "evidence"])
def test_a_receipt_without_one_field_is_incomplete(field: str) -> None:
    document = json.loads(render_receipt(WHOLE))
    del document[field]

    assert parse_receipt(json.dumps(document).encode()).missing() == (field,)


@pytest.mark.requirement("DC-3")
@pytest.mark.parametrize("body", [b"", b"OK", b"null", b"[]", b'"done"', b"\xff", b"[" * 50_000])
def test_an_answer_that_is_no_object_is_no_receipt(body: bytes) -> None:
    with pytest.raises(ContractError, match="not a receipt"):
        parse_receipt(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "finished"),
        ("status", 1),
        ("source_version", 7),
        ("evidence", {"file": "x"}),
        ("evidence", "x" * 3000),
        ("count", -1),
        ("count", 1.5),
        ("count", True),
        ("count", "2"),
        ("executed_at", "yesterday"),
        ("executed_at", "2026-01-01T00:00:00"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(field: str, value: object) -> None:
    document = {**json.loads(render_receipt(WHOLE)), field: value}

    with pytest.raises(ContractError, match=field):
        parse_receipt(json.dumps(document).encode())


def test_a_receipt_speaks_of_one_delivery() -> None:
    other = DeliveryId(uuid.UUID(int=1))

    assert WHOLE.speaks_of(ID)
    assert not WHOLE.speaks_of(other)
    assert Receipt().speaks_of(ID)


def test_a_huge_answer_is_not_read() -> None:
    with pytest.raises(ContractError, match="larger"):
        parse_receipt(b'{"evidence":"' + b"x" * 70_000 + b'"}')


def test_every_code_has_a_status_that_is_no_success() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert all(status >= 400 for status in STATUS.values())


@pytest.mark.requirement("ET-1")
def test_an_invented_code_is_validation() -> None:
    problem = parse_problem(b'{"type":"urn:waybill:error:MOOD","reason":"x"}', 418)

    assert problem == Problem(code=ErrorCode.VALIDATION, reason="unknown_code", status=418)


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b'{"type":"about:blank"}', b'{"type":7}', b"{" * 50_000, b" " * 20_000 + b"{}"]
)
def test_an_answer_that_is_no_problem_of_ours_is_none(body: bytes) -> None:
    assert parse_problem(body, 500) is None


@given(st.sampled_from(ErrorCode), st.text(max_size=600), st.text(max_size=80))
def test_what_is_recorded_of_a_problem_is_always_a_word(code: ErrorCode, detail: str, reason: str) -> None:
    body = json.dumps({"type": f"urn:waybill:error:{code.value}", "detail": detail, "reason": reason}).encode()

    problem = parse_problem(body, 400)

    assert problem is not None
    assert problem.code is code
    assert problem.reason.isascii()
    assert problem.reason.replace("_", "a").isalnum()
    assert len(problem.detail) <= 500


def test_a_reason_that_is_no_word_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="word"):
        Problem(code=ErrorCode.AUTH, reason="Not A Word")


def test_a_problem_takes_the_status_of_its_code() -> None:
    body = render_problem(Problem(code=ErrorCode.VERSION_CONFLICT, reason="body_differs"))

    assert json.loads(body)["status"] == 409
