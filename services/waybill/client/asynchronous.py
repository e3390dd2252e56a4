"""The client for one event loop; everything else is as in `Client`."""

import asyncio
from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx

from waybill.client.core import operations
from waybill.client.core.operations import BATCH, SINGLE, Call, Pause, Told, body_of
from waybill.client.core.records import Command, Delivery, Submission, Waited
from waybill.client.exchange import PATIENCE_S, TIMEOUT_S, auth_of, headers_of, lost, reply
from waybill.infra.clock import SystemClock

__all__ = ["AsyncClient"]

_Found = TypeVar("_Found")


class AsyncClient:
    """Speaks to one API with one key; close it, or use it in a `async with` block."""

    def __init__(
        self,
        url: str,
        key: str | httpx.Auth,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
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
        self._http = httpx.AsyncClient(
            headers=headers_of(key), auth=auth_of(key), timeout=timeout_s, transport=transport
        )
        self._clock = SystemClock()

    async def submit(self, command: Mapping[str, Any] | bytes, idempotency_key: str) -> Submission:
        """Submit one command."""
        return await self._run(operations.submit(SINGLE, body_of(command), idempotency_key, self._patience_s))

    async def submit_batch(self, commands: Sequence[Mapping[str, Any]] | bytes, idempotency_key: str) -> Submission:
        """Submit up to a thousand commands, all or none."""
        return await self._run(operations.submit(BATCH, body_of(commands), idempotency_key, self._patience_s))

    async def submission(self, submission_id: UUID) -> Submission | None:
        """Return what was taken under an id, None where nothing was."""
        return await self._run(operations.find(submission_id, self._patience_s))

    async def deliveries(self, **filters: object) -> AsyncIterator[Delivery]:
        """Yield the tenant's deliveries, newest first."""
        cursor: str | None = None
        while True:
            page = await self._run(operations.page(filters, cursor, self._patience_s))
            for each in page.deliveries:
                yield each
            if (cursor := page.cursor) is None:
                return

    async def wait(
        self, command: Command | UUID, timeout_s: float, destinations: Collection[str] | None = None
    ) -> Waited:
        """Wait until a command stands where only people move it on, or the time is over."""
        return await self._run(operations.wait(command, destinations, timeout_s))

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, operation: Generator[Call | Pause, Told, _Found]) -> _Found:
        started = self._clock.monotonic()
        try:
            wanted = next(operation)
            while True:
                came = None
                if isinstance(wanted, Pause):
                    await asyncio.sleep(wanted.seconds)
                else:
                    came = await self._call(wanted)
                wanted = operation.send(Told(self._clock.monotonic() - started, came))
        except StopIteration as done:
            found: _Found = done.value
            return found

    async def _call(self, call: Call) -> Any:
        try:
            return reply(
                await self._http.request(call.method, self._url + call.path, headers=call.headers, content=call.body)
            )
        except httpx.TransportError as error:
            return lost(error)
