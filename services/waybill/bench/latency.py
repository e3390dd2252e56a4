"""Latency: from a producer's commit to the first byte at the listener, through everything, at a steady rate.

The clock starts just before the producer calls commit, on this machine's wall clock, which the listener reads too.
The producer is a process's one thread with a schedule: a commit that comes late is not a reason to send the next late.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import uvloop

from waybill.bench.core.pairs import percentile
from waybill.bench.deliver import running_worker
from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE, DESTINATION, World, instant_listener, make_world
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import delivery_id
from waybill.outbox import CommandDraft, Outbox

__all__ = ["LatencyOptions", "bench_latency"]

_DATA = {"subject": "c0ffee", "reason": "request of the person", "pad": "x" * 300}
_WARM_UP_S = 5.0
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """How long and how fast."""

    rate_per_s: int = 200
    seconds: float = 30.0


def _produce(world: World, options: LatencyOptions, commits: dict[str, float]) -> None:
    """Commit on schedule; remember when each delivery's commit was called."""
    clock = SystemClock()
    total = int((options.seconds + _WARM_UP_S) * options.rate_per_s)
    pause = threading.Event()
    with closing(connect(world.app_dsn)) as connection:
        started = time.monotonic()
        for number in range(total):
            pause.wait(max(0.0, started + number / options.rate_per_s - time.monotonic()))
            draft = CommandDraft(
                aggregate_type=AGGREGATE_TYPE, aggregate_id=str(number % 500), command_type=COMMAND_TYPE, data=_DATA
            )
            issued = Outbox(connection, tenant=world.tenants[0]).emit(draft)
            at = clock.now().timestamp()
            connection.commit()
            if number >= _WARM_UP_S * options.rate_per_s:
                commits[str(delivery_id(issued.command_id, DESTINATION))] = at


async def _run(world: World, options: LatencyOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    commits: dict[str, float] = {}
    arrivals: dict[str, float] = {}
    with instant_listener(keep_arrivals=True) as listener:
        async with running_worker(world, listener.url):
            progress(f"{options.rate_per_s} commands/s for {options.seconds:.0f} s")
            await asyncio.to_thread(_produce, world, options, commits)
            deadline = time.monotonic() + _PATIENCE_S
            while not commits.keys() <= arrivals.keys():
                if time.monotonic() > deadline:
                    missing = len(commits.keys() - arrivals.keys())
                    raise UnavailableError(f"{missing} commands did not arrive within {_PATIENCE_S:.0f} s")
                arrivals |= (await asyncio.to_thread(listener.ledger))["arrivals"]
                await asyncio.sleep(0.2)
    took = [(arrivals[delivery] - at) * 1000 for delivery, at in commits.items()]
    return {
        "bench": "latency",
        "commands": len(took),
        "bytes": len(took) * len(json.dumps(_DATA)),
        "seconds": options.seconds,
        "pairs": 1,
        "durability": world.durability,
        "rate_per_s": options.rate_per_s,
        "p50_ms": round(percentile(took, 50), 1),
        "p99_ms": round(percentile(took, 99), 1),
        "max_ms": round(max(took), 1),
        "invalid": False,
    }


def bench_latency(options: LatencyOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    with make_world(progress, with_relay=True) as world, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(world, options, progress))
