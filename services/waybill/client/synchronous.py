"""The client for programs without an event loop. It may be shared by threads."""

import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx

from waybill.client.core import operations
from waybill.client.core.operations import BATCH, SINGLE, Call, Pause, Told, body_of
from waybill.client.core.records import Command, Delivery, Submission, Waited
from waybill.client.exchange import PATIENCE_S, TIMEOUT_S, auth_of, headers_of, lost, reply
from waybill.infra.clock import SystemClock

__all__ = ["Client"]

_Found = TypeVar("_Found")


class Client:
    """Speaks to one API with one key; close it, or use it in a `with` block."""

    def __init__(
        self,
        url: str,
        key: str | httpx.Auth,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect with the first request.

        Args:
            url: of the API, without a path.
            key: the API key; or a `RequestSigner`, to sign requests instead.
            timeout_s: of one attempt.
            patience_s: of one call, all its attempts and waits together.
            transport: in place of httpx's own, where TLS or proxies are special.
        """
        self._url, self._patience_s = url.rstrip("/"), patience_s
        self._http = httpx.Client(headers=headers_of(key), auth=auth_of(key), timeout=timeout_s, transport=transport)
        self._clock, self._never = SystemClock(), threading.Event()

    def submit(self, command: Mapping[str, Any] | bytes, idempotency_key: str) -> Submission:
        """Submit one command; the same command under the same key is the same submission.

        Args:
            command: its members as the guide names them; bytes are sent as they are.
            idempotency_key: your name for this submission: new for every new one, and remembered by you.

        Raises:
            RefusalError: refused; nothing of it was taken.
            AmbiguousError: nobody knows whether it was taken; submit the same under the same key again.
            UnavailableError: nobody answered; nothing was taken.
        """
        return self._run(operations.submit(SINGLE, body_of(command), idempotency_key, self._patience_s))

    def submit_batch(self, commands: Sequence[Mapping[str, Any]] | bytes, idempotency_key: str) -> Submission:
        """Submit up to a thousand commands, all or none; otherwise as `submit`."""
        return self._run(operations.submit(BATCH, body_of(commands), idempotency_key, self._patience_s))

    def submission(self, submission_id: UUID) -> Submission | None:
        """Return what was taken under an id, None where nothing of this principal was."""
        return self._run(operations.find(submission_id, self._patience_s))

    def deliveries(self, **filters: object) -> Iterator[Delivery]:
        """Yield the tenant's deliveries, newest first, page by page as they are taken.

        Args:
            filters: `destination`, `state`, `aggregate`, `requestId`, `commandId`; `limit` is the size of a page.
        """
        cursor: str | None = None
        while True:
            page = self._run(operations.page(filters, cursor, self._patience_s))
            yield from page.deliveries
            if (cursor := page.cursor) is None:
                return

    def wait(self, command: Command | UUID, timeout_s: float, destinations: Collection[str] | None = None) -> Waited:
        """Wait until every destination of a command stands where only people move it on, or the time is over.

        Returns states, by destination, and never raises because of one. Give the command as `submit` returned it, or
        name the destinations: of an id alone only those are known that the read model has seen.
        """
        return self._run(operations.wait(command, destinations, timeout_s))

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, operation: Generator[Call | Pause, Told, _Found]) -> _Found:
        started = self._clock.monotonic()
        try:
            wanted = next(operation)
            while True:
                came = None
                if isinstance(wanted, Pause):
                    self._never.wait(wanted.seconds)
                else:
                    came = self._call(wanted)
                wanted = operation.send(Told(self._clock.monotonic() - started, came))
        except StopIteration as done:
            found: _Found = done.value
            return found

    def _call(self, call: Call) -> Any:
        try:
            return reply(
                self._http.request(call.method, self._url + call.path, headers=call.headers, content=call.body)
            )
        except httpx.TransportError as error:
            return lost(error)
