"""Looking at pipes: Connect's words, the slot's state, what came through; and the verdict over them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from waybill.infra.connect_api import ConnectApi, ConnectorStatus
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError
from waybill.relay.core.connection import heartbeat_topic
from waybill.relay.core.facts import PipeFacts, SlotFacts, TaskFacts
from waybill.relay.core.verdict import STALLED_AFTER_S, Verdict, judge
from waybill.relay.database import slots_of

__all__ = ["PipeStatus", "observe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStatus:
    """One pipe: what was found, and what it means."""

    facts: PipeFacts
    verdict: Verdict

    def document(self) -> dict[str, object]:
        """Return the JSON form."""
        facts = self.facts
        return {
            "connector": facts.connector,
            "health": self.verdict.health.value,
            "because": self.verdict.because,
            "advice": self.verdict.advice,
            "state": facts.state,
            "tasks": [{"id": task.id, "state": task.state, "trace": task.trace} for task in facts.tasks],
            "slot": facts.slot.document() if facts.slot else None,
            "slot_known": facts.slot_known,
            "heartbeat_age_s": facts.heartbeat_age_s,
            "missing_topics": list(facts.missing_topics),
        }


def observe(
    api: ConnectApi,
    admin: KafkaAdmin,
    clock: Clock,
    dsns: Sequence[str] = (),
    *,
    connectors: Sequence[str] | None = None,
    stalled_after_s: float = STALLED_AFTER_S,
) -> list[PipeStatus]:
    """Look at connectors and judge them.

    Args:
        api: the Connect cluster.
        admin: the brokers.
        clock: for ages; compared with the time Connect gave its heartbeats.
        dsns: one per PostgreSQL server that holds outboxes, any database of it; a slot of a server that was not
            asked is unknown.
        connectors: whose; by default every connector named `waybill-…`.
        stalled_after_s: how old a heartbeat may be.
    """
    names = connectors if connectors is not None else [n for n in api.connectors() if n.startswith("waybill-")]
    servers = [_Server(dsn=dsn, slots=_slots(dsn)) for dsn in dsns]
    topics = set(admin.topic_names())
    found: list[PipeStatus] = []
    for name in names:
        config = api.config(name) or {}
        server = next((server for server in servers if server.holds(config)), None)
        status = api.status(name)
        facts = PipeFacts(
            connector=name,
            state=status.state if status else None,
            trace=status.trace if status else None,
            tasks=_tasks(status),
            slot_known=server is not None,
            slot=server.slots.get(config.get("slot.name", "")) if server else None,
            heartbeat_age_s=_heartbeat_age(admin, clock, config, topics),
            missing_topics=_missing_topics(server.dsn, config, topics) if server else (),
        )
        found.append(PipeStatus(facts=facts, verdict=judge(facts, stalled_after_s)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One PostgreSQL server that was asked, with all its logical slots by name."""

    dsn: str
    slots: Mapping[str, SlotFacts]

    def holds(self, config: Mapping[str, str]) -> bool:
        """Whether a connector reads this server: by its slot, else by the address both use."""
        slot = self.slots.get(config.get("slot.name", ""))
        if slot is not None and slot.database == config.get("database.dbname"):
            return True
        here = conninfo_to_dict(self.dsn)
        there = (config.get("database.hostname"), config.get("database.port"))
        return (here.get("host"), str(here.get("port") or 5432)) == there


def _slots(dsn: str) -> dict[str, SlotFacts]:
    with closing(connect(dsn, application_name="waybill-status", autocommit=True)) as connection:
        return {slot.name: slot for slot in slots_of(connection)}


def _tasks(status: ConnectorStatus | None) -> tuple[TaskFacts, ...]:
    if status is None:
        return ()
    return tuple(TaskFacts(id=task.id, state=task.state, trace=task.trace) for task in status.tasks)


def _heartbeat_age(admin: KafkaAdmin, clock: Clock, config: Mapping[str, str], topics: set[str]) -> float | None:
    topic = heartbeat_topic(config.get("topic.prefix", ""))
    newest = admin.newest_timestamp_ms(topic, 0) if topic in topics else None
    return None if newest is None else max(0.0, round(clock.now().timestamp() - newest / 1000, 1))


def _missing_topics(dsn: str, config: Mapping[str, str], topics: set[str]) -> tuple[str, ...]:
    """Return the topics an outbox may route to that do not exist; nothing where this role may not look."""
    schema, _, table = config.get("table.include.list", "").partition(".")
    if table != "outbox":
        return ()
    place = make_conninfo(dsn, dbname=config.get("database.dbname", ""))
    prefix = config.get("transforms.outbox.route.topic.replacement", "").removesuffix("${routedByValue}")
    query = sql.SQL("SELECT route FROM {}").format(sql.Identifier(schema, "topic"))
    try:
        with closing(connect(place, application_name="waybill-status", autocommit=True)) as connection:
            routes = [row[0] for row in connection.execute(query).fetchall()]
    except (psycopg.DatabaseError, UnavailableError):
        return ()
    return tuple(sorted(prefix + route for route in routes if prefix + route not in topics))
