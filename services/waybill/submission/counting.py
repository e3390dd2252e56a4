"""Counts every request by the path it came to, whoever answers it."""

import time
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waybill.submission.answering import CODE
from waybill.submission.metrics import NO_PATH, Meter

__all__ = ["Counting"]

#: What a request is counted as that nobody answered: its handling broke.
_BROKEN: Final = 500
#: Probes are no requests of anybody.
_UNCOUNTED: Final = {"/healthz"}


class Counting:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request through and count what it was answered."""
        if scope["type"] != "http" or scope["path"] in _UNCOUNTED:
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), _BROKEN

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            route: Any = scope.get("route")
            path = getattr(route, "path", NO_PATH)
            self._meter.answered(path, status, scope.get(CODE), time.perf_counter() - started)
