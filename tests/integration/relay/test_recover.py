"""What recovery writes is what the connector would have written, and it writes only what is missing."""

import secrets
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from fixtures.fix_relay import PARTITIONS, Pipe, make_topic
from fixtures.fix_stack import FreshDatabase

from waybill.infra.topic_log import LogRecord
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.relay import recover
from waybill.relay.database import drop_slot
from waybill.relay.replication import slot_with_snapshot
from waybill.testing import MovableClock, eventually

pytestmark = pytest.mark.stack

#: Every column once with and once without a value, whole seconds and single milliseconds, every data form.
ODD_ROWS = """
    INSERT INTO waybill.outbox (created_day, route, command_id, source, command_type, aggregate, issued_at,
        content_type, data_schema, tenant, sequences, optional_destinations, operation_id, request_id, request_size,
        instruction_version, replaces, expires_at, config_version, capability, capability_version, legal_versions,
        config_versions, data_form, data_key_id, data_ref, data_digest, traceparent, payload)
    VALUES
    (%(day)s, %(route)s, gen_random_uuid(), 'urn:x:a', 'subject.erase', 'subject/ä€😀 b', %(whole)s,
        'application/json', 'urn:schema:1', %(tenant)s, '{"mail": 2, "crm": 10}', '["mail"]', 'op-1', 'rq-1', 7,
        2, gen_random_uuid(), %(later)s, 3, 'subject.erase', 2, '1..3', '..4', 'clear', NULL, NULL, NULL,
        '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', '{"price": 1.10, "n": null}'),
    (%(day)s, %(route)s, gen_random_uuid(), 'urn:x:a', 'subject.erase', 'subject/sealed', %(milli)s,
        'application/octet-stream', NULL, %(tenant)s, '{"crm": 1}', NULL, NULL, NULL, NULL,
        1, NULL, %(later)s, 3, 'subject.erase', 2, NULL, NULL, 'sealed', 'key-1', NULL, NULL, NULL,
        decode('00ff10fe7f80', 'hex')),
    (%(day)s, %(route)s, gen_random_uuid(), 'urn:x:a', 'subject.erase', 'subject/reference', %(tenth)s,
        'application/json', NULL, %(tenant)s, '{"crm": 1}', NULL, NULL, NULL, NULL,
        1, NULL, %(later)s, 3, 'subject.erase', 2, NULL, NULL, 'reference', NULL, 'https://x.example/1',
        'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', NULL, '')
"""


def insert_odd_rows(pipe: Pipe) -> None:
    now = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    values = {
        "day": now.date(),
        "route": f"{pipe.tenant}.commands",
        "tenant": pipe.tenant,
        "whole": now,
        "milli": now + timedelta(milliseconds=7),
        "tenth": now + timedelta(milliseconds=100),
        "later": now + timedelta(days=7),
    }
    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
        connection.execute(ODD_ROWS, values)


def empty_the_topic(pipe: Pipe) -> None:
    client = AdminClient({"bootstrap.servers": pipe.stack.kafka})
    client.delete_topics([pipe.topic])[pipe.topic].result(30)
    eventually(lambda: pipe.topic not in pipe.admin.topic_names(), within_s=10)
    make_topic(pipe)


def by_id(records: list[LogRecord]) -> dict[bytes | None, LogRecord]:
    return {dict(record.headers)["id"]: record for record in records}


@pytest.mark.requirement("DC-5")
def test_a_republished_record_is_the_one_debezium_wrote_byte_for_byte(pipe: Pipe) -> None:
    pipe.emit(4, aggregates=2)
    insert_odd_rows(pipe)
    eventually(lambda: len(pipe.records()) == 7, within_s=30)
    written = pipe.records()
    empty_the_topic(pipe)

    result = recover(pipe.recovery())

    assert (result.missing, result.republished, result.reordered) == (7, 7, 0)
    assert by_id(pipe.records()) == by_id(written)


def test_a_healthy_pipe_is_left_as_it_was_and_a_dry_run_touches_nothing(pipe: Pipe) -> None:
    pipe.emit(5)
    eventually(lambda: len(pipe.records()) == 5, within_s=30)

    dry = recover(pipe.recovery(), dry_run=True)
    status = pipe.api.status(pipe.outbox.connector)
    wet = recover(pipe.recovery())
    pipe.emit(1, start=5)

    assert (dry.compared, dry.missing, dry.republished, dry.lsn) == (5, 0, 0, None)
    assert status is not None
    assert status.state == "RUNNING"
    assert (wet.compared, wet.missing, wet.republished) == (5, 0, 0)
    eventually(lambda: len(pipe.records()) == 6, within_s=30)


def test_a_dry_run_counts_what_is_missing_and_leaves_it(pipe: Pipe) -> None:
    pipe.emit(2)
    eventually(lambda: len(pipe.records()) == 2, within_s=30)
    empty_the_topic(pipe)

    dry = recover(pipe.recovery(), dry_run=True)

    assert (dry.missing, dry.republished) == (2, 0)
    assert pipe.records() == []


def test_rows_older_than_what_the_topic_still_holds_are_not_judged(pipe: Pipe) -> None:
    pipe.emit(3, aggregates=1)
    eventually(lambda: len(pipe.records()) == 3, within_s=30)
    client = AdminClient({"bootstrap.servers": pipe.stack.kafka})
    ends = {number: end for number, end in enumerate(pipe.admin.end_offsets(pipe.topic, PARTITIONS)) if end}

    results = []
    for aged_out in (dict.fromkeys(ends, 1), ends):  # the first record, then all of them
        for future in client.delete_records(
            [TopicPartition(pipe.topic, *place) for place in aged_out.items()]
        ).values():
            future.result(30)
        results.append(recover(pipe.recovery(), dry_run=True))

    assert [(result.compared, result.not_judged, result.missing) for result in results] == [(0, 3, 0), (0, 3, 0)]


def test_a_connector_or_database_of_another_name_is_wrong_input(pipe: Pipe) -> None:
    with pytest.raises(ConfigError, match="Connect has no connector waybill-nobody"):
        recover(pipe.recovery(connector="waybill-nobody"))
    with pytest.raises(ConfigError, match=f"reads database {pipe.database.name}"):
        recover(pipe.recovery(dsn=pipe.stack.dsn("postgres")))


class Impatient(MovableClock):
    """A clock whose time flies: every look at it is twenty seconds later."""

    def monotonic(self) -> float:
        self.advance(20)
        return super().monotonic()


def test_a_transaction_that_stands_in_the_way_is_named(fresh_database: FreshDatabase) -> None:
    slot = f"test_{secrets.token_hex(5)}"
    with closing(psycopg.connect(fresh_database.dsn(), application_name="sleeper")) as sleeper:
        sleeper.execute("SELECT pg_current_xact_id()")

        with (
            pytest.raises(UnavailableError, match=r"older transactions run: pid \d+ \(sleeper"),
            slot_with_snapshot(fresh_database.dsn(), slot, Impatient()),
        ):
            pass

    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        assert drop_slot(connection, slot) is False
