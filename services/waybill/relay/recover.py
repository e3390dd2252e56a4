"""Recovery after slot loss: a new slot, and everything older that the topic lacks.

The steps, in the one order that neither loses nor reorders:

1. stop the connector, wait until its task is gone;
2. drop what is left of the slot, make a new one with the snapshot of exactly its starting point;
3. forget the stored offsets (Connect fences a task that might still be writing);
4. read the command ids on the topics, committed records only, to their true end;
5. walk the rows the snapshot shows, oldest first, and publish what the topics lack, in order;
6. start the connector: it streams what came after the snapshot.

Killed anywhere, it is run again from the start: after step 2 the connector cannot run with its old offset (it fails
loudly), and what step 5 wrote is found by the next step 4. Only a connector started by hand between two runs puts
newer rows before republished ones; that is seen and reported as `reordered`.

A topic that has already aged out records cannot tell whether it once held an old row; rows that old are counted as
`not_judged` and left alone, since publishing them again would repeat commands of weeks ago.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import psycopg
from psycopg import sql

from waybill.infra.connect_api import ConnectApi, ConnectorStatus
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.infra.topic_log import LogRecord, LogWriter, offsets_at, scan
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.relay.core.connection import OutboxKind
from waybill.relay.core.wire import LAYOUTS, Layout, column_text, headers_of
from waybill.relay.database import drop_slot
from waybill.relay.replication import slot_with_snapshot

__all__ = ["RecoverResult", "Recovery", "recover"]

_STOPPED_WITHIN_S: Final = 60.0
_RUNNING_WITHIN_S: Final = 60.0
#: Rows republished in one transaction.
_BATCH: Final = 500
#: A record is published after its row was made; clocks of two machines differ by less than this.
_SLACK: Final = timedelta(days=1)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverResult:
    """What a recovery found and did. All counts are rows."""

    connector: str
    is_dry_run: bool
    #: Where the new slot starts; None in a dry run.
    lsn: str | None
    topics: tuple[str, ...]
    #: Rows compared with the topics.
    compared: int
    #: Rows older than what the topics still hold, or than the asked day.
    not_judged: int
    missing: int
    republished: int
    #: Missing rows with a later row of the same aggregate already on the topic: their order could not be kept.
    reordered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What to recover and by what means."""

    connector: str
    #: Of the outbox's database, with a role that may replicate and read the outbox.
    dsn: str
    api: ConnectApi
    kafka: str
    clock: Clock
    #: Compare rows of this day and later only; the ids of older ones are not held in memory.
    since: date | None = None
    progress: Progress = lambda _line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipe:
    """What the connector's own configuration says about it."""

    kind: OutboxKind
    schema: str
    table: str
    slot: str
    prefix: str

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.kind]


@dataclass(slots=True)
class _Count:
    compared: int = 0
    not_judged: int = 0
    missing: int = 0
    republished: int = 0
    reordered: int = 0


def recover(task: Recovery, *, dry_run: bool = False) -> RecoverResult:
    """Find and republish what the topics lack; see the module for the steps.

    A dry run stops nothing and writes nothing; rows still on their way then count as missing.

    Memory: about 100 bytes per command on the topics, or since the asked day.

    Raises:
        ConfigError: no such connector, or the database is not the one it reads.
        FencedError: another recovery of the connector took over.
        UnavailableError: something does not answer or a transaction stands in the way; run it again.
    """
    pipe = _pipe(task)
    if dry_run:
        with closing(connect(task.dsn, application_name="waybill-recover")) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            topics, count = _compare(task, pipe, connection, None)
        return _result(task, topics, count, None)
    _stop(task)
    with closing(connect(task.dsn, application_name="waybill-recover", autocommit=True)) as connection:
        if drop_slot(connection, pipe.slot):
            task.progress(f"dropped slot {pipe.slot}")
    with slot_with_snapshot(task.dsn, pipe.slot, task.clock) as point:
        task.progress(f"made slot {pipe.slot} at {point.lsn}")
        task.api.delete_offsets(task.connector)
        with closing(connect(task.dsn, application_name="waybill-recover")) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(point.snapshot))
            writer = LogWriter(task.kafka, f"waybill-recover-{task.connector}")
            topics, count = _compare(task, pipe, connection, writer)
    _start(task)
    return _result(task, topics, count, point.lsn)


def _result(task: Recovery, topics: tuple[str, ...], count: _Count, lsn: str | None) -> RecoverResult:
    return RecoverResult(
        connector=task.connector,
        is_dry_run=lsn is None,
        lsn=lsn,
        topics=topics,
        compared=count.compared,
        not_judged=count.not_judged,
        missing=count.missing,
        republished=count.republished,
        reordered=count.reordered,
    )


def _pipe(task: Recovery) -> _Pipe:
    config = task.api.config(task.connector)
    if config is None:
        known = ", ".join(task.api.connectors()) or "none"
        raise ConfigError(f"Connect has no connector {task.connector} (it has {known}): run `waybill connect apply`")
    schema, _, table = config["table.include.list"].partition(".")
    kind = OutboxKind.OUTBOX if table == "outbox" else OutboxKind.CONTROL
    with closing(connect(task.dsn, application_name="waybill-recover", autocommit=True)) as connection:
        row = connection.execute("SELECT current_database()").fetchone()
    if row is None or row[0] != config["database.dbname"]:
        raise ConfigError(
            f"connector {task.connector} reads database {config['database.dbname']}, the connection string names "
            f"{row[0] if row else 'none'}"
        )
    prefix = config["transforms.outbox.route.topic.replacement"].removesuffix("${routedByValue}")
    return _Pipe(kind=kind, schema=schema, table=table, slot=config["slot.name"], prefix=prefix)


def _stop(task: Recovery) -> None:
    task.api.stop(task.connector)
    status = task.api.wait_status(task.connector, _is_stopped, _STOPPED_WITHIN_S)
    if not _is_stopped(status):
        raise UnavailableError(f"connector {task.connector} does not stop: its worker may be gone; run it again")
    task.progress(f"stopped connector {task.connector}")


def _is_stopped(status: ConnectorStatus | None) -> bool:
    return status is not None and status.state == "STOPPED" and not status.tasks


def _start(task: Recovery) -> None:
    task.api.resume(task.connector)

    def runs(status: ConnectorStatus | None) -> bool:
        return bool(status and status.tasks and all(t.state in {"RUNNING", "FAILED"} for t in status.tasks))

    status = task.api.wait_status(task.connector, runs, _RUNNING_WITHIN_S)
    if status is None or not status.tasks or any(t.state != "RUNNING" for t in status.tasks):
        traces = [t.trace for t in status.tasks if t.trace] if status else []
        raise UnavailableError(
            f"everything missing is republished, but connector {task.connector} does not run: "
            f"{traces[0] if traces else 'see waybill connect status'}"
        )
    task.progress(f"started connector {task.connector}")


def _compare(
    task: Recovery, pipe: _Pipe, connection: psycopg.Connection, writer: LogWriter | None
) -> tuple[tuple[str, ...], _Count]:
    """Compare what this transaction sees with the topics; publish what they lack when there is a writer."""
    topics = _topics(connection, pipe, task.since)
    horizon = task.since
    known: set[bytes] = set()
    admin = KafkaAdmin(task.kafka, task.clock)
    facts = admin.topics(topics)
    if absent := sorted(set(topics) - facts.keys()):
        raise ConfigError(f"topics do not exist: {', '.join(absent)}; run `waybill topics apply` first")
    for topic in topics:
        oldest = _oldest_day(task, admin, topic, facts[topic].partitions, facts[topic].configs)
        horizon = max((day for day in (horizon, oldest) if day is not None), default=None)
        known |= _ids(task, admin, topic, facts[topic].partitions)
        task.progress(f"{topic}: {len(known)} commands so far")
    count = _Count()
    batch: list[tuple[date, int]] = []
    for key in _missing(connection, pipe, known, horizon, count):
        batch.append(key)
        if len(batch) == _BATCH:
            _republish(task, pipe, connection, batch, writer, count)
    _republish(task, pipe, connection, batch, writer, count)
    return topics, count


def _topics(connection: psycopg.Connection, pipe: _Pipe, since: date | None) -> tuple[str, ...]:
    query = sql.SQL("SELECT DISTINCT route FROM {} WHERE %(since)s::date IS NULL OR created_day >= %(since)s").format(
        sql.Identifier(pipe.schema, pipe.table)
    )
    return tuple(sorted(pipe.prefix + row[0] for row in connection.execute(query, {"since": since})))


def _oldest_day(task: Recovery, admin: KafkaAdmin, topic: str, partitions: int, configs: object) -> date | None:
    """Return the first day of which the topic still holds everything; None when nothing was ever aged out."""
    starts = admin.earliest_offsets(topic, partitions)
    if not any(starts):
        return None
    ends = admin.end_offsets(topic, partitions)
    oldest = admin.first_timestamps_ms(topic, [n for n in range(partitions) if 0 < starts[n] < ends[n]])
    if any(0 < starts[n] == ends[n] for n in range(partitions)):
        return task.clock.now().date() + timedelta(days=1)
    return datetime.fromtimestamp(max(oldest) / 1000, UTC).date() + timedelta(days=1)


def _ids(task: Recovery, admin: KafkaAdmin, topic: str, partitions: int) -> set[bytes]:
    starts = admin.earliest_offsets(topic, partitions)
    ends = admin.end_offsets(topic, partitions)
    if task.since is not None:
        first = datetime(task.since.year, task.since.month, task.since.day, tzinfo=UTC) - _SLACK
        found = offsets_at(task.kafka, topic, partitions, int(first.timestamp() * 1000))
        starts = [at if at >= 0 else end for at, end in zip(found, ends, strict=True)]
    return {
        UUID(value.decode()).bytes
        for record in scan(task.kafka, topic, starts=starts, ends=ends, clock=task.clock)
        for name, value in record.headers
        if name == "id" and value is not None
    }


def _missing(
    connection: psycopg.Connection, pipe: _Pipe, known: set[bytes], horizon: date | None, count: _Count
) -> Iterator[tuple[date, int]]:
    """Yield day and position of the rows the topics lack, oldest first."""
    layout = pipe.layout
    query = sql.SQL("SELECT created_day, position, {id}, {order} FROM {table} ORDER BY position").format(
        id=sql.Identifier(layout.id_column),
        order=sql.Identifier(layout.order_column),
        table=sql.Identifier(pipe.schema, pipe.table),
    )
    waiting: set[str] = set()
    with connection.cursor(name="waybill_recover") as cursor:
        cursor.itersize = 5000
        for day, position, row_id, order in cursor.execute(query):
            if horizon is not None and day < horizon:
                count.not_judged += 1
                continue
            count.compared += 1
            if row_id.bytes in known:
                if order in waiting:
                    waiting.discard(order)
                    count.reordered += 1
                continue
            waiting.add(order)
            count.missing += 1
            yield day, position


def _republish(
    task: Recovery,
    pipe: _Pipe,
    connection: psycopg.Connection,
    batch: list[tuple[date, int]],
    writer: LogWriter | None,
    count: _Count,
) -> None:
    if not batch or writer is None:
        batch.clear()
        return
    layout = pipe.layout
    texts = [sql.SQL(column_text(column)) for column, _ in layout.headers]
    query = sql.SQL(
        "SELECT o.route, o.{key}, o.payload, o.{id}::text{texts} FROM {table} o "
        "JOIN unnest(%s::date[], %s::bigint[]) AS k (day, position) "
        "ON o.created_day = k.day AND o.position = k.position ORDER BY o.position"
    ).format(
        key=sql.Identifier(layout.key_column),
        id=sql.Identifier(layout.id_column),
        texts=sql.SQL("").join(sql.SQL(", ") + text for text in texts),
        table=sql.Identifier(pipe.schema, pipe.table),
    )
    rows = connection.execute(query, ([day for day, _ in batch], [position for _, position in batch])).fetchall()
    writer.write(
        [
            LogRecord(
                topic=pipe.prefix + route,
                key=key.encode(),
                value=payload,
                headers=headers_of(layout, row_id, texts),
            )
            for route, key, payload, row_id, *texts in rows
        ]
    )
    count.republished += len(rows)
    batch.clear()
    task.progress(f"republished {count.republished}")
