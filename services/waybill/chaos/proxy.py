"""The proxy of a campaign, between workers and listener: carries every request, spoils some by the seed, notes all.

A program of its own that imports nothing of Waybill: `python -m waybill.chaos.proxy settings.json`. The settings:
`seed`, `exchanges` (file to append to), and by name the destinations with the listener's `port` and `shares`. It
prints one JSON line with the port of each, and serves until SIGTERM; then exchanges still under way are noted too.

It never makes an answer up: what a sender gets is the listener's own answer, whole, in part, slowly or not at all.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from waybill.chaos.core.mischief import Mischief, lasts_s, mischief_for
from waybill.chaos.wire import Client, Request, read_answer, reset, serve

__all__ = ["Notes", "Proxy", "main"]

_SIDE: Final = "proxy"
_DROPS: Final = 16
_BROKEN: Final = (asyncio.IncompleteReadError, ConnectionError)


class Notes:
    """The book of exchanges: a line when one ends, and for those under way a line at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._open: dict[int, dict[str, Any]] = {}
        self._count = 0

    def begin(self, request: Request, port: int, mischief: Mischief | None) -> int:
        """Note the begin of an exchange and return its number."""
        self._count += 1
        self._open[self._count] = {
            "at": _now(),
            "port": port,
            "destination": request.destination,
            "delivery_id": request.delivery_id,
            "mischief": mischief,
        }
        return self._count

    def senders(self) -> list[int]:
        """Return the ports of senders with an exchange under way."""
        return sorted({entry["port"] for entry in self._open.values()})

    def end(self, number: int) -> None:
        """Note that an answer is out, or that its sender is gone; too late when the book is closed."""
        if (entry := self._open.pop(number, None)) is not None:
            self._write({**entry, "until": _now()})

    def close(self) -> None:
        """Note what is still under way."""
        still_open, self._open = self._open, {}
        for entry in still_open.values():
            self._write({**entry, "until": None})
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")


class Proxy:
    """The way to one destination."""

    def __init__(self, seed: int, given: dict[str, Any], notes: Notes) -> None:
        self._seed, self._notes = seed, notes
        self._port, self._shares = given["port"], given["shares"]
        self._times: dict[tuple[str, str, int], int] = {}
        self._late: set[asyncio.Task[bytes]] = set()
        #: Connections to the listener that wait for their next request.
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def handle(self, request: Request, client: Client) -> bool:
        """Carry one request; False hangs up. One without a body asks who has a request under way."""
        if not request.body:
            told = json.dumps(self._notes.senders()).encode()
            client.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told))
            return True
        time_no = self._times[request.place] = self._times.get(request.place, 0) + 1
        mischief = mischief_for(self._seed, _SIDE, self._shares, request.place, time_no)
        number = self._notes.begin(request, client.port, mischief)
        try:
            return await self._carry(request, client, mischief, time_no)
        finally:
            self._notes.end(number)

    async def _carry(self, request: Request, client: Client, mischief: Mischief | None, time_no: int) -> bool:
        if mischief is Mischief.PROXY_RESET_BEFORE:
            reset(client.writer)
            return False
        pause_s = 0.0
        if mischief in {Mischief.PROXY_DELAY, Mischief.PROXY_DRIP, Mischief.PROXY_LATE_ORIGINAL}:
            pause_s = lasts_s(self._seed, mischief, request.place, time_no)
        if mischief is Mischief.PROXY_LATE_ORIGINAL:
            reset(client.writer)
            late = asyncio.create_task(self._forward(request, pause_s))
            self._late.add(late)
            late.add_done_callback(self._arrived)
            return False
        answer = await self._forward(request, pause_s if mischief is Mischief.PROXY_DELAY else 0.0)
        if not answer:
            return False
        if mischief is Mischief.PROXY_RESET_AFTER:
            reset(client.writer)
            return False
        if mischief is Mischief.PROXY_HALF:
            client.writer.write(answer[: len(answer) - 40])
            await client.writer.drain()
            return False
        await _pass_on(answer, client, pause_s if mischief is Mischief.PROXY_DRIP else 0.0)
        return True

    def _arrived(self, late: asyncio.Task[bytes]) -> None:
        self._late.discard(late)

    async def _forward(self, request: Request, pause_s: float) -> bytes:
        """Pass a request on after a pause and return the answer; empty when the listener sent no whole one."""
        if pause_s:
            await asyncio.sleep(pause_s)
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request.head + request.body)
            answer = await read_answer(reader)
        except _BROKEN:
            writer.close()
            return b""
        self._idle.append((reader, writer))
        return answer


async def _pass_on(answer: bytes, client: Client, drips_s: float) -> None:
    """Send an answer, at once or in drops over a time."""
    if not drips_s:
        client.writer.write(answer)
    else:
        size = -(-len(answer) // _DROPS)
        for start in range(0, len(answer), size):
            client.writer.write(answer[start : start + size])
            await client.writer.drain()
            await asyncio.sleep(drips_s / _DROPS)
    await client.writer.drain()


def _now() -> float:
    return time.time()  # noqa: TID251 - a witness with a clock of its own


async def _run(settings: dict[str, Any]) -> None:
    notes = Notes(Path(settings["exchanges"]))
    servers = {
        name: await serve(name, Proxy(settings["seed"], given, notes).handle)
        for name, given in settings["destinations"].items()
    }
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}), flush=True)  # noqa: T201 - the ports are its only output
    await stop.wait()
    for server in servers.values():
        server.close()
    notes.close()


def main(settings: str) -> None:
    """Serve what a settings file says until SIGTERM."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(json.loads(Path(settings).read_text())))


if __name__ == "__main__":
    main(sys.argv[1])
