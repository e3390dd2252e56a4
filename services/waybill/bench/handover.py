"""Handover: in Kafka → handed over in Kafka, row first: one worker process, nobody who reads.

The subject is the real worker, in this process, from the moment a backlog becomes visible to the moment its offsets
are committed and no row has anything left to publish: each delivery has its row, its record, its outcome and its state
by then. Every command has an aggregate of its own, since an aggregate has one unfinished hand-over. The baseline is what
cannot be left out: the same bodies signed and written in transactions of as many records, without rows.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import uvloop

from waybill.bench.core.pairs import Arm, PairedRun, abba
from waybill.bench.deliver import running_worker
from waybill.bench.workload import DATA, Backlog, backlog_headers
from waybill.bench.world import AGGREGATE_TYPE, DESTINATION, PARTITIONS, Shape, World, make_world
from waybill.contracts.command import parse_command
from waybill.contracts.envelope import CONTENT_TYPE, delivery_id_text, render
from waybill.contracts.fabric import Profile, Transport
from waybill.contracts.names import deliveries_topic, delivery_group
from waybill.crypto.keys import read_keys, signing_path
from waybill.crypto.signing import Signer
from waybill.infra.clock import SystemClock
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka import Outgoing, TransactionalProducer
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError

__all__ = ["HandoverOptions", "bench_handover"]

_PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.05
#: As many as the worker writes at once.
_TRANSACTION: Final = 2_000
#: More than are ever used: no aggregate comes twice.
_AGGREGATES: Final = 1_000_000_000
_CONCURRENCY: Final = 64
_UNSAID: Final = b"SELECT count(*) FROM delivery.open_task WHERE pending_outcome IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverOptions:
    """How much is handed over."""

    commands: int = 20_000
    pairs: int = 5
    profile: Profile = Profile.DURABLE_IDEMPOTENT


class _Bench:
    """One run on one world."""

    def __init__(self, world: World, asking: psycopg.Connection[Any]) -> None:
        self._world, self._asking = world, asking
        tenant = world.tenants[0]
        self._backlog = Backlog(world.stack.kafka, tenant, aggregates=_AGGREGATES)
        self._offsets, self._group = GroupOffsets(world.stack.kafka), delivery_group(tenant, DESTINATION)
        self._topic = deliveries_topic(tenant, DESTINATION)
        self._signer = Signer(read_keys(signing_path(world.stack.keys_dir, tenant)))
        self._clock = SystemClock()
        self._producer = TransactionalProducer(world.stack.kafka, f"bench.{tenant}.bare")
        command = parse_command(
            f"{AGGREGATE_TYPE}/bare".encode(), backlog_headers(tenant, f"{AGGREGATE_TYPE}/bare"), DATA
        )
        self.body, self._id = render(command, DESTINATION), delivery_id_text(command.command_id, DESTINATION)

    async def worker(self, commands: int) -> tuple[float, float]:
        """Hand a backlog over; return seconds and CPU seconds of this process from its visibility on.

        Raises:
            UnavailableError: it was not handed over in time.
        """
        ends = await asyncio.to_thread(self._backlog.load, commands)
        cpu, deadline = time.process_time(), time.monotonic() + _PATIENCE_S
        while not await asyncio.to_thread(self._is_done, ends):
            if time.monotonic() > deadline:
                raise UnavailableError(f"{commands} commands were not handed over within {_PATIENCE_S:.0f} s")
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - self._backlog.visible_at, time.process_time() - cpu

    def bare(self, commands: int) -> float:
        """Sign and write as many records, and nothing else; return the rate."""
        started = time.monotonic()
        for first in range(0, commands, _TRANSACTION):
            numbers = range(first, min(first + _TRANSACTION, commands))
            self._producer.commit([self._record(number) for number in numbers], ())
        return commands / (time.monotonic() - started)

    def close(self) -> None:
        """Let go of the bare producer."""
        self._producer.close()

    def _record(self, number: int) -> Outgoing:
        second = int(self._clock.now().timestamp())
        headers: list[tuple[str, bytes | None]] = [
            ("content-type", CONTENT_TYPE.encode()),
            ("webhook-id", self._id.encode()),
            ("webhook-timestamp", str(second).encode()),
            ("webhook-signature", self._signer.sign(self._id, second, self.body).encode()),
        ]
        return Outgoing(self._topic, number % PARTITIONS, b"bench/bare", self.body, headers)

    def _is_done(self, ends: Mapping[tuple[str, int], int]) -> bool:
        committed = self._offsets.committed(self._group)
        if any(committed.get(place, 0) < end for place, end in ends.items()):
            return False
        found = self._asking.execute(_UNSAID).fetchone()
        return found is not None and found[0] == 0


async def _run(world: World, options: HandoverOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    rates: list[float] = []
    cpu_us: list[float] = []
    bare: list[float] = []
    with closing(connect(world.admin_dsn, autocommit=True)) as asking:
        bench = _Bench(world, asking)
        async with running_worker(world, ""):
            progress("warming up")
            await bench.worker(min(2_000, options.commands))
            await asyncio.to_thread(bench.bare, options.commands)
            for number, arm in enumerate(abba(options.pairs)):
                progress(f"pair {number // 2 + 1} of {options.pairs}: {arm}")
                if arm is Arm.SUBJECT:
                    seconds, cpu = await bench.worker(options.commands)
                    rates.append(options.commands / seconds)
                    cpu_us.append(cpu / options.commands * 1e6)
                else:
                    bare.append(await asyncio.to_thread(bench.bare, options.commands))
        bench.close()
    run = PairedRun(subject=rates, baseline=bare)
    return {
        "bench": "handover",
        "commands": options.commands * options.pairs,
        "body_bytes": len(bench.body),
        "pairs": options.pairs,
        "durability": world.durability,
        "profile": options.profile.value,
        "aggregates": "one for each command",
        "results": "none: every delivery stays delivered",
        "hand_overs_per_s": round(run.subject_median),
        "bare_per_s": round(run.baseline_median),
        "ratio_to_bare": round(run.ratio, 3),
        "cpu_us_per_hand_over": round(sorted(cpu_us)[len(cpu_us) // 2], 1),
        "invalid": run.is_invalid,
    }


def bench_handover(options: HandoverOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    shape = Shape(profile=options.profile, concurrency=_CONCURRENCY, transport=Transport.KAFKA)
    with (
        make_world(progress, shape=shape) as world,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_run(world, options, progress))
