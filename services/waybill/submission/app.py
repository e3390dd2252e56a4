"""The paths of the submission API. Every path but two is built by `_guarded`, which lets nobody in without a key.

What is answered is made here and nowhere else; what is decided is decided by `Submitter`.
"""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from uuid import UUID

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from waybill import __version__
from waybill.access import Authenticator, Principal, Refusal, Scope
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, render_problem
from waybill.infra.log import get_logger
from waybill.kernel.clock import format_instant
from waybill.listener.asgi import BodyTooLarge, Headers, read_body
from waybill.submission.core.reading import Form
from waybill.submission.core.refusals import UNAVAILABLE, Refused
from waybill.submission.description import KEY_PATTERN, SCHEMAS, answers, operation, submitting
from waybill.submission.store import Submission
from waybill.submission.submitter import Submitter

__all__ = ["MAX_BODY", "build_app"]

#: Bytes of a body: a payload at the outbox's own limit in base64, and a batch.
MAX_BODY: Final = {Form.SINGLE: 2 * 1024 * 1024, Form.BATCH: 16 * 1024 * 1024}
_LISTED: Final = 100
_KEY: Final = re.compile(KEY_PATTERN.strip("^$"))

Handler = Callable[[Request, Principal], Awaitable[Response]]
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_NOT_FOUND: Final = Problem(code=ErrorCode.NOT_FOUND, reason="not_found")


def build_app(authenticator: Authenticator, submitter: Submitter, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the API as an ASGI application."""
    app = FastAPI(title="Waybill submission API", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    doors = _Doors(authenticator)
    paths = _Paths(submitter)
    for form, path in ((Form.SINGLE, "/v1/commands"), (Form.BATCH, "/v1/commands:batch")):
        app.add_api_route(
            path,
            doors.guarded(Scope.COMMANDS_SUBMIT, paths.submitting(form)),
            methods=["POST"],
            summary="Submit one command." if form is Form.SINGLE else "Submit commands, all or none.",
            operation_id=f"submit_{form}",
            status_code=202,
            responses=answers(
                "Submission", 400, 409, 413, 415, 422,
                s202="Taken now: committed to the outbox. Nothing is said about its application.",
                s200="Taken before: these bytes were submitted under this key.",
            ),
            openapi_extra=submitting(form),
        )  # fmt: skip
    app.add_api_route(
        "/v1/submissions",
        doors.guarded(Scope.COMMANDS_SUBMIT, paths.ambiguous),
        summary="Submissions that wait for a person, longest first, at most a hundred.",
        operation_id="list_ambiguous",
        responses=answers("Submissions", s200="Those of the key's principal."),
        openapi_extra=operation(),
    )
    identity = {"name": "submissionId", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
    app.add_api_route(
        "/v1/submissions/{submissionId}",
        doors.guarded(Scope.COMMANDS_SUBMIT, paths.submission),
        summary="What was taken under a key.",
        operation_id="get_submission",
        responses=answers("Submission", 404, s200="It was taken."),
        openapi_extra=operation(identity),
    )
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    app.add_exception_handler(HTTPException, _no_path)
    app.add_exception_handler(Exception, _unexpected)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign] # how FastAPI is told another description
    return app


class _Doors:
    """Lets principals in, and nobody else."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def guarded(self, scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a handler that only principals with a scope reach."""

        async def endpoint(request: Request) -> Response:
            came = request.headers.getlist("authorization")
            try:
                who = await self._authenticator.authenticate(came[0] if len(came) == 1 else None)
            except psycopg.Error as error:
                get_logger("submission").warning("submission.access_unavailable", reason=type(error).__name__)
                return _refused(Refused(problem=UNAVAILABLE))
            if isinstance(who, Refusal):
                refused = Problem(code=ErrorCode.AUTH, reason="credentials_refused", detail="show an API key as Bearer")
                return _problem(refused, headers={"WWW-Authenticate": "Bearer"})
            if scope not in who.scopes:
                return _problem(
                    Problem(code=ErrorCode.AUTHZ, reason="missing_scope", detail=f"the key lacks the scope {scope}")
                )
            return await handler(request, who)

        return endpoint


class _Paths:
    """What principals may ask."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter

    def submitting(self, form: Form) -> Handler:
        """Return the handler that takes submissions of a form."""

        async def handle(request: Request, who: Principal) -> Response:
            keys = request.headers.getlist("idempotency-key")
            if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
                return _problem(_malformed("idempotency_key", "one Idempotency-Key: 1 to 200 visible ASCII characters"))
            if not _is_plain_json(request):
                detail = "expected application/json, not compressed"
                return _problem(_malformed("unsupported_media_type", detail, status=415))
            try:
                body = await read_body(Headers(request.scope["headers"]), request.receive, MAX_BODY[form])
            except BodyTooLarge:
                return _problem(_malformed("body_too_large", f"at most {MAX_BODY[form]} bytes", status=413))
            except ConnectionError:
                return _problem(_malformed("client_gone", "the body did not end"))
            done = await self._submitter.submit(who, keys[0], form, body)
            if isinstance(done, Refused):
                return _refused(done)
            return _json(200 if done.is_resubmission else 202, _told(done.submission))

        return handle

    async def submission(self, request: Request, who: Principal) -> Response:
        """Answer what was taken under an id."""
        try:
            identity = UUID(request.path_params["submissionId"])
        except ValueError:
            return _problem(_NOT_FOUND)
        found = await self._submitter.find(who, identity)
        if isinstance(found, Refused):
            return _refused(found)
        return _problem(_NOT_FOUND) if found is None else _json(200, _told(found))

    async def ambiguous(self, request: Request, who: Principal) -> Response:
        """Answer which submissions wait for a person."""
        found = await self._submitter.ambiguous(who, _LISTED)
        if isinstance(found, Refused):
            return _refused(found)
        return _json(200, {"submissions": [_told(each) for each in found]})


def _is_plain_json(request: Request) -> bool:
    kinds = request.headers.getlist("content-type")
    kind = kinds[0].partition(";")[0].strip().lower() if len(kinds) == 1 else ""
    return kind == "application/json" and request.headers.get("content-encoding", "identity") == "identity"


def _malformed(reason: str, detail: str, status: int = 400) -> Problem:
    return Problem(code=ErrorCode.VALIDATION, reason=reason, detail=detail, status=status)


def _told(submission: Submission) -> dict[str, Any]:
    state = (
        "accepted" if submission.ambiguous_at is None else "ambiguous" if submission.settled_at is None else "settled"
    )
    told: dict[str, Any] = {
        "submissionId": str(submission.submission_id),
        "state": state,
        "acceptedAt": format_instant(submission.accepted_at),
        "resubmissions": submission.resubmissions,
    }
    if submission.ambiguous_at is not None:
        told["ambiguousAt"] = format_instant(submission.ambiguous_at)
    if submission.settled_at is not None:
        told["settledAt"] = format_instant(submission.settled_at)
    return {**told, "commands": submission.commands}


def _json(status: int, document: object) -> Response:
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def _problem(problem: Problem, *, headers: dict[str, str] | None = None) -> Response:
    return Response(
        render_problem(problem), problem.status, {"Cache-Control": "no-store", **(headers or {})}, PROBLEM_TYPE
    )


def _refused(refused: Refused) -> Response:
    answer = _problem(refused.problem, headers={"Retry-After": "1"} if refused.problem.status == 503 else None)
    if refused.submission_id is None:
        return answer
    document = {**json.loads(bytes(answer.body)), "submissionId": str(refused.submission_id)}
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    kept = {name: value for name, value in answer.headers.items() if name not in {"content-length", "content-type"}}
    return Response(body, answer.status_code, kept, PROBLEM_TYPE)


async def _healthz() -> Response:
    return _json(200, {"status": "ok"})


async def _no_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        wrong = _malformed("method_not_allowed", "", status=405)
        return _problem(wrong, headers=dict(error.headers or {}))
    return _problem(_NOT_FOUND)


async def _unexpected(request: Request, error: Exception) -> Response:
    get_logger("submission").error("submission.failed", path=request.url.path, reason=type(error).__name__)
    return _problem(Problem(code=ErrorCode.AMBIGUOUS_RESULT, reason="unexpected"))


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, openapi_version="3.1.0", routes=app.routes)
        scheme = {"type": "http", "scheme": "bearer", "description": "An API key: waybill access keys create."}
        document["components"] = {"schemas": dict(SCHEMAS), "securitySchemes": {"apiKey": scheme}}
        app.openapi_schema = document
    return app.openapi_schema
