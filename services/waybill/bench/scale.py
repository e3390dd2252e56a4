"""Scale: what a million aggregates, a hundred thousand open rows and a killed process cost.

Three parts in one report: CPU per delivery over many aggregates against few, in interleaved pairs; memory of a
worker that takes over many rows which are not due yet; and how long each partition waits for its next dispatch when
a process is killed inside a transaction, and when one ends as it is asked to.
"""

import asyncio
import itertools
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from waybill.bench.core.pairs import MIN_PAIRS, Arm, abba
from waybill.bench.deliver import drain, running_worker
from waybill.bench.victim import victim
from waybill.bench.workload import Backlog, Offer, Stream, backlog_headers
from waybill.bench.world import DESTINATION, PARTITIONS, InstantListener, World, instant_listener, make_world
from waybill.contracts.names import delivery_group
from waybill.delivery.core.stored import pack_record
from waybill.delivery.worker import Worker
from waybill.infra.clock import SystemClock
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError

__all__ = ["ScaleOptions", "bench_scale"]

_MB: Final = 1024 * 1024
_FEW: Final = 1_000
_RATE: Final = 200.0
_PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.01
_FILL: Final = """
INSERT INTO delivery.open_task (tenant, destination, partition, delivery_id, command_id, aggregate, sequence,
    record_offset, state, version, attempt, next_due, expires_at, blocks, sent, may_have_acted, record,
    created_at, updated_at)
SELECT %(tenant)s, %(destination)s, n %% %(partitions)s, gen_random_uuid(), gen_random_uuid(), 'bench/cold-' || n, 1,
    0, 'retrying', 1, 4, now() + interval '1 day', now() + interval '10 days', true, true, false, %(record)s, now(), now()
FROM generate_series(1, %(rows)s) AS n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """How much."""

    #: Commands in each arm of a pair.
    commands: int = 40_000
    pairs: int = 5
    aggregates: int = 1_000_000
    rows: int = 100_000


async def _cost(world: World, url: str, options: ScaleOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Return CPU per delivery over many aggregates against few."""
    bootstrap, tenant = world.stack.kafka, world.tenants[0]
    backlogs = {
        Arm.SUBJECT: Backlog(bootstrap, tenant, aggregates=options.aggregates, prefix="m-"),
        Arm.BASELINE: Backlog(bootstrap, tenant, aggregates=_FEW, prefix="f-"),
    }
    offsets, group = GroupOffsets(bootstrap), delivery_group(tenant, DESTINATION)
    cost: dict[Arm, list[float]] = {Arm.SUBJECT: [], Arm.BASELINE: []}
    async with running_worker(world, url):
        for number, arm in enumerate(itertools.chain((Arm.BASELINE,), abba(options.pairs))):
            progress(
                f"cost per delivery: round {number} of {options.pairs * 2}, {backlogs[arm].aggregates:,} aggregates"
            )
            _, cpu = await drain(backlogs[arm], offsets, group, options.commands)
            if number:  # the first warms up
                cost[arm].append(cpu / options.commands * 1e6)
    ratios = [a / b for a, b in zip(cost[Arm.SUBJECT], cost[Arm.BASELINE], strict=True)]
    return {
        "cpu_us_per_delivery_many": round(statistics.median(cost[Arm.SUBJECT]), 1),
        "cpu_us_per_delivery_few": round(statistics.median(cost[Arm.BASELINE]), 1),
        "cost_ratio": round(statistics.median(ratios), 2),
        "aggregates": options.aggregates,
        "aggregates_touched": min(options.aggregates, options.commands * options.pairs),
    }


def _fill(world: World, rows: int) -> None:
    """Put rows there that wait for tomorrow."""
    aggregate = "bench/cold"
    record = pack_record(aggregate.encode(), backlog_headers(world.tenants[0], aggregate), b"x" * 400)
    values = {"tenant": world.tenants[0], "destination": DESTINATION, "partitions": PARTITIONS}
    with closing(connect(world.admin_dsn)) as owner:
        owner.execute(_FILL, {**values, "record": record, "rows": rows})
        owner.commit()
        owner.autocommit = True
        owner.execute("ANALYZE delivery.open_task")


@dataclass(slots=True)
class _Watch:
    """A steady stream, and when each partition's deliveries began to arrive."""

    world: World
    listener: InstantListener
    stream: Stream
    arrivals: dict[str, float] = field(default_factory=dict)

    def by_partition(self) -> dict[int, list[float]]:
        """Return the arrivals of each partition, in order of time."""
        self.arrivals |= self.listener.ledger()["arrivals"]
        found: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        for delivery, at in sorted(self.arrivals.items(), key=lambda entry: entry[1]):
            partition = self.stream.partitions.get(delivery)
            if partition is not None:
                found[partition].append(at)
        return found

    async def until(self, is_so: Callable[[dict[int, list[float]]], bool], what: str) -> dict[int, list[float]]:
        """Wait for a fact about the arrivals."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = await asyncio.to_thread(self.by_partition)
            if is_so(found):
                return found
            if time.monotonic() > deadline:
                raise UnavailableError(f"{what} did not happen within {_PATIENCE_S:.0f} s")
            await asyncio.sleep(0.2)


def _keys() -> Iterator[Offer]:
    for number in itertools.count():
        yield Offer(DESTINATION, f"w-{number % 600}")


async def _memory(world: World, watch: _Watch, options: ScaleOptions) -> float:
    """Return the megabytes a worker holds more because of the rows, once it works on every partition."""
    sizes = []
    for rows in (0, options.rows):
        if rows:
            await asyncio.to_thread(_fill, world, rows)
        with victim(world, watch.listener.url, f"{world.database}-m{rows}") as process:
            seen = {number: len(times) for number, times in (await asyncio.to_thread(watch.by_partition)).items()}
            await watch.until(
                lambda found, seen=seen: all(len(found[p]) > seen[p] + 20 for p in found),  # type: ignore[misc]
                "work on every partition",
            )
            sizes.append(process.memory_info().rss / _MB)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 30)
    return sizes[1] - sizes[0]


async def _killed(world: World, watch: _Watch) -> dict[str, Any]:
    """Kill a worker between the flush and the offsets of a transaction; time every part of what follows."""
    clock = SystemClock()
    assigned: dict[int, float] = {}
    taken: dict[int, float] = {}
    with victim(world, watch.listener.url, f"{world.database}-v", "flushed:kill:60") as process:
        await asyncio.to_thread(process.wait, _PATIENCE_S)
    at = clock.now().timestamp()
    async with running_worker(world, watch.listener.url, f"{world.database}-s") as worker:
        started = round(clock.now().timestamp() - at, 2)
        deadline = time.monotonic() + _PATIENCE_S
        while len(taken) < PARTITIONS and time.monotonic() < deadline:
            now = round(clock.now().timestamp() - at, 2)
            for group in worker.groups.values():
                for number, actor in group.actors.items():
                    assigned.setdefault(number, now)
                    if actor.is_taken:
                        taken.setdefault(number, now)
            await asyncio.sleep(_LOOK_S)
        found = await watch.until(lambda all_: all(times and times[-1] > at for times in all_.values()), "a dispatch")
        first = {number: round(min(when for when in times if when > at) - at, 2) for number, times in found.items()}
        return {
            "started_s": started,
            "assigned_s": assigned,
            "taken_s": taken,
            "first_dispatch_s": first,
            "takeover_s": max(first.values()),
            "handover_s": await _handed_over(world, watch, worker),
        }


async def _handed_over(world: World, watch: _Watch, worker: Worker) -> float:
    """Let another worker take half and end as it is asked to; return the longest silence of one of its partitions."""
    clock = SystemClock()
    with victim(world, watch.listener.url, f"{world.database}-h") as process:
        deadline = time.monotonic() + _PATIENCE_S
        while sum(len(group.actors) for group in worker.groups.values()) != PARTITIONS // 2:
            if time.monotonic() > deadline:
                raise UnavailableError("the second worker took nothing")
            await asyncio.sleep(_LOOK_S)
        theirs = set(range(PARTITIONS)) - {number for group in worker.groups.values() for number in group.actors}
        since = clock.now().timestamp()
        await watch.until(lambda found: all(found[p] and found[p][-1] > since for p in theirs), "work by the second")
        asked = clock.now().timestamp()
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)
    ended = clock.now().timestamp()
    found = await watch.until(lambda all_: all(all_[p] and all_[p][-1] > ended + 0.5 for p in theirs), "a dispatch")
    silences = []
    for number in theirs:
        times = [at for at in found[number] if at > asked - 1]
        silences.append(max(later - earlier for earlier, later in itertools.pairwise(times)))
    return round(max(silences), 2)


async def _run(world: World, options: ScaleOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    with instant_listener(keep_arrivals=True) as listener:
        cost = await _cost(world, listener.url, options, progress)
        watch = _Watch(world, listener, Stream(world.stack.kafka, world.tenants[0], SystemClock()))
        producing = asyncio.create_task(asyncio.to_thread(watch.stream.run, _keys(), _RATE, 3_600.0))
        try:
            progress(f"memory with {options.rows:,} rows that are not due")
            memory = await _memory(world, watch, options)
            progress("a worker is killed inside a transaction")
            parts = await _killed(world, watch)
        finally:
            watch.stream.stop()
            await producing
    return {
        "bench": "scale",
        "commands": options.commands * options.pairs * 2,
        "pairs": options.pairs,
        "durability": world.durability,
        **cost,
        "open_tasks": options.rows,
        "open_task_mb": round(memory, 1),
        **parts,
        "invalid": options.pairs < MIN_PAIRS,
    }


def bench_scale(options: ScaleOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    with make_world(progress) as world, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(world, options, progress))
