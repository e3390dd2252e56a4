"""As much HTTP/1.1 as listener and proxy need: whole requests with a length, kept connections, a real reset.

Nothing of Waybill is imported: what judges must not share code with what is judged.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

__all__ = ["Client", "Request", "Serve", "read_answer", "read_request", "reset", "serve"]

_LIMIT: Final = 4 * 1024 * 1024
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, whole, and as bytes to be passed on."""

    head: bytes
    headers: dict[str, str]
    body: bytes
    destination: str
    delivery_id: str
    aggregate: str
    sequence: int

    @property
    def place(self) -> tuple[str, str, int]:
        """Destination, aggregate and sequence."""
        return (self.destination, self.aggregate, self.sequence)


@dataclass(frozen=True, slots=True)
class Client:
    """The connection a request came by."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def port(self) -> int:
        """The other side's port."""
        return int(self.writer.get_extra_info("peername")[1])


async def read_request(reader: asyncio.StreamReader, destination: str) -> Request:
    """Read one request; raises asyncio.IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    headers = _headers(head)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    event = json.loads(body) if body else {}
    return Request(
        head=head,
        headers=headers,
        body=body,
        destination=destination,
        delivery_id=str(event.get("id", "")),
        aggregate=str(event.get("subject", "")),
        sequence=int(event.get("aggregatesequence", 0)),
    )


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read one whole answer; raises asyncio.IncompleteReadError when it is not whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(_headers(head).get("content-length", "0")))


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST, as a crashed peer or a middlebox does."""
    with suppress(OSError), socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


#: Serves one request; False ends the connection.
Serve = Callable[[Request, Client], Awaitable[bool]]


async def serve(destination: str, handle: Serve) -> asyncio.Server:
    """Serve on a free port of this machine, request by request on each connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, TimeoutError):
            while await handle(await read_request(reader, destination), client):
                pass
        writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0, limit=_LIMIT, backlog=1024)
