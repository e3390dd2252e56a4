"""Relay: rows committed in PostgreSQL → records readable in Kafka, through the real connector.

One statement inserts all rows of a round, for two tenants, so that the clock starts at one commit; it stops when a
read-committed consumer has seen the last of them.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from waybill.bench.core.pairs import MAX_SPREAD, spread
from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE, DESTINATION, PARTITIONS, World, make_world
from waybill.contracts.names import commands_topic
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError

__all__ = ["RelayOptions", "bench_relay", "insert_rows"]

_PATIENCE_S: Final = 180.0
_PAYLOAD_BYTES: Final = 400
_INSERT: Final = """
INSERT INTO waybill.outbox (created_day, route, command_id, source, command_type, aggregate, issued_at, content_type,
    tenant, sequences, expires_at, config_version, capability, capability_version, payload)
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date, t.tenant || '.commands', waybill.new_id(),
    'waybill://' || t.tenant || '/bench', %(type)s, %(kind)s || '/' || %(round)s || '-' || n,
    date_trunc('milliseconds', clock_timestamp()), 'application/json', t.tenant,
    jsonb_build_object(%(destination)s::text, 1), date_trunc('milliseconds', clock_timestamp()) + interval '1 day',
    1, %(type)s, 1, convert_to('"' || repeat('x', %(bytes)s - 2) || '"', 'UTF8')
FROM generate_series(1, %(rows)s) AS n, unnest(%(tenants)s::text[]) AS t (tenant)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How much is relayed: `commands` rows in each of `rounds` rounds."""

    commands: int = 100_000
    rounds: int = 5


def _consumer(world: World) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": world.stack.kafka,
            "group.id": world.database,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.min.bytes": 1,
            "log_level": 0,
        }
    )
    topics = [commands_topic(tenant) for tenant in world.tenants]
    consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)])
    return consumer


def _await(consumer: Consumer, rows: int) -> None:
    seen, deadline = 0, time.monotonic() + _PATIENCE_S
    while seen < rows:
        batch = consumer.consume(5_000, 0.1)
        seen += sum(message.error() is None for message in batch)
        if time.monotonic() > deadline:
            raise UnavailableError(f"{rows - seen} of {rows} rows did not come back within {_PATIENCE_S:.0f} s")


def insert_rows(world: World, rows: int, number: int) -> float:
    """Insert so many rows for each tenant in one transaction; return the monotonic second just before its commit."""
    with closing(connect(world.admin_dsn)) as owner:
        values = {"type": COMMAND_TYPE, "kind": AGGREGATE_TYPE, "round": number, "destination": DESTINATION}
        values |= {"bytes": _PAYLOAD_BYTES, "rows": rows, "tenants": list(world.tenants)}
        owner.execute(_INSERT, values)
        started = time.monotonic()
        owner.commit()
    return started


def bench_relay(options: RelayOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    rates: list[float] = []
    seconds = 0.0
    with make_world(progress, tenants=2, with_relay=True) as world, closing(_consumer(world)) as consumer:
        per_tenant = options.commands // 2
        for number in range(options.rounds + 1):
            progress(f"round {number} of {options.rounds}: inserting {per_tenant * 2:,} rows")
            started = insert_rows(world, per_tenant, number)
            _await(consumer, per_tenant * 2)
            elapsed = time.monotonic() - started
            if number:  # the first warms up: a connector compiles itself while it relays its first 100,000 rows
                rates.append(per_tenant * 2 / elapsed)
                seconds += elapsed
        durability = world.durability
    return {
        "bench": "relay",
        "commands": per_tenant * 2 * options.rounds,
        "bytes": per_tenant * 2 * options.rounds * _PAYLOAD_BYTES,
        "seconds": round(seconds, 2),
        "pairs": options.rounds,
        "durability": f"{durability}, Connect source transactions",
        "rows_per_s": round(statistics.median(rates)),
        "rows_per_s_each": [round(rate) for rate in rates],
        "invalid": len(rates) < 2 or spread(rates) > MAX_SPREAD,
    }
