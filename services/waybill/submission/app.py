"""The paths of the submission API. Every path but two is built by `_guarded`, which lets nobody in without a key.

What is answered is made here and nowhere else; what is decided is decided by `Submitter`.
"""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException

from waybill import __version__
from waybill.access import Authenticator, Principal, Scope, SignedRequests
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.contracts.result import MAX_BYTES as MAX_RESULT
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from waybill.crypto.verifying import SignatureHeaders
from waybill.infra.log import get_logger
from waybill.kernel.clock import format_instant
from waybill.listener.asgi import Headers
from waybill.submission.answering import NOT_FOUND, json_answer, malformed, problem_answer, refused_answer
from waybill.submission.core.reading import Form
from waybill.submission.core.refusals import UNAVAILABLE, Refused
from waybill.submission.counting import Counting
from waybill.submission.deliveries import Deliveries
from waybill.submission.description import (
    KEY_PATTERN,
    KNOWN_TAG,
    PAGE_PARAMETERS,
    SCHEMAS,
    STATING,
    answers,
    operation,
    path_id,
    submitting,
)
from waybill.submission.doors import JSON_TYPE, RESULT_TYPE, Doors, Handler, Plain, body_of
from waybill.submission.metrics import Meter
from waybill.submission.reading_paths import ReadingPaths
from waybill.submission.stating import Posted, Stating
from waybill.submission.store import Submission, told_command
from waybill.submission.submitter import Submitter

__all__ = ["MAX_BODY", "Parts", "build_app"]

#: Bytes of a body: a payload at the outbox's own limit in base64, and a batch.
MAX_BODY: Final = {Form.SINGLE: 2 * 1024 * 1024, Form.BATCH: 16 * 1024 * 1024}
_LISTED: Final = 100
_KEY: Final = re.compile(KEY_PATTERN.strip("^$"))

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the paths are built over."""

    authenticator: Authenticator
    signed: SignedRequests
    submitter: Submitter
    deliveries: Deliveries
    stating: Stating
    meter: Meter


def build_app(parts: Parts, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the API as an ASGI application."""
    app = FastAPI(title="Waybill submission API", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.router.route_class = Plain
    doors = Doors(parts.authenticator, parts.signed)
    _add_submissions(app, doors, _Paths(parts.submitter))
    _add_deliveries(app, doors, ReadingPaths(parts.deliveries))
    _add_results(app, doors, parts.stating)
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    app.add_exception_handler(HTTPException, _no_path)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(Counting, meter=parts.meter)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign] # how FastAPI is told another description
    return app


def _add_submissions(app: FastAPI, doors: Doors, paths: "_Paths") -> None:
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
    app.add_api_route(
        "/v1/submissions/{submissionId}",
        doors.guarded(Scope.COMMANDS_SUBMIT, paths.submission),
        summary="What was taken under a key.",
        operation_id="get_submission",
        responses=answers("Submission", 404, s200="It was taken."),
        openapi_extra=operation(path_id("submissionId")),
    )


def _add_deliveries(app: FastAPI, doors: Doors, paths: ReadingPaths) -> None:
    app.add_api_route(
        "/v1/deliveries",
        doors.guarded(Scope.DELIVERIES_READ, paths.page),
        summary="The tenant's deliveries, newest first.",
        operation_id="list_deliveries",
        responses=answers("Deliveries", 304, 400, s200="A page; `next` is the cursor of the following one."),
        openapi_extra=operation(*PAGE_PARAMETERS, KNOWN_TAG),
    )
    app.add_api_route(
        "/v1/deliveries/{deliveryId}",
        doors.guarded(Scope.DELIVERIES_READ, paths.one),
        summary="One delivery, as the read model knows it.",
        operation_id="get_delivery",
        responses=answers("Delivery", 304, 404, s200="It is known."),
        openapi_extra=operation(path_id("deliveryId"), KNOWN_TAG),
    )


def _add_results(app: FastAPI, doors: Doors, stating: Stating) -> None:
    async def handle(request: Request, who: Principal) -> Response:
        body = await body_of(request, RESULT_TYPE, MAX_RESULT)
        if isinstance(body, Problem):
            return problem_answer(body)
        headers = Headers(request.scope["headers"])
        signed = SignatureHeaders(
            webhook_id=headers.get(ID_HEADER),
            timestamp=headers.get(TIMESTAMP_HEADER),
            signature=headers.get(SIGNATURE_HEADER),
        )
        try:
            said = await stating.state(who, Posted(signed=signed, body=body))
        except (psycopg.Error, PoolTimeout):
            return refused_answer(Refused(problem=UNAVAILABLE))
        if isinstance(said, Problem):
            return refused_answer(Refused(problem=said))
        return json_answer(202, {"resultId": said, "state": "published"})

    app.add_api_route(
        "/v1/results",
        doors.guarded(Scope.RESULTS_PUBLISH, handle),
        methods=["POST"],
        summary="Post a signed result of the destination that the key's principal is named after.",
        operation_id="post_result",
        status_code=202,
        responses=answers(
            "PostedResult",
            400,
            409,
            413,
            415,
            422,
            s202="Published as it came. Whether it is believed the worker decides.",
        ),
        openapi_extra=STATING,
    )


class _Paths:
    """What principals may ask."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter

    def submitting(self, form: Form) -> Handler:
        """Return the handler that takes submissions of a form."""

        async def handle(request: Request, who: Principal) -> Response:
            keys = request.headers.getlist("idempotency-key")
            if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
                return problem_answer(
                    malformed("idempotency_key", "one Idempotency-Key: 1 to 200 visible ASCII characters")
                )
            body = await body_of(request, JSON_TYPE, MAX_BODY[form])
            if isinstance(body, Problem):
                return problem_answer(body)
            done = await self._submitter.submit(who, keys[0], form, body)
            if isinstance(done, Refused):
                return refused_answer(done)
            return json_answer(200 if done.is_resubmission else 202, _told(done.submission))

        return handle

    async def submission(self, request: Request, who: Principal) -> Response:
        """Answer what was taken under an id."""
        try:
            identity = UUID(request.path_params["submissionId"])
        except ValueError:
            return problem_answer(NOT_FOUND)
        found = await self._submitter.find(who, identity)
        if isinstance(found, Refused):
            return refused_answer(found)
        return problem_answer(NOT_FOUND) if found is None else json_answer(200, _told(found))

    async def ambiguous(self, request: Request, who: Principal) -> Response:
        """Answer which submissions wait for a person."""
        found = await self._submitter.ambiguous(who, _LISTED)
        if isinstance(found, Refused):
            return refused_answer(found)
        return json_answer(200, {"submissions": [_told(each) for each in found]})


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
    return {**told, "commands": [told_command(each) for each in submission.commands]}


async def _healthz(_request: Request) -> Response:
    return json_answer(200, {"status": "ok"})


async def _no_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        wrong = malformed("method_not_allowed", "", status=405)
        return problem_answer(wrong, headers=dict(error.headers or {}))
    return problem_answer(NOT_FOUND)


async def _unexpected(request: Request, error: Exception) -> Response:
    get_logger("submission").error("submission.failed", path=request.url.path, reason=type(error).__name__)
    return problem_answer(Problem(code=ErrorCode.AMBIGUOUS_RESULT, reason="unexpected"))


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, openapi_version="3.1.0", routes=app.routes)
        scheme = {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key, or a token of a named issuer; or sign the request.",
        }
        document["components"] = {"schemas": dict(SCHEMAS), "securitySchemes": {"apiKey": scheme}}
        app.openapi_schema = document
    return app.openapi_schema
