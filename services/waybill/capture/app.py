"""The capture server as an ASGI application: deliveries in, the page and its JSON out.

`POST` to any path but `/_waybill/…` is a delivery and goes on. `GET /` is the page, `GET /_waybill/deliveries` the same
as JSON, `GET /.well-known/waybill/keys` the public keys of its tenant, `POST /_waybill/deliveries/N/replay` sends one again. One event loop; waiting for the listener behind happens
in threads, bounded by the deliveries taken at one time.
"""

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from waybill.capture.checking import Checker
from waybill.capture.core.page import POLICY, render_page
from waybill.capture.core.records import Answered, Captured, Failed, Headers
from waybill.capture.core.showing import shown
from waybill.capture.forwarding import Forwarder, passed_on
from waybill.capture.shelf import Shelf
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, render_problem
from waybill.infra.public_keys import PublicKeys
from waybill.kernel.clock import Clock
from waybill.listener.asgi import BodyTooLarge, Receive, Scope, Send, read_body
from waybill.listener.asgi import Headers as OneValue

__all__ = ["Capture", "CaptureSettings"]

_MAX_BODY: Final = 1_048_576
_MAX_FORM: Final = 4_096
_MAX_IN_FLIGHT: Final = 32
_OURS: Final = "/_waybill/"
_LIST: Final = "/_waybill/deliveries"
_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What the page says and shows."""

    #: Where deliveries go on to, as it is shown.
    target: str
    keep: int = 50
    #: Show data, answers and unknown headers.
    with_data: bool = False
    #: A further name pages are answered under: the address that was chosen to bind.
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    headers: Headers
    body: bytes


class Capture:
    """Takes deliveries of one tenant for one destination, shows them and passes them on."""

    def __init__(
        self,
        settings: CaptureSettings,
        checker: Checker,
        forwarder: Forwarder,
        clock: Clock,
        public: PublicKeys | None = None,
    ) -> None:
        self._settings, self._checker, self._forwarder, self._clock = settings, checker, forwarder, clock
        self._public = public
        self._shelf = Shelf(settings.keep)
        self._in_flight = 0
        #: Whoever replays must have read the page: a foreign site can post a form, and cannot read this.
        self._token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        try:
            reply = await self._route(scope, receive)
        except ConnectionError:
            return
        except BodyTooLarge:
            reply = _problem(ErrorCode.VALIDATION, "too_large", 413)
        await _answer(send, reply)

    async def _route(self, scope: Scope, receive: Receive) -> _Reply:
        method, path = scope["method"], scope["path"]
        if method in {"GET", "HEAD"} and path == "/healthz":
            return _json(200, {"status": "ok"})
        if method == "POST" and not path.startswith(_OURS):
            return await self._take(scope, receive)
        if method in {"GET", "HEAD"} and self._public is not None:
            found = self._public.answer(path, OneValue(scope["headers"]).get("if-none-match"))
            if found is not None:
                return _Reply(status=found.status, headers=found.headers, body=found.body)
        if not self._is_ours(OneValue(scope["headers"]).get("host")):
            return _json(421, {"error": "pages are answered under the name of this machine only"})
        return await self._own(scope, receive)

    async def _own(self, scope: Scope, receive: Receive) -> _Reply:
        """Answer what is for this server itself."""
        method, path = scope["method"], scope["path"]
        if method in {"GET", "HEAD"} and path == "/":
            return self._page()
        if method in {"GET", "HEAD"} and path == _LIST:
            return _json(200, {"replay_token": self._token, "deliveries": self._all()})
        if method == "POST" and path.startswith(f"{_LIST}/") and path.endswith("/replay"):
            return await self._replay(path.removeprefix(f"{_LIST}/").removesuffix("/replay"), scope, receive)
        return _json(404, {"error": "POST deliveries here; GET / shows them"})

    def _is_ours(self, host: str | None) -> bool:
        """Whether a page was asked for under a name of this machine: no other name may lead a browser here."""
        name = (host or "").lower()
        name = name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]
        return name in _LOCAL_NAMES or name.strip("[]") == self._settings.host.lower()

    async def _take(self, scope: Scope, receive: Receive) -> _Reply:
        if self._in_flight >= _MAX_IN_FLIGHT:
            return _problem(ErrorCode.RATE_LIMIT, "too_many", 429)
        self._in_flight += 1
        try:
            body = await read_body(OneValue(scope["headers"]), receive, _MAX_BODY)
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
            return _returned(await self._pass_on(headers, body, None))
        finally:
            self._in_flight -= 1

    async def _pass_on(self, headers: Headers, body: bytes, replay_of: int | None) -> Answered | Failed:
        checked = await self._checker.check(headers, body)
        kept = self._shelf.put(headers, body, checked, self._clock.now(), replay_of)
        ending = await self._forwarder.forward(headers, body)
        self._shelf.end(kept.number, ending)
        return ending

    async def _replay(self, number: str, scope: Scope, receive: Receive) -> _Reply:
        form = parse_qs((await read_body(OneValue(scope["headers"]), receive, _MAX_FORM)).decode(errors="replace"))
        if not hmac.compare_digest("".join(form.get("token", [])).encode(), self._token.encode()):
            return _json(403, {"error": "the token of the page is missing: look at the page again"})
        found: Captured | None = self._shelf.get(int(number)) if number.isascii() and number.isdigit() else None
        if found is None:
            return _json(404, {"error": "no such delivery is kept"})
        await self._pass_on(self._checker.signed_again(found.headers, found.body), found.body, found.number)
        return _Reply(status=303, headers=(("location", "/"),), body=b"")

    def _all(self) -> list[dict[str, Any]]:
        return [shown(each, with_data=self._settings.with_data) for each in self._shelf.newest_first()]

    def _page(self) -> _Reply:
        body = render_page(self._all(), target=self._settings.target, keep=self._settings.keep, token=self._token)
        kept = (("content-type", "text/html; charset=utf-8"), ("content-security-policy", POLICY))
        return _Reply(status=200, headers=(*kept, ("referrer-policy", "no-referrer")), body=body)


def _returned(ending: Answered | Failed) -> _Reply:
    """Return the listener's own answer; where none came, a problem that says whether something may have been done."""
    if isinstance(ending, Answered):
        return _Reply(status=ending.status, headers=passed_on(ending.headers), body=ending.body)
    if ending.was_sent:
        return _problem(ErrorCode.AMBIGUOUS_RESULT, "target_silent", 504)
    return _problem(ErrorCode.SOURCE_UNAVAILABLE, "target_unreachable", 503)


def _problem(code: ErrorCode, reason: str, status: int) -> _Reply:
    body = render_problem(Problem(code=code, reason=reason, status=status))
    return _Reply(status=status, headers=(("content-type", PROBLEM_TYPE),), body=body)


def _json(status: int, document: Mapping[str, Any]) -> _Reply:
    kept = (("content-type", "application/json"), ("x-content-type-options", "nosniff"))
    return _Reply(status=status, headers=kept, body=json.dumps(document, indent=2).encode() + b"\n")


async def _live(receive: Receive, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(send: Send, reply: _Reply) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in reply.headers]
    if all(name != b"cache-control" for name, _ in headers):
        headers.append((b"cache-control", b"no-store"))
    if reply.status != 304:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
