"""Receipts and problem details against their golden files."""

from collections.abc import Callable
from typing import Any

import pytest

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem, parse_problem, render_problem
from waybill.contracts.receipt import parse_receipt, render_receipt

Vectors = Callable[[str], list[dict[str, Any]]]


@pytest.mark.requirement("DC-17")
@pytest.mark.requirement("DC-3")
def test_a_receipt_lacks_exactly_what_its_case_says(vectors: Vectors) -> None:
    cases = vectors("receipts.json")

    missing = {case["name"]: list(parse_receipt(case["body"].encode()).missing()) for case in cases}

    assert missing == {case["name"]: case["missing"] for case in cases}
    assert [case["name"] for case in cases if parse_receipt(case["body"].encode()).complete()] == [
        case["name"] for case in cases if not case["missing"]
    ]


def test_a_complete_receipt_renders_to_the_bytes_it_was_read_from(vectors: Vectors) -> None:
    for case in vectors("receipts.json"):
        if not case["missing"]:
            assert render_receipt(parse_receipt(case["body"].encode())).decode() == case["body"]


def test_a_problem_renders_to_its_bytes_and_reads_back(vectors: Vectors) -> None:
    for case in vectors("problems.json"):
        problem = Problem(
            code=ErrorCode(case["code"]),
            reason=case["reason"],
            detail=case["detail"],
            status=case["status"],
            expected_sequence=case["expected_sequence"],
        )

        assert render_problem(problem).decode() == case["body"]
        assert parse_problem(case["body"].encode(), case["status"]) == problem
