"""The control database's outbox: objects in a compacted topic, null as a tombstone, never set back by a recovery."""

import secrets
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from fixtures.fix_relay import PARTITIONS
from fixtures.fix_stack import FreshDatabase

from waybill.catalog import apply_topics, load_topics
from waybill.contracts.names import config_topic
from waybill.devstack import Stack
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.migrate import migrate
from waybill.infra.topic_log import LogRecord, scan
from waybill.kernel.ids import Tenant
from waybill.relay import OutboxConnection, OutboxKind, Recovery, ensure_connector, recover
from waybill.relay.database import drop_slot
from waybill.testing import eventually

pytestmark = pytest.mark.stack


class Control:
    """A control database with its connector and one tenant's config topic."""

    def __init__(self, stack: Stack, database: FreshDatabase) -> None:
        self.stack, self.database = stack, database
        self.tenant = Tenant(f"t-{secrets.token_hex(6)}")
        self.topic = config_topic(self.tenant)
        self.clock = SystemClock()
        self.admin = KafkaAdmin(stack.kafka, self.clock)
        self.api = ConnectApi(stack.connect_url, self.clock)
        self.outbox = OutboxConnection(
            name=f"control-{self.tenant}",
            host=stack.postgres_host,
            port=stack.postgres_port,
            database=database.name,
            user="waybill_relay",
            secret_file=str(stack.secrets_file),
            secret_key="relay.password",
            schema="fabric",
            kind=OutboxKind.CONTROL,
        )

    def make_topic(self) -> None:
        config = [declared for declared in load_topics() if declared.name == "config"]
        apply_topics(self.admin, self.tenant, PARTITIONS, declared=config)

    def insert(self, *objects: tuple[str, str | None]) -> None:
        """Commit one row per object; no value removes it."""
        with closing(psycopg.connect(self.database.dsn(), autocommit=True)) as connection:
            route = f"{self.tenant}.config"
            connection.execute("INSERT INTO fabric.control_route VALUES (%s) ON CONFLICT DO NOTHING", (route,))
            for key, value in objects:
                connection.execute(
                    "INSERT INTO fabric.control_outbox (route, key, payload) VALUES (%s, %s, %s)",
                    (route, key, value.encode() if value is not None else None),
                )

    def records(self) -> list[LogRecord]:
        starts = self.admin.earliest_offsets(self.topic, PARTITIONS)
        ends = self.admin.end_offsets(self.topic, PARTITIONS)
        return list(scan(self.stack.kafka, self.topic, starts=starts, ends=ends, clock=self.clock))


@pytest.fixture
def control(stack: Stack, fresh_database: FreshDatabase) -> Iterator[Control]:
    made = Control(stack, fresh_database)
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        migrate(connection, schema="fabric", package="waybill.fabric.migrations")
    made.make_topic()
    ensure_connector(made.api, fresh_database.dsn(), made.outbox)
    yield made
    made.api.delete(made.outbox.connector)
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        drop_slot(connection, made.outbox.slot)
    client = AdminClient({"bootstrap.servers": stack.kafka})
    client.delete_topics([made.topic])[made.topic].result(30)


def said(record: LogRecord) -> tuple[bytes, bool, bytes, object]:
    """What a record says wherever it lies, in an order."""
    return record.key or b"", record.value is None, record.value or b"", record.headers


def test_recovery_writes_only_the_newest_value_of_each_object(control: Control) -> None:
    control.insert(
        ("destination/crm", "1"), ("destination/old", "1"), ("destination/crm", "2"), ("destination/old", None)
    )
    eventually(lambda: len(control.records()) == 4, within_s=60)
    written = control.records()
    client = AdminClient({"bootstrap.servers": control.stack.kafka})
    client.delete_topics([control.topic])[control.topic].result(30)
    eventually(lambda: control.topic not in control.admin.topic_names(), within_s=10)
    control.make_topic()

    task = Recovery(
        connector=control.outbox.connector,
        dsn=control.database.dsn(),
        api=control.api,
        kafka=control.stack.kafka,
        clock=control.clock,
    )
    first = recover(task)
    second = recover(task)

    newest = [record for record in written if record.value in {b"2", None}]
    assert {record.key for record in newest} == {b"destination/crm", b"destination/old"}
    assert sorted(map(said, control.records())) == sorted(map(said, newest)), "in a new topic at other offsets"
    assert (first.missing, first.republished) == (2, 2)
    assert (second.missing, second.republished) == (0, 0)
