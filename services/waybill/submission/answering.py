"""Answers of the API: JSON documents and problem details, made here and nowhere else."""

import json
from typing import Final

from fastapi import Response

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, render_problem
from waybill.submission.core.refusals import Refused

__all__ = ["NOT_FOUND", "json_answer", "malformed", "problem_answer", "refused_answer"]

NOT_FOUND: Final = Problem(code=ErrorCode.NOT_FOUND, reason="not_found")


def malformed(reason: str, detail: str, status: int = 400) -> Problem:
    """Return what a request is answered that is not as described."""
    return Problem(code=ErrorCode.VALIDATION, reason=reason, detail=detail, status=status)


def json_answer(status: int, document: object, **headers: str) -> Response:
    """Return a document."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store", **headers}, "application/json")


def problem_answer(problem: Problem, *, headers: dict[str, str] | None = None) -> Response:
    """Return a problem."""
    return Response(
        render_problem(problem), problem.status, {"Cache-Control": "no-store", **(headers or {})}, PROBLEM_TYPE
    )


def refused_answer(refused: Refused) -> Response:
    """Return why a submission was not taken, with its id where that may be told."""
    answer = problem_answer(refused.problem, headers={"Retry-After": "1"} if refused.problem.status == 503 else None)
    if refused.submission_id is None:
        return answer
    document = {**json.loads(bytes(answer.body)), "submissionId": str(refused.submission_id)}
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    kept = {name: value for name, value in answer.headers.items() if name not in {"content-length", "content-type"}}
    return Response(body, answer.status_code, kept, PROBLEM_TYPE)
