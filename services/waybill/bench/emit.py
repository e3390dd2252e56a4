"""Emit: what a command costs the producer's own transaction.

The subject is a business insert with one `emit`, the baseline the same insert alone, on one connection of the
application's role. Then fifty writers commit to one aggregate: its row lock is the bottleneck by design.
"""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg

from waybill.bench.core.pairs import Arm, PairedRun, abba, percentile
from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE, World, make_world
from waybill.infra.postgres import connect
from waybill.outbox import CommandDraft, Outbox

__all__ = ["EmitOptions", "bench_emit"]

_DATA = {"subject": "c0ffee", "reason": "request of the person", "pad": "x" * 300}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitOptions:
    """How much is emitted: `commands` transactions in each arm of each pair."""

    commands: int = 500
    pairs: int = 10
    writers: int = 50
    writers_s: float = 5.0


def _business(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO business (note) VALUES ('a change of our own')")


def _emit(connection: psycopg.Connection[Any], world: World, aggregate: str) -> None:
    draft = CommandDraft(aggregate_type=AGGREGATE_TYPE, aggregate_id=aggregate, command_type=COMMAND_TYPE, data=_DATA)
    Outbox(connection, tenant=world.tenants[0]).emit(draft)


def _block(connection: psycopg.Connection[Any], world: World, arm: Arm, commands: int) -> list[float]:
    """Run one arm's transactions; return the milliseconds of each."""
    took: list[float] = []
    for number in range(commands):
        started = time.perf_counter()
        with connection.transaction():
            _business(connection)
            if arm is Arm.SUBJECT:
                _emit(connection, world, str(number))
        took.append((time.perf_counter() - started) * 1000)
    return took


def _wal_position(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
    assert row is not None
    return int(row[0])


def _one_aggregate(world: World, options: EmitOptions) -> float:
    """Let all writers commit to one aggregate; return commits per second."""
    counts = [0] * options.writers
    gate = threading.Barrier(options.writers + 1)
    stop = threading.Event()

    def write(number: int) -> None:
        with closing(connect(world.app_dsn)) as connection:
            gate.wait(60)
            while not stop.is_set():
                with connection.transaction():
                    _business(connection)
                    _emit(connection, world, "one")
                counts[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(options.writers)]
    for thread in threads:
        thread.start()
    gate.wait(60)
    started = time.monotonic()
    stop.wait(options.writers_s)
    stop.set()
    elapsed = time.monotonic() - started
    for thread in threads:
        thread.join()
    return sum(counts) / elapsed


def bench_emit(options: EmitOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    blocks: dict[Arm, list[list[float]]] = {arm: [] for arm in Arm}
    wal: dict[Arm, int] = dict.fromkeys(Arm, 0)
    started = time.monotonic()
    with make_world(progress) as world, closing(connect(world.app_dsn, autocommit=True)) as connection:
        for arm in Arm:
            _block(connection, world, arm, 50)
        for number, arm in enumerate(abba(options.pairs)):
            progress(f"pair {number // 2 + 1} of {options.pairs}: {arm}")
            before = _wal_position(connection)
            blocks[arm].append(_block(connection, world, arm, options.commands))
            wal[arm] += _wal_position(connection) - before
        progress(f"{options.writers} writers on one aggregate")
        commits_per_s = _one_aggregate(world, options)
        durability = world.durability
    run = PairedRun(
        subject=[statistics.median(block) for block in blocks[Arm.SUBJECT]],
        baseline=[statistics.median(block) for block in blocks[Arm.BASELINE]],
    )
    return {
        "bench": "emit",
        "commands": options.commands * options.pairs,
        "bytes": options.commands * options.pairs * len(str(_DATA)),
        "seconds": round(time.monotonic() - started, 2),
        "pairs": options.pairs,
        "durability": durability,
        "added_ms_p50": _added(blocks, 50),
        "added_ms_p99": _added(blocks, 99),
        "ratio_to_business_alone": round(run.ratio, 2),
        "wal_bytes_per_command": round((wal[Arm.SUBJECT] - wal[Arm.BASELINE]) / (options.commands * options.pairs)),
        "one_aggregate_writers": options.writers,
        "one_aggregate_commits_per_s": round(commits_per_s),
        "invalid": run.is_invalid,
    }


def _added(blocks: dict[Arm, list[list[float]]], percent: float) -> float:
    """Return the median over pairs of what the subject took longer at a percentile, in milliseconds."""
    pairs = zip(blocks[Arm.SUBJECT], blocks[Arm.BASELINE], strict=True)
    return round(statistics.median(percentile(a, percent) - percentile(b, percent) for a, b in pairs), 3)
