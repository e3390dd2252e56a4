"""The doors of the API: who is let in to which path, and how much of a body is read."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg
from fastapi import Request, Response
from fastapi.routing import APIRoute
from psycopg_pool import PoolTimeout
from starlette.routing import request_response
from starlette.types import Message, Receive

from waybill.access import Authenticator, Principal, Refusal, Scope, SignedRequests
from waybill.access.signed_requests import SignedIn, is_signed
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.crypto.requests import RequestHead
from waybill.infra.log import get_logger
from waybill.kernel.errors import UnavailableError
from waybill.listener.asgi import BodyTooLarge, Headers, read_body
from waybill.submission.answering import malformed, problem_answer, refused_answer
from waybill.submission.core.refusals import UNAVAILABLE, Refused

__all__ = ["JSON_TYPE", "RESULT_TYPE", "Doors", "Handler", "Plain", "body_of"]

JSON_TYPE: Final = "application/json"
#: Of a result: a CloudEvents document.
RESULT_TYPE: Final = "application/cloudevents+json"

Handler = Callable[[Request, Principal], Awaitable[Response]]


class Plain(APIRoute):
    """A path whose endpoint reads the request itself: nothing is derived from its signature, on no request."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self.app = request_response(endpoint)


class _AlteredError(Exception):
    """The body is not the one that was signed."""


class Doors:
    """Lets principals in, and nobody else: by what stands in `Authorization`, or by a signature, never by both."""

    def __init__(self, authenticator: Authenticator, signed: SignedRequests) -> None:
        self._authenticator, self._signed = authenticator, signed

    def guarded(self, scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a handler that only principals with a scope reach."""

        async def endpoint(request: Request) -> Response:
            try:
                who, entered = await self._ask(request)
            except (psycopg.Error, PoolTimeout, UnavailableError) as error:
                get_logger("submission").warning("submission.access_unavailable", reason=type(error).__name__)
                return refused_answer(Refused(problem=UNAVAILABLE))
            if isinstance(who, Refusal):
                return _nobody()
            if scope not in who.scopes:
                return problem_answer(
                    Problem(code=ErrorCode.AUTHZ, reason="missing_scope", detail=f"the key lacks the scope {scope}")
                )
            try:
                return await handler(entered, who)
            except _AlteredError:
                self._signed.refused(who.key_id, Refusal.ALTERED)
                return _nobody()

        return endpoint

    async def _ask(self, request: Request) -> tuple[Principal | Refusal, Request]:
        came, head = request.headers.getlist("authorization"), _head(request)
        if not is_signed(head):
            return await self._authenticator.authenticate(came[0] if len(came) == 1 else None), request
        found = await self._signed.authenticate(head) if not came else Refusal.MALFORMED
        if isinstance(found, Refusal):
            return found, request
        return found.principal, Request(request.scope, _checked(request, found))


def _nobody() -> Response:
    refused = Problem(
        code=ErrorCode.AUTH,
        reason="credentials_refused",
        detail="show an API key or a token as Bearer, or sign the request",
    )
    return problem_answer(refused, headers={"WWW-Authenticate": "Bearer"})


def _head(request: Request) -> RequestHead:
    scope = request.scope
    path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    hosts = [value for name, value in fields if name == "host"]
    return RequestHead(
        method=request.method,
        authority=hosts[0] if len(hosts) == 1 else "",
        target=(path + b"?" + query if query else path).decode("latin-1"),
        fields=fields,
    )


def _checked(request: Request, signed: SignedIn) -> Receive:
    """Hand the body on as it comes; its end only if it was the signed one. So no handler sees another body whole."""

    async def receive() -> Message:
        message = await request.receive()
        if message["type"] == "http.request":
            signed.content.take(message.get("body", b""))
            if not message.get("more_body", False) and not signed.content.is_same():
                raise _AlteredError
        return message

    return receive


async def body_of(request: Request, content_type: str, limit: int) -> bytes | Problem:
    """Read the body of a request that is declared as one type and not compressed, up to a limit."""
    kinds = request.headers.getlist("content-type")
    kind = kinds[0].partition(";")[0].strip().lower() if len(kinds) == 1 else ""
    if kind != content_type or request.headers.get("content-encoding", "identity") != "identity":
        return malformed("unsupported_media_type", f"expected {content_type}, not compressed", status=415)
    try:
        return await read_body(Headers(request.scope["headers"]), request.receive, limit)
    except BodyTooLarge:
        return malformed("body_too_large", f"at most {limit} bytes", status=413)
    except ConnectionError:
        return malformed("client_gone", "the body did not end")
