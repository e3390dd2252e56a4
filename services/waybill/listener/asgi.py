"""The edge to ASGI: reading one request, writing one answer. No web framework is needed."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, render_problem

__all__ = [
    "Answer",
    "BodyTooLarge",
    "Headers",
    "Receive",
    "Scope",
    "Send",
    "answer_problem",
    "read_body",
    "send_answer",
]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class BodyTooLarge(Exception):  # noqa: N818 - flow of this module only
    """More bytes came than are read."""


class Headers:
    """Request headers; a header that came twice has no value, because two readers could pick different ones."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[bytes, bytes | None] = {}
        for name, value in raw:
            self._values[name.lower()] = None if name.lower() in self._values else value

    def get(self, name: str) -> str | None:
        """Return the one value as ASCII text, or None: absent, repeated, or not ASCII."""
        value = self._values.get(name.encode())
        return value.decode() if value is not None and value.isascii() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    #: What it is counted as; empty where nothing was delivered.
    result: str = ""


def answer_problem(problem: Problem, *headers: tuple[str, str]) -> Answer:
    """Return a problem as an answer."""
    body = render_problem(problem)
    return Answer(
        status=problem.status, content_type=PROBLEM_TYPE, body=body, headers=headers, result=problem.code.value
    )


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Read the body up to a limit.

    Raises:
        BodyTooLarge: it is longer, by its own word or in fact.
        ConnectionError: the client went away before its end.
    """
    declared = headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client went away")
        body += message.get("body", b"")
        if len(body) > limit:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(body)


async def send_answer(send: Send, answer: Answer) -> None:
    """Write an answer."""
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-store"),
        *((name.encode(), value.encode()) for name, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
