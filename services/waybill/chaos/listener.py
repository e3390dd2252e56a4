"""The listener of a campaign: notes every request durably, does its effect by profile, and misbehaves by the seed.

A program of its own that imports nothing of Waybill: `python -m waybill.chaos.listener settings.json`. The settings:
`seed`, `ledger` (file to append to), `memory` (its SQLite file), and by name the destinations with `profile` and
`shares`. It prints one JSON line with the port of each, and serves until SIGTERM.

An arrival is in the ledger before anything is done, an effect before anything is answered: both are synced to the
disk first, many at a time. What a destination remembers is its profile's: `durable_idempotent` keeps every operation
in SQLite and answers a repeat as the first time, `bounded_deduplication` forgets after a while, `non_idempotent`
remembers nothing and acts each time. A second body under a known id is refused.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import uvloop

from waybill.chaos.core.mischief import Mischief, lasts_s, mischief_for
from waybill.chaos.wire import Client, Request, serve

__all__ = ["Ledger", "Listener", "Memory", "main"]

#: What one effect takes at least, in seconds: enough for kills to find attempts in flight.
WORK_S: Final = 0.03
#: How long a destination of bounded deduplication remembers.
REMEMBERS_S: Final = 600.0
RETRY_AFTER_S: Final = 1
#: So long those who wait for the disk gather before one sync serves them all.
GATHER_S: Final = 0.005
_SIDE: Final = "listener"
#: Acts, then does not answer well.
_BAD_ANSWERS: Final = frozenset({Mischief.LISTENER_HALF, Mischief.LISTENER_LATE})


class Ledger:
    """An append-only file; `durable` returns when everything appended before is on the disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._count = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._syncing: asyncio.Task[None] | None = None

    def arrived(self, entry: dict[str, Any]) -> int:
        """Append an arrival and return its number."""
        self._count += 1
        self._append({"n": self._count, **entry})
        return self._count

    def done(self, number: int) -> None:
        """Append the effect of an arrival."""
        self._append({"done": number})

    def _append(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")

    async def durable(self) -> None:
        """Wait for the next sync; those who wait meanwhile share one."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        await waiter

    async def _sync(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            await asyncio.sleep(GATHER_S)
            waiting += self._waiting
            self._waiting = []
            self._file.flush()
            os.fsync(self._file.fileno())
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        self._syncing = None


class Memory:
    """What was done, by destination and id, for as long as a profile remembers."""

    def __init__(self, path: str) -> None:
        self._base = sqlite3.connect(path, isolation_level=None)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS done (destination TEXT, id TEXT, body TEXT, number INTEGER, at REAL, "
            "PRIMARY KEY (destination, id)) WITHOUT ROWID"
        )

    def recall(self, destination: str, profile: str, delivery: str, now: float) -> tuple[str, int] | None:
        """Return body digest and number of what was done before, as far as the profile remembers."""
        if profile == "non_idempotent":
            return None
        row = self._base.execute(
            "SELECT body, number, at FROM done WHERE destination = ? AND id = ?", (destination, delivery)
        ).fetchone()
        if row is None or (profile == "bounded_deduplication" and now - row[2] > REMEMBERS_S):
            return None
        return row[0], row[1]

    def keep(self, destination: str, delivery: str, body: str, number: int, now: float) -> None:
        """Remember what was done."""
        self._base.execute(
            "INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?, ?)", (destination, delivery, body, number, now)
        )


class Listener:
    """One destination."""

    def __init__(self, seed: int, given: dict[str, Any], ledger: Ledger, memory: Memory) -> None:
        self._seed, self._ledger, self._memory = seed, ledger, memory
        self._profile, self._shares = given["profile"], given["shares"]
        self._times: dict[tuple[str, str, int], int] = {}

    async def handle(self, request: Request, client: Client) -> bool:
        """Note, act, answer; False hangs up."""
        place = request.place
        time_no = self._times[place] = self._times.get(place, 0) + 1
        mischief = mischief_for(self._seed, _SIDE, self._shares, place, time_no)
        digest = sha256(request.body).hexdigest()
        number = self._ledger.arrived(
            {
                "at": _now(),
                "destination": request.destination,
                "delivery_id": request.delivery_id,
                "aggregate": request.aggregate,
                "sequence": request.sequence,
                "body": digest,
                "signed_at": int(request.headers.get("webhook-timestamp", "0")),
                "mischief": mischief,
            }
        )
        refusal = _refusal(mischief)
        if refusal is None:
            await asyncio.sleep(
                lasts_s(self._seed, mischief, place, time_no) if mischief is Mischief.LISTENER_SLOW else WORK_S
            )
            answer = self._act(request, digest, number)
        else:
            answer = refusal
        await self._ledger.durable()
        if mischief is Mischief.LISTENER_LATE:
            await asyncio.sleep(lasts_s(self._seed, mischief, place, time_no))
        is_half = mischief is Mischief.LISTENER_HALF
        client.writer.write(answer[: len(answer) - 40] if is_half else answer)
        await client.writer.drain()
        return not is_half

    def _act(self, request: Request, digest: str, number: int) -> bytes:
        """Do the effect unless it is remembered; between looking and keeping nothing else runs."""
        now = _now()
        known = self._memory.recall(request.destination, self._profile, request.delivery_id, now)
        if known is None:
            self._memory.keep(request.destination, request.delivery_id, digest, number, now)
            self._ledger.done(number)
            return _receipt(request.delivery_id, number)
        if known[0] != digest:
            return _answer(409, b"{}")
        return _receipt(request.delivery_id, known[1])


def _refusal(mischief: Mischief | None) -> bytes | None:
    if mischief is Mischief.LISTENER_UNAVAILABLE:
        return _answer(503, b"{}")
    if mischief is Mischief.LISTENER_LIMITED:
        return _answer(429, b"{}", f"retry-after: {RETRY_AFTER_S}\r\n")
    return None


def _receipt(delivery: str, number: int) -> bytes:
    document = {
        "status": "done",
        "delivery_id": delivery,
        "source_version": f"effect-{number}",
        "count": 1,
        "evidence": f"ledger:effect/{number}",
    }
    return _answer(200, json.dumps(document).encode())


def _answer(status: int, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _now() -> float:
    return time.time()  # noqa: TID251 - a witness with a clock of its own


async def _run(settings: dict[str, Any]) -> None:
    ledger, memory = Ledger(Path(settings["ledger"])), Memory(settings["memory"])
    servers = {
        name: await serve(name, Listener(settings["seed"], given, ledger, memory).handle)
        for name, given in settings["destinations"].items()
    }
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}), flush=True)  # noqa: T201 - the ports are its only output
    await stop.wait()
    for server in servers.values():
        server.close()
    await ledger.durable()


def main(settings: str) -> None:
    """Serve what a settings file says until SIGTERM."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(json.loads(Path(settings).read_text())))


if __name__ == "__main__":
    main(sys.argv[1])
