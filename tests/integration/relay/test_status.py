"""Status believes what came through, not the word RUNNING; and the heartbeat keeps a quiet slot moving."""

from contextlib import closing

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from fixtures.fix_relay import Pipe, make_topic

from waybill.relay import observe
from waybill.relay.core.verdict import Health
from waybill.relay.database import slot_facts
from waybill.relay.status import PipeStatus
from waybill.testing import eventually

pytestmark = pytest.mark.stack


def look(pipe: Pipe, *, asked: bool = True, stalled_after_s: float = 30.0) -> PipeStatus:
    dsns = [pipe.stack.dsn("postgres")] if asked else []
    (status,) = observe(
        pipe.api,
        pipe.admin,
        pipe.clock,
        dsns,
        connectors=[pipe.outbox.connector],
        stalled_after_s=stalled_after_s,
    )
    return status


def confirmed(pipe: Pipe) -> int:
    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
        slot = slot_facts(connection, pipe.outbox.slot)
    assert slot is not None
    return slot.confirmed_lsn or 0


def test_a_pipe_stalled_by_a_missing_topic_says_running_and_is_not_believed(pipe: Pipe) -> None:
    pipe.emit(1)
    eventually(lambda: look(pipe).verdict.health is Health.HEALTHY, within_s=30)

    client = AdminClient({"bootstrap.servers": pipe.stack.kafka})
    client.delete_topics([pipe.topic])[pipe.topic].result(30)
    eventually(lambda: pipe.topic not in pipe.admin.topic_names(), within_s=10)
    pipe.emit(1, start=1)
    eventually(lambda: look(pipe, asked=False, stalled_after_s=8).verdict.health is Health.STALLED, within_s=40)
    stalled = look(pipe)

    # Connect is content, the verdict is not
    assert stalled.facts.state == "RUNNING"
    assert [task.state for task in stalled.facts.tasks] == ["RUNNING"]
    assert stalled.verdict.health is Health.STALLED
    assert stalled.facts.missing_topics == (pipe.topic,)

    make_topic(pipe)
    eventually(lambda: [record.value for record in pipe.records()] == [b"1"], within_s=60)
    eventually(lambda: look(pipe, stalled_after_s=8).verdict.health is Health.HEALTHY, within_s=30)


def test_a_quiet_outbox_on_a_busy_server_does_not_hold_the_log(pipe: Pipe) -> None:
    with closing(psycopg.connect(pipe.stack.dsn("postgres"), autocommit=True)) as busy:
        before = confirmed(pipe)
        busy.execute("SELECT pg_logical_emit_message(false, 'somebody.else', repeat('x', 1000000), true)")
        end = busy.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()

    assert end is not None
    assert end[0] > before
    eventually(lambda: confirmed(pipe) >= end[0], within_s=30)


def test_a_slot_nobody_asked_about_is_unknown_and_a_missing_one_is_lost(unconnected_pipe: Pipe) -> None:
    unknown = look(unconnected_pipe, asked=False)

    assert unknown.verdict.health is Health.MISSING
    assert unknown.document()["slot_known"] is False
