"""There and back: the same bytes to the listener behind, and its answer to whoever sent them.

Left out are the headers that belong to one connection, `host` and `content-length`, which are written anew.
"""

import asyncio
from typing import Final

from waybill.capture.core.records import Answered, Failed, Headers
from waybill.conformance.core.answering import judge_answer
from waybill.conformance.posting import NotPosted, Poster
from waybill.conformance.sender import reply_of
from waybill.contracts.fabric import Level

__all__ = ["Forwarder", "passed_on"]

_OF_ONE_CONNECTION: Final = frozenset(
    {
        "connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect",
    }
)  # fmt: skip


def passed_on(headers: Headers) -> Headers:
    """Return the headers that go beyond one connection."""
    return tuple(pair for pair in headers if pair[0].lower() not in _OF_ONE_CONNECTION)


class Forwarder:
    """Passes on to one listener and says what its answer means at a level."""

    def __init__(self, poster: Poster, level: Level) -> None:
        self._poster, self._level = poster, level

    async def forward(self, headers: Headers, body: bytes) -> Answered | Failed:
        """Send and return the answer; the event loop goes on meanwhile."""
        ending = await asyncio.to_thread(self._poster.post, passed_on(headers), body)
        if isinstance(ending, NotPosted):
            return Failed(detail=ending.detail, was_sent=ending.was_sent)
        if ending.is_cut:
            return Failed(detail="the answer is larger than an answer is", was_sent=True)
        webhook_id = next((value for name, value in headers if name.lower() == "webhook-id"), "")
        verdict = judge_answer(reply_of(ending, webhook_id), self._level)
        return Answered(
            status=ending.status,
            headers=ending.headers,
            body=ending.body,
            took_ms=ending.took_ms,
            meaning=verdict.meaning.value,
            why=verdict.why,
        )
