"""The canary: one row through the whole pipe, and how long it took.

The row is made by the outbox's own SQL function, names no destination and is delivered to nobody. The reader stands
at the end of the topic before the row is committed, so the time is commit to committed record, as a worker would see
it.
"""

from contextlib import closing
from dataclasses import dataclass

import psycopg
from psycopg import sql

from waybill.contracts.names import commands_topic
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.infra.topic_log import Tail
from waybill.kernel.clock import Clock
from waybill.kernel.errors import RefusedError, UnavailableError
from waybill.kernel.ids import Tenant
from waybill.relay.core.facts import SlotFacts
from waybill.relay.database import slots_of

__all__ = ["CanaryResult", "run_canary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    """Whether the canary came back."""

    tenant: str
    topic: str
    command_id: str
    #: Commit to committed record, milliseconds; None when it did not come back in time.
    latency_ms: float | None
    #: What to look at when it did not.
    diagnosis: tuple[str, ...] = ()


def run_canary(
    dsn: str, kafka: str, tenant: Tenant, clock: Clock, *, schema: str = "waybill", within_s: float = 60.0
) -> CanaryResult:
    """Send one canary row and wait for it on the tenant's topic.

    Args:
        dsn: of the outbox's database; the application role may do it.
        kafka: bootstrap servers.
        tenant: whose pipe.
        clock: measures.
        schema: of the outbox.
        within_s: how long to wait.

    Raises:
        RefusedError: the outbox refuses the row (unknown tenant); carries the outbox's own words.
        UnavailableError: database or brokers do not answer, or the tenant's topic does not exist.
    """
    topic = commands_topic(tenant)
    facts = KafkaAdmin(kafka, clock).topics([topic])
    if topic not in facts:
        raise UnavailableError(f"topic {topic} does not exist: run `waybill topics apply --tenant {tenant}`")
    with (
        closing(Tail(kafka, topic, facts[topic].partitions)) as tail,
        closing(connect(dsn, application_name="waybill-canary", autocommit=True)) as connection,
    ):
        command_id = _insert(connection, schema, tenant)
        started = clock.monotonic()
        found = tail.wait_for(("id", command_id.encode()), clock, within_s)
        took = clock.monotonic() - started
        diagnosis = () if found else tuple(_diagnose(connection, topic))
    return CanaryResult(
        tenant=tenant,
        topic=topic,
        command_id=command_id,
        latency_ms=round(took * 1000, 1) if found else None,
        diagnosis=diagnosis,
    )


def _insert(connection: psycopg.Connection, schema: str, tenant: str) -> str:
    query = sql.SQL("SELECT {}.canary(%s)").format(sql.Identifier(schema))
    try:
        row = connection.execute(query, (tenant,)).fetchone()
    except psycopg.errors.UndefinedFunction as error:
        raise RefusedError(f"schema {schema} holds no outbox: run its migrations first", rule="no_outbox") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise RefusedError(
            "this role may not emit: use the application's role or its owner's", rule="no_privilege"
        ) from error
    except psycopg.DatabaseError as error:
        said = error.diag.message_primary or str(error)
        raise RefusedError(f"the outbox refuses the canary: {said}", rule="outbox") from error
    assert row is not None
    return str(row[0])


def _diagnose(connection: psycopg.Connection, topic: str) -> list[str]:
    """Return what to look at, most telling first."""
    row = connection.execute("SELECT current_database()").fetchone()
    database = row[0] if row else ""
    slots = [slot for slot in slots_of(connection) if slot.database == database]
    if not slots:
        return ["no replication slot reads this database: run `waybill connect apply`, then `waybill relay recover`"]
    lines = [_about(slot) for slot in slots]
    lines.append("see `waybill connect status` for the connector, its task and its last heartbeat")
    lines.append(f"if all say RUNNING: is another topic of this outbox gone? {topic} exists; the worker's log names it")
    return lines


def _about(slot: SlotFacts) -> str:
    if slot.is_lost:
        return f"slot {slot.name} is lost ({slot.invalidation_reason or slot.wal_status}): run `waybill relay recover`"
    if not slot.is_active:
        return f"slot {slot.name} has no reader since {slot.inactive_since}: the connector's task is not running"
    return f"slot {slot.name} is read, {slot.behind_bytes} bytes behind"
