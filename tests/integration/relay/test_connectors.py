"""Slot before rows, configuration put once, a task proven to run; and each way it is refused."""

from contextlib import closing

import psycopg
import pytest
from fixtures.fix_relay import Pipe

from waybill.contracts.command import parse_command
from waybill.kernel.errors import RefusedError
from waybill.relay import ensure_connector, ensure_slot, recover, run_canary
from waybill.relay.database import drop_slot
from waybill.testing import eventually

pytestmark = pytest.mark.stack


def execute(pipe: Pipe, query: str) -> None:
    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
        connection.execute(query)


def publication(pipe: Pipe) -> object:
    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
        return connection.execute(
            "SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = 'waybill_outbox'"
        ).fetchone()


def test_a_row_arrives_as_a_command_and_ensuring_again_changes_nothing(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe
    before = publication(pipe)

    first = ensure_connector(pipe.api, pipe.dsn, pipe.outbox)
    pipe.emit(4, aggregates=2)
    canary = run_canary(pipe.database.dsn("waybill_app"), pipe.stack.kafka, pipe.tenant, pipe.clock)
    again = ensure_connector(pipe.api, pipe.dsn, pipe.outbox)

    assert (first.slot_created, first.config_changed, first.state) == (True, True, "RUNNING")
    assert (again.slot_created, again.config_changed, again.state) == (False, False, "RUNNING")
    assert canary.latency_ms is not None
    # nobody altered the publication, not even at a start
    assert publication(pipe) == before
    commands = [parse_command(r.key, r.headers, r.value) for r in pipe.records()]
    assert [c.data for c in commands if c.aggregate == "subject/s1"] == [b"1", b"3"]
    assert [dict(c.sequences) for c in commands if c.aggregate == "subject/s1"] == [{"crm": 1}, {"crm": 2}]


def test_a_slot_made_before_the_connector_keeps_what_was_committed_in_between(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe

    assert ensure_slot(pipe.dsn, pipe.outbox) is True
    assert ensure_slot(pipe.dsn, pipe.outbox) is False
    pipe.emit(3)
    result = ensure_connector(pipe.api, pipe.dsn, pipe.outbox)

    assert result.slot_created is False
    eventually(lambda: len(pipe.records()) == 3, within_s=30)


def test_rows_older_than_any_slot_are_refused_or_recovered_never_skipped(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe
    pipe.emit(3)

    with pytest.raises(RefusedError) as refused:
        ensure_connector(pipe.api, pipe.dsn, pipe.outbox)
    result = ensure_connector(pipe.api, pipe.dsn, pipe.outbox, close_hole=lambda _: recover(pipe.recovery()) and None)

    assert refused.value.rule == "slot_younger_than_rows"
    assert (result.slot_created, result.state) == (True, "RUNNING")
    assert sorted(record.value or b"" for record in pipe.records()) == [b"0", b"1", b"2"]


def test_a_lost_slot_and_a_stopped_connector_are_refused_with_what_to_do(pipe: Pipe) -> None:
    pipe.api.stop(pipe.outbox.connector)
    pipe.api.wait_status(pipe.outbox.connector, lambda s: s is not None and not s.tasks, 30)

    with pytest.raises(RefusedError) as stopped:
        ensure_connector(pipe.api, pipe.dsn, pipe.outbox)
    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
        drop_slot(connection, pipe.outbox.slot)
    with pytest.raises(RefusedError) as gone:
        ensure_connector(pipe.api, pipe.dsn, pipe.outbox)

    assert stopped.value.rule == "connector_stopped"
    assert gone.value.rule in {"slot_lost", "connector_stopped"}
    assert f"waybill relay recover --connector {pipe.outbox.connector}" in str(gone.value)


def test_a_canary_that_does_not_come_back_says_what_to_look_at(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe
    ensure_slot(pipe.dsn, pipe.outbox)

    result = run_canary(pipe.database.dsn("waybill_app"), pipe.stack.kafka, pipe.tenant, pipe.clock, within_s=1)

    assert result.latency_ms is None
    assert f"slot {pipe.outbox.slot} has no reader" in result.diagnosis[0]


def test_a_canary_of_an_unknown_tenant_is_refused_in_the_outbox_words(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe
    execute(pipe, "DELETE FROM waybill.tenant")

    with pytest.raises(RefusedError, match="may not emit in this outbox"):
        run_canary(pipe.database.dsn("waybill_app"), pipe.stack.kafka, pipe.tenant, pipe.clock, within_s=1)
