"""Listener: how many commands a second the SDK verifies, executes once and answers for, durably.

The listener is a process of its own on PostgreSQL, one row of business per command. Requests are signed before the
clock starts and sent over as many connections as are asked for; every answer must be a receipt, and the rows must be
as many as the requests.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import uvloop
from pyreqwest.client import Client, ClientBuilder

from waybill.bench.core.pairs import MAX_SPREAD, spread
from waybill.bench.workload import DATA, backlog_headers
from waybill.bench.world import AGGREGATE_TYPE, DESTINATION, World, make_world
from waybill.contracts.command import parse_command
from waybill.contracts.envelope import CONTENT_TYPE, delivery_id_text, render
from waybill.crypto.keys import jwks_document, read_keys, signing_path
from waybill.crypto.signing import Signer
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError

__all__ = ["ListenerOptions", "bench_listener"]

_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """How much is sent: `commands` requests in each of `rounds` rounds."""

    commands: int = 5_000
    rounds: int = 5
    connections: int = 32


@dataclass(frozen=True, slots=True)
class _Request:
    headers: Sequence[tuple[str, str]]
    body: bytes


def _signed(world: World, signer: Signer, count: int, prefix: str) -> list[_Request]:
    tenant, stamp = world.tenants[0], int(SystemClock().now().timestamp())
    found = []
    for number in range(count):
        aggregate = f"{AGGREGATE_TYPE}/{prefix}-{number}"
        command = parse_command(aggregate.encode(), backlog_headers(tenant, aggregate), DATA)
        body, webhook_id = render(command, DESTINATION), delivery_id_text(command.command_id, DESTINATION)
        headers = (
            ("content-type", CONTENT_TYPE),
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(stamp)),
            ("webhook-signature", signer.sign(webhook_id, stamp, body)),
        )
        found.append(_Request(headers, body))
    return found


@contextmanager
def _listening(world: World, folder: Path) -> Iterator[tuple[str, Signer]]:
    """Run the listener until the block ends."""
    keys = read_keys(signing_path(world.stack.keys_dir, world.tenants[0]))
    known = folder / "jwks.json"
    known.write_text(json.dumps(jwks_document(keys)))
    command = [sys.executable, "-m", "waybill.bench.durable_listener", "--tenant", world.tenants[0]]
    command += ["--dsn", world.admin_dsn, "--keys", str(known)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise UnavailableError("the listener did not start: its messages are above")
            yield url, Signer(keys)
        finally:
            process.terminate()


async def _send(client: Client, url: str, requests: Sequence[_Request], connections: int) -> float:
    """Send all of them; return requests per second."""
    waiting = iter(requests)

    async def loop() -> None:
        for request in waiting:
            answer = await client.post(url).headers(request.headers).body_bytes(request.body).build().send()
            text = await answer.text()
            if answer.status != _OK:
                raise UnavailableError(f"the listener answered {answer.status}: {text}")

    started = time.monotonic()
    await asyncio.gather(*(loop() for _ in range(connections)))
    return len(requests) / (time.monotonic() - started)


async def _run(
    world: World, url: str, signer: Signer, options: ListenerOptions, progress: Callable[[str], None]
) -> list[float]:
    rates = []
    client = ClientBuilder().no_proxy().follow_redirects(False).timeout(timedelta(seconds=30)).build()
    async with client:
        for number in range(options.rounds + 1):
            progress(f"round {number} of {options.rounds}" if number else "warming up")
            requests = _signed(world, signer, options.commands if number else options.commands // 5 or 1, str(number))
            rate = await _send(client, url, requests, options.connections)
            if number:
                rates.append(rate)
    return rates


def _rows(world: World) -> int:
    with closing(connect(world.admin_dsn)) as connection:
        row = connection.execute("SELECT count(*) FROM business").fetchone()
    return int(row[0]) if row is not None else 0


def bench_listener(options: ListenerOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report.

    Raises:
        UnavailableError: the listener did not start, or answered something else than a receipt.
    """
    with (
        make_world(progress) as world,
        tempfile.TemporaryDirectory() as folder,
        _listening(world, Path(folder)) as (url, signer),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rates = runner.run(_run(world, url, signer, options, progress))
        rows = _rows(world)
        durability = world.durability.rpartition(", ")[2]
    sent = options.commands * options.rounds + (options.commands // 5 or 1)
    return {
        "bench": "listener",
        "commands": sent,
        "bytes": 1_000 * sent,
        "seconds": round(sum(options.commands / rate for rate in rates), 2),
        "pairs": options.rounds,
        "durability": durability,
        "applied_per_s": round(statistics.median(rates)),
        "rows": rows,
        "lost_or_doubled": rows - sent,
        "invalid": len(rates) < 2 or spread(rates) > MAX_SPREAD,
    }
