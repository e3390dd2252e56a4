"""How far a request got: the only failures that say "nothing was sent" are those without a connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from waybill.infra.http_client import Answer, HttpClient, HttpLimits, PostError, PostFailure

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def post(url: str, **limits: float) -> Answer | PostFailure:
    wanted = {"connect_s": 10.0, "read_s": 0.5, "total_s": 1.0, **limits}
    client = HttpClient(HttpLimits(connections=1, **wanted))  # type: ignore[arg-type] # floats all
    try:
        return await client.post(url, [("webhook-id", "x")], b"{}")
    except PostError as error:
        return error.failure
    finally:
        await client.close()


async def post_to(peer: Peer, scheme: str = "http", **limits: float) -> Answer | PostFailure:
    served: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        served.append(done)
        try:
            await reader.read(10)
            await peer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            done.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        found = await post(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/", **limits)
        await asyncio.wait_for(asyncio.gather(*served), 10)  # no connection outlives its loop
        return found


def says(content: bytes) -> Peer:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()

    return peer


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.requirement("AM-5")
@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        pytest.param(says(b""), PostFailure.READ, id="closed without an answer"),
        pytest.param(resets, PostFailure.READ, id="reset after the request"),
        pytest.param(hangs, PostFailure.TIMEOUT, id="no answer in time"),
        pytest.param(says(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), PostFailure.READ, id="half an answer"),
        pytest.param(says(b"garbage\r\n\r\n"), PostFailure.ANSWER, id="not HTTP"),
        pytest.param(
            says(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + b"x" * 99_999),
            PostFailure.ANSWER,
            id="too large",
        ),
    ],
)
async def test_a_failure_after_the_first_byte_never_looks_like_one_before(peer: Peer, expected: PostFailure) -> None:
    assert await post_to(peer) is expected


@pytest.mark.requirement("AM-5")
async def test_a_refused_connection_an_unknown_name_and_failed_tls_say_that_nothing_was_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        refused = await post(f"http://127.0.0.1:{taken.getsockname()[1]}/", total_s=20.0)
    unknown = await post("http://no-such-host.invalid/", connect_s=20.0, total_s=20.0)
    plain = await post_to(says(b"HTTP/1.1 400 no\r\n\r\n"), scheme="https", total_s=20.0)

    assert [refused, unknown, plain] == [PostFailure.CONNECT] * 3


async def test_a_url_that_is_none_is_unbuildable() -> None:
    assert await post("http://[::1") is PostFailure.UNBUILDABLE


async def test_redirects_are_answers_and_nothing_is_decompressed() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    packed = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"

    assert await post_to(says(moved)) == Answer(307, b"", None)
    assert await post_to(says(packed)) == Answer(200, b"abc", None)
