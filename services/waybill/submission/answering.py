"""Answers of the API: JSON documents and problem details, made here and nowhere else."""

import json
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, render_problem
from waybill.submission.core.refusals import Refused

__all__ = ["CODE", "NOT_FOUND", "json_answer", "malformed", "problem_answer", "refused_answer"]

#: Where the code of a problem that was answered stands in the scope of its request.
CODE: Final = "waybill.code"
NOT_FOUND: Final = Problem(code=ErrorCode.NOT_FOUND, reason="not_found")


class _ProblemResponse(Response):
    """An answer that is a problem; leaves its code in the scope for those who count."""

    def __init__(self, body: bytes, status: int, headers: dict[str, str], code: ErrorCode) -> None:
        super().__init__(body, status, headers, PROBLEM_TYPE)
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CODE] = self._code
        await super().__call__(scope, receive, send)


def malformed(reason: str, detail: str, status: int = 400) -> Problem:
    """Return what a request is answered that is not as described."""
    return Problem(code=ErrorCode.VALIDATION, reason=reason, detail=detail, status=status)


def json_answer(status: int, document: object, **headers: str) -> Response:
    """Return a document."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store", **headers}, "application/json")


def problem_answer(problem: Problem, *, headers: dict[str, str] | None = None) -> Response:
    """Return a problem."""
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return _ProblemResponse(render_problem(problem), problem.status, kept, problem.code)


def refused_answer(refused: Refused) -> Response:
    """Return why a submission was not taken, with its id where that may be told."""
    answer = problem_answer(refused.problem, headers={"Retry-After": "1"} if refused.problem.status == 503 else None)
    if refused.submission_id is None:
        return answer
    document = {**json.loads(bytes(answer.body)), "submissionId": str(refused.submission_id)}
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    kept = {name: value for name, value in answer.headers.items() if name not in {"content-length", "content-type"}}
    return _ProblemResponse(body, answer.status_code, kept, refused.problem.code)
