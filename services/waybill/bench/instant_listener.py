"""The listener of the benchmarks: answers every request at once, or after a set time, with one complete receipt.

A process of its own with one asyncio protocol and nothing else, so that what is measured is the sender. It
remembers, per aggregate, the last sequence seen and when each delivery's first byte arrived; both are asked
for over the same port (`GET /ledger`). Destination `hanging` gets no answer at all; an aggregate whose id begins
with `dead` is answered 503. Run by `python -m waybill.bench.instant_listener`; prints its port.
"""

import argparse
import asyncio
import json
import time
from typing import Final

import uvloop

__all__ = ["main"]

_RECEIPT: Final = json.dumps(
    {
        "status": "done",
        "source_version": "1",
        "count": 1,
        "evidence": "urn:waybill:bench:instant",
        "occurred_at": "2026-01-01T00:00:00.000Z",
        "received_at": "2026-01-01T00:00:00.000Z",
        "executed_at": "2026-01-01T00:00:00.000Z",
    },
    separators=(",", ":"),
).encode()


def _answer(body: bytes) -> bytes:
    return (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)) + body


_OK: Final = _answer(_RECEIPT)
_UNAVAILABLE: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
_DEAD: Final = b"bench/dead"


class Ledger:
    """What arrived. Times are wall-clock seconds of this machine."""

    def __init__(self) -> None:
        self.last: dict[bytes, int] = {}
        self.arrivals: dict[str, float] = {}
        self.inversions = 0
        self.received = 0

    def record(self, head: bytes, body: bytes, at: float) -> bytes:
        """Count one delivery, check it against the last one of its aggregate, and return that."""
        self.received += 1
        start = body.find(b'"subject":"') + 11
        aggregate = body[start : body.index(b'"', start)]
        start = body.find(b'"aggregatesequence":') + 20
        if start < 20:  # a peer's request: it has none
            return b""
        sequence = int(body[start : body.index(b",", start)])
        if sequence < self.last.get(aggregate, 0):
            self.inversions += 1
        else:
            self.last[aggregate] = sequence
        start = head.find(b"webhook-id: ") + 12
        if start > 11:
            self.arrivals.setdefault(head[start : start + 36].decode("ascii", "replace"), at)
        return aggregate

    def take(self) -> bytes:
        """Return the ledger as JSON and start a new one."""
        report = json.dumps(
            {"received": self.received, "inversions": self.inversions, "arrivals": self.arrivals}
        ).encode()
        self.__init__()  # type: ignore[misc] # the same object stays shared by all connections
        return report


class InstantProtocol(asyncio.Protocol):
    """HTTP/1.1 with keep-alive and pipelining, as little of it as a benchmark needs."""

    def __init__(self, ledger: Ledger, *, keep_arrivals: bool, delay_s: float) -> None:
        self._ledger = ledger
        self._keep_arrivals = keep_arrivals
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._first_byte = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request in the buffer."""
        if not self._buffer:
            self._first_byte = time.time()  # noqa: TID251 - the measuring end of the latency benchmark
        buffer = self._buffer + data
        while True:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                break
            head = buffer[:end].lower()
            mark = head.find(b"content-length: ")
            length = int(head[mark + 16 : (head + b"\r\n").index(b"\r\n", mark)]) if mark >= 0 else 0
            total = end + 4 + length
            if len(buffer) < total:
                break
            self._serve(head, buffer[end + 4 : total])
            buffer = buffer[total:]
        self._buffer = buffer

    def _serve(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get /ledger"):
            self._write(_answer(self._ledger.take()))
            return
        answer = _OK
        if body:
            aggregate = self._ledger.record(head if self._keep_arrivals else b"", body, self._first_byte)
            if head.startswith(b"post /hanging"):
                return
            if aggregate.startswith(_DEAD):
                answer = _UNAVAILABLE
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        self._transport.write(answer)  # type: ignore[attr-defined]


async def _serve(*, keep_arrivals: bool, delay_s: float) -> None:
    ledger = Ledger()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: InstantProtocol(ledger, keep_arrivals=keep_arrivals, delay_s=delay_s), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the port is this process's only output
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="Answer every delivery of a benchmark.")
    parser.add_argument("--arrivals", action="store_true", help="keep the arrival time of each delivery")
    parser.add_argument("--delay-ms", type=int, default=0, help="answer after this time")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(keep_arrivals=options.arrivals, delay_s=options.delay_ms / 1000))


if __name__ == "__main__":
    main()
