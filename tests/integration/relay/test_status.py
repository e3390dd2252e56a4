"""Status believes what came through, not the word RUNNING; and the heartbeat keeps a quiet slot moving."""

from contextlib import closing

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from fixtures.fix_relay import Pipe, make_topic

from waybill.relay import ensure_connector, observe
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


def test_a_missing_topic_stops_the_pipe_and_status_names_it_whatever_connect_says(pipe: Pipe) -> None:
    pipe.emit(1)
    eventually(lambda: look(pipe).verdict.health is Health.HEALTHY, within_s=30)

    client = AdminClient({"bootstrap.servers": pipe.stack.kafka})
    client.delete_topics([pipe.topic])[pipe.topic].result(30)
    eventually(lambda: pipe.topic not in pipe.admin.topic_names(), within_s=10)
    pipe.emit(1, start=1)

    # at once, and while Connect still says RUNNING
    early = look(pipe)
    assert (early.facts.state, early.verdict.health) == ("RUNNING", Health.STALLED)
    assert pipe.topic in early.verdict.because
    # without asking the database, by what came through: a producer that waits for the topic's metadata says RUNNING
    # for ever, one that had them fails when its transaction times out
    sick = {Health.STALLED, Health.FAILED}
    eventually(lambda: look(pipe, asked=False, stalled_after_s=8).verdict.health in sick, within_s=60)

    make_topic(pipe)

    def mended() -> bool:
        # restarts a failed task and leaves a waiting one alone, which may yet fail: an operator looks again, too
        ensure_connector(pipe.api, pipe.dsn, pipe.outbox)
        return [record.value for record in pipe.records()] == [b"1"]

    eventually(mended, within_s=90)
    eventually(lambda: look(pipe, stalled_after_s=8).verdict.health is Health.HEALTHY, within_s=60)


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
