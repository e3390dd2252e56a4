"""Deliver: in Kafka → acknowledged with durable state, one worker process, an instant listener on the same cores.

The subject is the real worker, in this process, from the moment a backlog becomes visible to the moment the group's
committed offsets pass its last record: outcome and state are in Kafka by then, since they ride in the same
transactions. The baseline is a bare pyreqwest loop: same process, event loop, body, connections and listener.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import psutil
import uvloop
from pyreqwest.client import Client, ClientBuilder

from waybill.bench.core.pairs import Arm, PairedRun, abba
from waybill.bench.workload import Backlog
from waybill.bench.world import DESTINATION, InstantListener, Shape, World, instant_listener, make_world
from waybill.contracts.fabric import FabricConfig, Profile
from waybill.contracts.names import delivery_group
from waybill.delivery.main import make_worker
from waybill.delivery.ports import Clients
from waybill.delivery.worker import Worker, WorkerSettings
from waybill.infra.clock import SystemClock
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.runner import calm_collector
from waybill.kernel.errors import UnavailableError

__all__ = ["DeliverOptions", "FixedConfig", "bench_deliver", "drain", "running_worker", "worker_of"]

_PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.05
_MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverOptions:
    """How much is delivered."""

    commands: int = 20_000
    pairs: int = 5
    #: Deliver this many more in one go and watch memory; 0 leaves it out.
    soak: int = 0
    #: The listener answers after this time, in the worker's arm and in the bare loop's.
    listener_ms: int = 0
    aggregates: int = 2_000
    profile: Profile = Profile.DURABLE_IDEMPOTENT

    @property
    def concurrency(self) -> int:
        """Return how many attempts may be in flight: a slow listener is not to be what is measured."""
        return 512 if self.listener_ms else 128

    @property
    def connections(self) -> int:
        """Return how many connections the bare loop keeps busy."""
        return 512 if self.listener_ms else 64


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """A configuration that does not change while a benchmark runs."""

    config: FabricConfig

    def current(self) -> FabricConfig:
        """Return it."""
        return self.config


def worker_of(world: World, url: str, slot: str, environ: Mapping[str, str], clients: Clients | None = None) -> Worker:
    """Make a real worker of the world; nothing is started."""
    settings = WorkerSettings(bootstrap=world.stack.kafka, slot=slot)
    config = FixedConfig(world.config(url))
    return make_worker(world.addresses(), settings, config, environ, SystemClock(), clients)


@asynccontextmanager
async def running_worker(
    world: World, url: str, slot: str = "", clients: Clients | None = None
) -> AsyncIterator[Worker]:
    """Run a real worker of the world on this loop; it is drained at the end."""
    calm_collector()  # as the worker's own process does; the raw loop runs under the same
    worker = worker_of(world, url, slot or world.database, {}, clients)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        while not worker.is_ready()["configured"]:
            if running.done():
                await running
            await asyncio.sleep(_POLL_S)
        yield worker
    finally:
        stop.set()
        await running


@dataclass(slots=True)
class _Sample:
    """What the subject arm measured."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def drain(backlog: Backlog, offsets: GroupOffsets, group: str, commands: int) -> tuple[float, float]:
    """Deliver a backlog; return seconds and CPU seconds of this process from its visibility on.

    The brokers are asked in a thread: the loop belongs to the worker that is measured.

    Raises:
        UnavailableError: it was not delivered in time.
    """
    ends = await asyncio.to_thread(backlog.load, commands)
    cpu = time.process_time()
    deadline = time.monotonic() + _PATIENCE_S
    while not await asyncio.to_thread(_is_passed, offsets, group, ends):
        if time.monotonic() > deadline:
            raise UnavailableError(f"{commands} commands were not delivered within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(_POLL_S)
    return time.monotonic() - backlog.visible_at, time.process_time() - cpu


def _is_passed(offsets: GroupOffsets, group: str, ends: Mapping[tuple[str, int], int]) -> bool:
    committed = offsets.committed(group)
    return all(committed.get(place, 0) >= end for place, end in ends.items())


class _Bench:
    """One run on one world."""

    def __init__(self, world: World, listener: InstantListener, options: DeliverOptions) -> None:
        self._world, self._listener, self._options = world, listener, options
        self._backlog = Backlog(world.stack.kafka, world.tenants[0], aggregates=options.aggregates)
        self._offsets = GroupOffsets(world.stack.kafka)
        self._group = delivery_group(world.tenants[0], DESTINATION)
        self.sample = _Sample()

    async def drain(self, commands: int) -> tuple[float, float]:
        """Deliver a backlog; return seconds and CPU seconds of this process from its visibility on."""
        return await drain(self._backlog, self._offsets, self._group, commands)

    async def subject(self) -> None:
        """Measure the worker once."""
        commands = self._options.commands
        seconds, cpu = await self.drain(commands)
        self.sample.rates.append(commands / seconds)
        self.sample.cpu_us.append(cpu / commands * 1e6)
        self.sample.seconds += seconds

    async def baseline(self, client: Client) -> float:
        """Measure the bare loop once; return its rate."""
        body = b'{"subject":"bench/raw","aggregatesequence":1,"data":"%b"}' % (b"x" * 900)
        headers = [("content-type", "application/cloudevents+json"), ("webhook-id", "0" * 36)]
        commands = self._options.commands
        numbers = iter(range(commands))

        async def loop() -> None:
            for _ in numbers:
                answer = await client.post(self._listener.url).headers(headers).body_bytes(body).build().send()
                await answer.bytes()

        started = time.monotonic()
        await asyncio.gather(*(loop() for _ in range(self._options.connections)))
        return commands / (time.monotonic() - started)


def _rss_mb() -> float:
    return float(psutil.Process().memory_info().rss) / _MB


async def _run(world: World, options: DeliverOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    with instant_listener(delay_ms=options.listener_ms) as listener:
        bench = _Bench(world, listener, options)
        client = ClientBuilder().no_proxy().follow_redirects(False).timeout(timedelta(seconds=20)).build()
        async with client, running_worker(world, listener.url):
            progress("warming up")
            await bench.drain(min(2_000, options.commands))
            await bench.baseline(client)
            raw: list[float] = []
            rss = _rss_mb()
            for number, arm in enumerate(abba(options.pairs)):
                progress(f"pair {number // 2 + 1} of {options.pairs}: {arm}")
                if arm is Arm.SUBJECT:
                    await bench.subject()
                else:
                    raw.append(await bench.baseline(client))
            run = PairedRun(subject=bench.sample.rates, baseline=raw)
            soak = await _soak(bench, options, progress) if options.soak else {}
            inversions = listener.ledger()["inversions"]
    sample = bench.sample
    return {
        "bench": "deliver",
        "commands": options.commands * options.pairs,
        "bytes": 1_000 * options.commands * options.pairs,
        "seconds": round(sample.seconds, 2),
        "pairs": options.pairs,
        "durability": world.durability,
        "profile": options.profile.value,
        "listener_ms": options.listener_ms,
        "aggregates": options.aggregates,
        "deliveries_per_s": round(run.subject_median),
        "raw_loop_per_s": round(run.baseline_median),
        "ratio_to_raw_loop": round(run.ratio, 3),
        "cpu_us_per_delivery": round(sorted(sample.cpu_us)[len(sample.cpu_us) // 2], 1),
        "order_inversions": inversions,
        "rss_mb_start": round(rss, 1),
        "rss_mb": round(_rss_mb(), 1),
        **soak,
        "invalid": run.is_invalid,
    }


async def _soak(bench: _Bench, options: DeliverOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Deliver many more and sample memory after each tenth."""
    tenth = max(1, options.soak // 10)
    samples: list[float] = []
    started = time.monotonic()
    for number in range(10):
        progress(f"soak: {number * tenth:,} of {options.soak:,}, {_rss_mb():.0f} MB")
        await bench.drain(tenth)
        samples.append(round(_rss_mb(), 1))
    return {"soak": {"commands": tenth * 10, "seconds": round(time.monotonic() - started, 1), "rss_mb": samples}}


def bench_deliver(options: DeliverOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    shape = Shape(profile=options.profile, concurrency=options.concurrency)
    with (
        make_world(progress, shape=shape) as world,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_run(world, options, progress))
