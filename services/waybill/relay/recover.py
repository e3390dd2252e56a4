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
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Final

import psycopg
from psycopg import sql

from waybill.infra.connect_api import ConnectApi, ConnectorStatus
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.infra.topic_log import LogWriter
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.relay.comparison import Comparison, Count
from waybill.relay.core.connection import OutboxKind
from waybill.relay.core.wire import LAYOUTS
from waybill.relay.database import drop_slot
from waybill.relay.replication import slot_with_snapshot

__all__ = ["RecoverResult", "Recovery", "recover"]

_STOPPED_WITHIN_S: Final = 60.0
_RUNNING_WITHIN_S: Final = 60.0
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


def recover(task: Recovery, *, dry_run: bool = False) -> RecoverResult:
    """Find and republish what the topics lack; see the module for the steps.

    A dry run stops nothing and writes nothing; rows still on their way then count as missing.

    Memory: about 100 bytes per command on the topics, or since the asked day.

    Raises:
        ConfigError: no such connector, or the database is not the one it reads.
        FencedError: another recovery of the connector took over.
        UnavailableError: something does not answer or a transaction stands in the way; run it again.
    """
    slot, comparison = _plan(task)
    if dry_run:
        with _transaction(task) as connection:
            return _result(task, comparison.run(connection, None), None)
    _stop(task)
    with closing(connect(task.dsn, application_name="waybill-recover", autocommit=True)) as connection:
        if drop_slot(connection, slot):
            task.progress(f"dropped slot {slot}")
    with slot_with_snapshot(task.dsn, slot, task.clock) as point:
        task.progress(f"made slot {slot} at {point.lsn}")
        task.api.delete_offsets(task.connector)
        with _transaction(task) as connection:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(point.snapshot))
            count = comparison.run(connection, LogWriter(task.kafka, f"waybill-recover-{task.connector}"))
    _start(task)
    return _result(task, count, point.lsn)


@contextmanager
def _transaction(task: Recovery) -> Iterator[psycopg.Connection]:
    """A read-only transaction that sees one state of the database until its end."""
    with closing(connect(task.dsn, application_name="waybill-recover")) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection


def _result(task: Recovery, count: Count, lsn: str | None) -> RecoverResult:
    return RecoverResult(
        connector=task.connector,
        is_dry_run=lsn is None,
        lsn=lsn,
        topics=count.topics,
        compared=count.compared,
        not_judged=count.not_judged,
        missing=count.missing,
        republished=count.republished,
        reordered=count.reordered,
    )


def _plan(task: Recovery) -> tuple[str, Comparison]:
    """Read the connector's own configuration: its slot, and what is to be compared."""
    config = task.api.config(task.connector)
    if config is None:
        known = ", ".join(task.api.connectors()) or "none"
        raise ConfigError(f"Connect has no connector {task.connector} (it has {known}): run `waybill connect apply`")
    with closing(connect(task.dsn, application_name="waybill-recover", autocommit=True)) as connection:
        row = connection.execute("SELECT current_database()").fetchone()
    if row is None or row[0] != config["database.dbname"]:
        raise ConfigError(
            f"connector {task.connector} reads database {config['database.dbname']}, the connection string names "
            f"{row[0] if row else 'none'}"
        )
    schema, _, table = config["table.include.list"].partition(".")
    comparison = Comparison(
        schema=schema,
        table=table,
        layout=LAYOUTS[OutboxKind.OUTBOX if table == "outbox" else OutboxKind.CONTROL],
        prefix=config["transforms.outbox.route.topic.replacement"].removesuffix("${routedByValue}"),
        kafka=task.kafka,
        admin=KafkaAdmin(task.kafka, task.clock),
        clock=task.clock,
        since=task.since,
        progress=task.progress,
    )
    return config["slot.name"], comparison


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
