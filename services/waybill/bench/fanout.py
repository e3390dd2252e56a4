"""Fan-out: what one process pays for many destinations, each of which reads every command and is named by few.

A group per destination keeps destinations apart and costs a consumer each, and every consumer is sent the whole
topic. What that comes to in memory, threads, idle work and bytes from the brokers decides how many destinations a
process should have; more processes share them by themselves.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psutil
import uvloop

from waybill.bench.deliver import running_worker
from waybill.bench.workload import Backlog
from waybill.bench.world import PARTITIONS, Shape, World, instant_listener, make_world
from waybill.delivery.ports import Clients
from waybill.delivery.worker import Worker
from waybill.infra.kafka import GroupReader, Listener
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName

__all__ = ["FanoutOptions", "bench_fanout"]

_MB: Final = 1024 * 1024
_PATIENCE_S: Final = 300.0
_IDLE_S: Final = 15.0
#: One command in so many names a destination.
_NAMED_BY: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FanoutOptions:
    """How wide."""

    destinations: int = 500
    commands: int = 2_000
    aggregates: int = 1_000


class _Received:
    """Bytes that the delivery groups' consumers received; each tells its sum so far from its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_group: dict[str, int] = {}

    def reader(self, bootstrap: str, group: str, topic: str, listener: Listener, among: int = 1) -> GroupReader:
        """Make a reader that tells."""

        def told(received: int) -> None:
            with self._lock:
                self._by_group[group] = received

        return GroupReader(bootstrap, group, topic, listener, among, told)

    def total(self) -> int:
        """Return the sum over all groups."""
        with self._lock:
            return sum(self._by_group.values())


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not await asyncio.to_thread(is_so):
        if time.monotonic() > deadline:
            raise UnavailableError(f"{what} did not happen within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(0.2)


def _taken(worker: Worker) -> int:
    return sum(actor.is_taken for group in list(worker.groups.values()) for actor in list(group.actors.values()))


def _acknowledged(worker: Worker) -> int:
    return sum(group.counts["ok"] for group in list(worker.groups.values()))


async def _run(
    world: World, options: FanoutOptions, names: Sequence[DestinationName], progress: Callable[[str], None]
) -> dict[str, Any]:
    each = max(1, len(names) // _NAMED_BY)
    received, process = _Received(), psutil.Process()
    backlog = Backlog(
        world.stack.kafka,
        world.tenants[0],
        aggregates=options.aggregates,
        destinations=lambda key: [names[(key * each + n) % len(names)] for n in range(each)],
    )
    before_mb = process.memory_info().rss / _MB
    with instant_listener() as listener:
        started = time.monotonic()
        async with running_worker(world, listener.url, clients=Clients(reader=received.reader)) as worker:
            progress(f"taking {len(names) * PARTITIONS:,} partitions of {len(names)} destinations")
            await _until(lambda: _taken(worker) == len(names) * PARTITIONS, "taking every partition")
            taken_s = time.monotonic() - started
            progress(f"idle for {_IDLE_S:.0f} s")
            cpu = time.process_time()
            await asyncio.sleep(_IDLE_S)
            idle = (time.process_time() - cpu) / _IDLE_S
            progress(f"delivering {options.commands:,} commands to {each} destinations each")
            bytes_before, at = received.total(), time.monotonic()
            await asyncio.to_thread(backlog.load, options.commands)
            await _until(lambda: _acknowledged(worker) >= options.commands * each, "delivering")
            seconds = time.monotonic() - at
            await asyncio.sleep(5.5)  # the consumers tell every five seconds
            threads, rss = process.num_threads(), process.memory_info().rss / _MB
            deliveries = options.commands * each
            fetched = (received.total() - bytes_before) / deliveries
    return {
        "bench": "fanout",
        "commands": options.commands,
        "destinations": len(names),
        "partitions": len(names) * PARTITIONS,
        "deliveries": deliveries,
        "durability": world.durability,
        "deliveries_per_s": round(deliveries / seconds),
        "taken_s": round(taken_s, 1),
        "rss_mb": round(rss, 1),
        "rss_mb_of_each": round((rss - before_mb) / len(names), 2),
        "threads": threads,
        "idle_cpu": round(idle, 3),
        "broker_bytes_per_delivery": round(fetched),
        "invalid": False,
    }


def bench_fanout(options: FanoutOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    names = tuple(DestinationName(f"d{number}") for number in range(options.destinations))
    with (
        make_world(progress, shape=Shape(destinations=names, concurrency=8)) as world,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_run(world, options, names, progress))
