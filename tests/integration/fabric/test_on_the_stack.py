"""`waybill apply` and `waybill diff` against real brokers, Connect, registry and databases."""

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from waybill.cli import fabric as cli
from waybill.cli.migrate import migrate_all
from waybill.contracts.names import (
    commands_topic,
    config_topic,
    delivery_group,
    ingress_group,
    ingress_topic,
    intake_group,
)
from waybill.devstack import Stack
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.outbox.install import install
from waybill.outbox.provision import read
from waybill.relay.database import drop_slot, slot_facts
from waybill.testing import eventually

pytestmark = pytest.mark.stack


@dataclass(kw_only=True)
class First:
    """What a dry run said and left behind, and what the apply after it made."""

    code: int
    planned: dict[str, Any]
    topics: list[str]
    outbox: object
    version: int
    committed: list[list[int | None]]


@dataclass
class Fabric:
    """One tenant with an outbox of its own on the session's stack, and its file."""

    stack: Stack
    file: Path
    tenant: Tenant
    #: Of the outbox: its name, database schema (with _) and environment variable.
    outbox: str
    admin: KafkaAdmin
    groups: GroupOffsets
    connect: ConnectApi
    wanted: dict[str, Any] = field(default_factory=dict)
    first: First = field(init=False)

    @property
    def schema(self) -> str:
        return self.outbox.replace("-", "_")

    def run(self, command: str, *words: str) -> tuple[int, Any]:
        """Write the wanted file, run a command with --json on it, and return exit code and document."""
        self.file.write_text(yaml.safe_dump({"apiVersion": "waybill/v1", "tenants": [self.wanted]}))
        result = CliRunner().invoke(cli.apps[command], ["-f", str(self.file), "--json", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, json.loads(result.stdout)

    def apply(self) -> int:
        code, document = self.run("apply")
        assert code == 0, document
        return int(document["version"])

    def drift(self) -> list[tuple[str, str, str]]:
        code, document = self.run("diff")
        assert code == (0 if document["in_step"] else 1)
        return [(each["subject"], each["expected"], each["found"]) for each in document["drift"]]

    def database(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.stack.dsn("app"), autocommit=True)

    def group(self, destination: str) -> str:
        return delivery_group(self.tenant, DestinationName(destination))

    def committed(self, group: str) -> list[int | None]:
        offsets = self.groups.committed(group)
        return [offsets.get((commands_topic(self.tenant), number)) for number in range(2)]

    def ends(self) -> list[int]:
        return self.admin.end_offsets(commands_topic(self.tenant), 2)

    def config_records(self) -> list[tuple[str, Any]]:
        """Read the tenant's whole config topic as committed: key and value, a tombstone as None."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.stack.kafka,
                "group.id": "fabric-test",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        topic, found, open_partitions = config_topic(self.tenant), [], {0, 1}
        consumer.assign([TopicPartition(topic, number, 0) for number in open_partitions])
        while open_partitions:
            message = consumer.poll(10.0)
            assert message is not None
            if message.error():
                open_partitions.discard(message.partition())
                continue
            value = message.value()
            found.append((message.key().decode(), json.loads(value) if value is not None else None))
        consumer.close()
        return found


@pytest.fixture(scope="module")
def applied(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    mark = secrets.token_hex(4)
    clock = SystemClock()
    outbox = f"orders-{mark}"
    fabric = Fabric(
        stack=stack,
        file=tmp_path_factory.mktemp("fabric") / "fabric.yaml",
        tenant=Tenant(f"t-{mark}"),
        outbox=outbox,
        admin=KafkaAdmin(stack.kafka, clock),
        groups=GroupOffsets(stack.kafka),
        connect=ConnectApi(stack.connect_url, clock),
    )
    fabric.wanted = {
        "name": fabric.tenant,
        "partitions": 2,
        "allowNetworks": ["127.0.0.1/32"],
        "outboxes": [
            {"name": outbox, "dsn": {"env": "TEST_ORDERS_DSN"}, "schema": fabric.schema, "aggregateTypes": ["subject"]}
        ],
        "destinations": [_destination("crm")],
        "routes": [{"type": "subject.erase", "destinations": ["crm"]}],
    }
    with psycopg.connect(stack.dsn("app")) as connection:
        install(connection, schema=fabric.schema)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KAFKA", "CONNECT_URL", "REGISTRY_URL", "CONTROL_DSN", "RELAY_SECRET"):
            patch.delenv(f"WAYBILL_{name}", raising=False)
        patch.setenv("WAYBILL_STACK", stack.name)
        patch.setenv("TEST_ORDERS_DSN", stack.dsn("app"))
        fabric.first = _begin(fabric)
        yield fabric
    fabric.connect.delete(f"waybill-{outbox}")
    with closing(fabric.database()) as connection:
        eventually(lambda: _is_dropped(connection, f"waybill_{fabric.schema}"), within_s=30)
        connection.execute(f"DROP PUBLICATION {fabric.schema}_outbox".encode())
        connection.execute(f"DROP SCHEMA {fabric.schema} CASCADE".encode())


def _is_dropped(connection: psycopg.Connection[Any], slot: str) -> bool:
    """Drop a slot nobody reads; a task that is ending may take it up once more."""
    facts = slot_facts(connection, slot)
    if facts is not None and facts.is_active:
        return False
    try:
        drop_slot(connection, slot)
    except psycopg.errors.ObjectInUse:
        return False
    return True


def _begin(fabric: Fabric) -> First:
    migrate_all(fabric.stack.dsn("waybill"))
    code, planned = fabric.run("apply", "--dry-run")
    topics = [name for name in fabric.admin.topic_names() if fabric.tenant in name]
    with closing(fabric.database()) as connection:
        outbox = read(connection, fabric.schema, fabric.tenant)
    version = fabric.apply()
    committed = [fabric.committed(fabric.group("crm")), fabric.committed(intake_group(fabric.tenant))]
    return First(code=code, planned=planned, topics=topics, outbox=outbox, version=version, committed=committed)


def _destination(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "url": "http://127.0.0.1:9/",
        "owner": "tests",
        "profile": "durable_idempotent",
        "tradeoff": "none in a test",
    }


def _emit(fabric: Fabric) -> int:
    """Emit one command, wait until it and its transaction's end lie in the topic; return its configuration version."""
    before = sum(fabric.ends())
    with closing(fabric.database()) as connection:
        connection.execute(
            f"SELECT {fabric.schema}.emit(%s, 'subject', '7', 'subject.erase', '{{}}'::text)".encode(), (fabric.tenant,)
        )
        row = connection.execute(f"SELECT max(config_version) FROM {fabric.schema}.outbox".encode()).fetchone()
    eventually(lambda: sum(fabric.ends()) >= before + 2, within_s=30)
    assert row is not None
    return int(row[0])


def test_a_first_apply_makes_everything_and_a_dry_run_before_it_nothing(applied: Fabric) -> None:
    first = applied.first

    assert (first.code, first.planned["dry_run"], first.planned["applied"]) == (0, True, False)
    assert [(each["action"], each["kind"]) for each in first.planned["changes"]] == [
        ("create", "tenant"),
        ("create", "outbox"),
        ("create", "destination"),
        ("create", "route"),
    ]
    assert (first.topics, first.outbox) == ([], None)
    assert first.version == first.planned["version"] + 1
    assert first.committed == [[0, 0], [0, 0]]
    with closing(applied.database()) as connection:
        known = read(connection, applied.schema, applied.tenant)
    assert known is not None
    assert "subject.erase" in [route.command_type for route in known.routes]
    assert _emit(applied) == known.config_version


def test_the_same_file_again_makes_no_new_version_and_nothing_differs(applied: Fabric) -> None:
    version = applied.apply()

    code, document = applied.run("apply")

    assert (code, document["version"], document["previous"], document["changes"]) == (0, version, version, [])
    assert applied.drift() == []


def test_a_tenant_that_asks_for_an_ingress_gets_its_topic_and_the_group_its_start(applied: Fabric) -> None:
    topic, group = ingress_topic(applied.tenant), ingress_group(applied.tenant)
    before = topic in applied.admin.topic_names()
    applied.wanted["ingress"] = {"commandTypes": ["subject.erase"]}

    applied.apply()

    assert (before, topic in applied.admin.topic_names()) == (False, True)
    assert applied.groups.committed(group) == {(topic, 0): 0, (topic, 1): 0}
    assert applied.drift() == []


def test_the_config_topic_holds_every_object_and_a_tombstone_for_a_retired_route(applied: Fabric) -> None:
    applied.wanted["routes"].append({"type": "subject.export", "destinations": ["crm"], "ttl": "1d"})
    version = applied.apply()
    eventually(lambda: "route/subject.export" in dict(applied.config_records()), within_s=30)

    objects = dict(applied.config_records())

    assert set(objects) - {"destination/erp"} == {
        f"tenant/{applied.tenant}",
        f"outbox/{applied.outbox}",
        "destination/crm",
        "route/subject.erase",
        "route/subject.export",
    }
    assert objects["route/subject.export"] == {
        "kind": "route",
        "tenant": applied.tenant,
        "name": "subject.export",
        "version": version,
        "body": {
            "type": "subject.export",
            "destinations": ["crm"],
            "ttl": "1d",
            "capability": "",
            "capabilityVersion": 1,
            "forms": ["clear", "reference", "sealed"],
            "onExpiry": "continue",
            "rendering": "avro",
        },
    }

    del applied.wanted["routes"][1]
    applied.apply()
    eventually(lambda: ("route/subject.export", None) in applied.config_records(), within_s=30)


def test_a_new_destination_owns_everything_from_the_end_before_its_route(applied: Fabric) -> None:
    applied.apply()
    _emit(applied)
    ends = applied.ends()
    applied.wanted["destinations"].append(_destination("erp"))
    applied.wanted["routes"][0]["destinations"] = ["crm", "erp"]

    version = applied.apply()

    assert applied.committed(applied.group("erp")) == ends
    assert _emit(applied) == version
    consumer = Consumer(
        {
            "bootstrap.servers": applied.stack.kafka,
            "group.id": applied.group("erp"),
            "group.protocol": "consumer",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([commands_topic(applied.tenant)])
    message = eventually(lambda: consumer.poll(0.2), within_s=30)
    consumer.close()
    assert message.error() is None
    headers = dict(message.headers())
    assert (headers["ce_configversion"], json.loads(headers["ce_sequences"])["erp"]) == (str(version).encode(), 1)


def test_drift_is_shown_for_each_part_and_repaired_by_applying_again(applied: Fabric) -> None:
    applied.apply()
    connector = f"waybill-{applied.outbox}"
    topic = commands_topic(applied.tenant)
    settings = applied.connect.config(connector)
    assert settings is not None
    applied.admin.set_configs(topic, {"retention.ms": "1000000"})
    applied.connect.put(connector, {**settings, "poll.interval.ms": "20"})
    with closing(applied.database()) as connection:
        connection.execute(f"DELETE FROM {applied.schema}.route".encode())

    found = applied.drift()

    assert {subject for subject, _, _ in found} == {
        f"topic {topic}",
        f"connector {connector}",
        f"outbox {applied.tenant}/{applied.outbox}",
    }
    assert (f"connector {connector}", "poll.interval.ms=10", "poll.interval.ms=20") in found
    assert (f"outbox {applied.tenant}/{applied.outbox}", "route subject.erase: as applied", "none") in found
    applied.apply()
    eventually(lambda: applied.drift() == [], within_s=30)  # a connector that was changed starts anew


def test_a_file_that_differs_from_what_is_applied_is_drift(applied: Fabric) -> None:
    applied.apply()
    applied.wanted["destinations"][0]["concurrency"] = 7

    code, document = applied.run("diff")

    assert (code, document["in_step"]) == (1, False)
    assert document["changes"][0]["fields"] == [{"field": "concurrency", "old": 64, "new": 7}]
    del applied.wanted["destinations"][0]["concurrency"]


def test_an_applied_destination_that_lost_its_place_is_not_given_another(applied: Fabric) -> None:
    applied.apply()
    group = applied.group("crm")
    kept = applied.committed(group)
    client = AdminClient({"bootstrap.servers": applied.stack.kafka})
    client.delete_consumer_groups([group])[group].result(30)

    subjects = [subject for subject, _, _ in applied.drift()]
    with pytest.raises(RefusedError, match="reset-offsets") as refused:
        applied.apply()

    assert subjects == [f"group {group}"] * 2
    assert refused.value.rule == "group-start-lost"
    applied.groups.commit(group, {(commands_topic(applied.tenant), n): offset or 0 for n, offset in enumerate(kept)})
    assert applied.drift() == []
