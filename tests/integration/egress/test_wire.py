"""What a client really connects to and really sends, against sockets that count."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from waybill.egress import connections as module
from waybill.egress.client import GuardedClient
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import Answer, HttpLimits, PostError, PostFailure

HEADERS = [("content-type", "a/b"), ("webhook-id", "x")]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Write = Callable[[bytes], Awaitable[None]]


class Peer:
    """A server on one address of this machine that keeps what it was sent."""

    def __init__(self, answer: Callable[[Write], Awaitable[None]]) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.ended = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                self.requests.append(head)
                await self.answer(write)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.ended.set()
            writer.close()


def says(data: bytes) -> Callable[[Write], Awaitable[None]]:
    async def answer(write: Write) -> None:
        await write(data)

    return answer


@asynccontextmanager
async def peer(
    answer: Callable[[Write], Awaitable[None]], address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Peer]:
    it = Peer(answer)
    server = await asyncio.start_server(it.serve, address, port)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()


def knows(*answers: Sequence[str]) -> Callable[[str], Awaitable[Sequence[str]]]:
    left = list(answers)

    async def resolver(host: str) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolver


@asynccontextmanager
async def client(
    url: str,
    resolver: Callable[[str], Awaitable[Sequence[str]]] | None = None,
    networks: tuple[str, ...] = ("127.0.0.1/32",),
    total_s: float = 10.0,
) -> AsyncIterator[GuardedClient]:
    limits = HttpLimits(connect_s=5.0, read_s=total_s, total_s=total_s, connections=4)
    outbound = Outbound(destination="acme/crm", urls=(url,), limits=limits, allow_networks=networks)
    made = GuardedClient(outbound, resolver) if resolver else GuardedClient(outbound)
    try:
        yield made
    finally:
        await made.close()


async def post(made: GuardedClient) -> Answer | str:
    try:
        return await made.post(made.outbound.urls[0], HEADERS, b"{}")
    except PostError as error:
        return error.detail or error.failure.value


async def test_a_name_is_connected_to_where_we_looked_it_up_and_nobody_else_is_asked() -> None:
    only_we_know = knows(["127.0.0.1"])
    async with peer(says(OK)) as it, client(f"http://crm.invalid:{it.port}/x", only_we_know) as made:
        assert await post(made) == Answer(200, b"ok", None)

    assert f"host: crm.invalid:{it.port}".encode() in it.requests[0]


async def test_a_name_that_is_rebound_between_look_up_and_connection_is_never_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.0)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    async with peer(says(OK)) as good, peer(says(OK), "127.0.0.2", good.port) as evil:
        resolver = knows(["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"])
        async with client(f"http://crm.invalid:{good.port}/x", resolver) as made:
            answers = [await post(made) for _ in range(4)]

    assert answers[0] == Answer(200, b"ok", None)
    assert answers[-1] == "egress_loopback"
    assert evil.connections == 0


async def test_the_machines_own_resolver_is_asked_and_its_answer_judged() -> None:
    async with client("http://localhost.localdomain:9/", networks=()) as made:
        assert await post(made) == "egress_loopback"
    async with client("http://no-such-host.invalid/") as made:
        assert await post(made) == "name_not_resolved"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
async def test_a_redirect_is_an_answer_and_where_it_points_to_is_never_connected_to(status: int) -> None:
    async with peer(says(OK)) as there:
        head = f"HTTP/1.1 {status} x\r\nlocation: http://127.0.0.1:{there.port}/\r\ncontent-length: 0\r\n\r\n"
        async with peer(says(head.encode())) as here, client(f"http://127.0.0.1:{here.port}/") as made:
            answer = await post(made)

    assert isinstance(answer, Answer)
    assert (answer.status, there.connections) == (status, 0)


async def drips_a_body(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while True:
        await write(b"x")
        await asyncio.sleep(0.02)


async def drips_a_head(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await write(b"x-a: b\r\n")
        await asyncio.sleep(0.05)


async def talks_without_end(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")


async def sends_headers_without_end(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await write(b"x-a: " + b"b" * 1000 + b"\r\n")


async def sends_one_header_without_end(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nx-a: ")
    while True:
        await write(b"b" * 0x4000)


@pytest.mark.requirement("AM-5")
@pytest.mark.parametrize("answer", [drips_a_body, drips_a_head])
async def test_an_answer_that_drips_is_given_up_when_the_attempts_time_is_over(
    answer: Callable[[Write], Awaitable[None]],
) -> None:
    async with peer(answer) as slow, client(f"http://127.0.0.1:{slow.port}/", total_s=0.5) as made:
        began = time.monotonic()
        assert await post(made) == PostFailure.TIMEOUT
        took_s = time.monotonic() - began
        await asyncio.wait_for(slow.ended.wait(), 10)  # and its connection is closed

    assert took_s < 3.0


@pytest.mark.parametrize("answer", [talks_without_end, sends_headers_without_end, sends_one_header_without_end])
async def test_an_answer_without_end_is_read_up_to_a_limit_and_its_connection_closed(
    answer: Callable[[Write], Awaitable[None]],
) -> None:
    async with peer(answer) as loud, client(f"http://127.0.0.1:{loud.port}/") as made:
        assert await post(made) == PostFailure.ANSWER
        await asyncio.wait_for(loud.ended.wait(), 10)


async def test_exactly_these_headers_leave() -> None:
    async with peer(says(OK)) as it, client(f"http://127.0.0.1:{it.port}/x") as made:
        await post(made)

    first, *headers = it.requests[0].decode().strip().split("\r\n")
    assert first == "POST /x HTTP/1.1"
    assert sorted(header.split(":")[0] for header in headers) == [
        "accept",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "webhook-id",
    ]
