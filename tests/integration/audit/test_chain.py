"""The chain in a real PostgreSQL: what people do becomes an entry by itself, and what is changed is found."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from fixtures.fix_relay import PARTITIONS
from fixtures.fix_stack import FreshDatabase
from typer.testing import CliRunner

from waybill.access import KeyRing, Scope
from waybill.audit import AuditStore, Entry, Fault, public_keys, sign_anchor, signed_by, verify
from waybill.audit.core.chain import GENESIS, link
from waybill.catalog import apply_topics, load_topics
from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.crypto.keyring import ensure_signing
from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.controls.standing import Control, Standing
from waybill.devstack import Stack
from waybill.fabric import Applied, FabricStore, plan
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.ids import DestinationName, Tenant
from waybill.relay import OutboxConnection, OutboxKind, ensure_connector
from waybill.relay.database import drop_slot
from waybill.submission.core.resubmission import read_rule
from waybill.submission.rules import set_rule
from waybill.testing import eventually
from waybill.testing.clocks import MovableClock

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACME = Tenant("acme")
CRM = DestinationConfig(tenant=ACME, name=DestinationName("crm"), url="http://crm.example/", owner="c", tradeoff="none")
DECIDE = """
INSERT INTO delivery.decision (tenant, destination, decision_id, aggregate, kind, delivery_id, version, states, decided_by,
    reason, decided_at)
VALUES ('acme', 'crm', %s, 'subject/1', %s, %s, 1, '{}', 'ann', 'asked to', now())
"""
JUDGE = "UPDATE delivery.decision SET partition = 3, verdict = 'applied', judged_at = now()"


@pytest.fixture
def database(fresh_database: FreshDatabase) -> Iterator[psycopg.Connection[Any]]:
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        yield connection


def pause(connection: psycopg.Connection[Any], tenant: str = "acme", by: str = "ann", destination: str = "crm") -> None:
    control = Control(
        tenant=tenant, destination=destination, standing=Standing.PAUSED, at=NOW, by=by, reason="it hurts"
    )
    assert ControlLog(connection).decide(tenant, destination, lambda _: control)


def entries(connection: psycopg.Connection[Any], tenant: str = "acme") -> list[Entry]:
    return list(AuditStore(connection, tenant).entries())


def told(connection: psycopg.Connection[Any]) -> list[tuple[int, str, str]]:
    bodies = [(entry.partition, json.loads(entry.body)) for entry in entries(connection)]
    return [(partition, body["act"], body["by"]) for partition, body in bodies]


def as_superuser(connection: psycopg.Connection[Any], change: str) -> None:
    """Do what only somebody who owns the database can."""
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(change.encode())


def test_every_act_of_people_is_an_entry_with_who_and_what(
    database: psycopg.Connection[Any], clock: MovableClock
) -> None:
    fabric = FabricConfig(version=0, tenants=(TenantConfig(name=ACME, destinations=(CRM,)),))
    store = FabricStore(database)
    store.record(fabric, plan(store.current(), fabric).changes, Applied(at=NOW, by="olga"))
    pause(database)
    KeyRing(database, clock).create(ACME, "shop", frozenset({Scope.COMMANDS_SUBMIT}), lifetime=None, by="bob")
    set_rule(database, clock, (ACME, "shop"), read_rule("never"), ("cid", "they doubled"))
    database.execute(DECIDE, (uuid4(), "cancel", uuid4()))
    database.execute(JUDGE)

    assert told(database) == [
        (-1, "fabric.object.insert", "olga"),
        (-1, "fabric.object.insert", "olga"),
        (-1, "delivery.destination_control.insert", "ann"),
        (-1, "access.event.insert", "bob"),
        (-1, "submission.resubmission_rule.insert", "cid"),
        (-1, "delivery.decision.insert", "ann"),
        (3, "delivery.decision.update", "postgres"),
    ]
    rows = [json.loads(entry.body)["row"] for entry in entries(database)]
    assert "body" not in rows[0]
    assert len(rows[0]["body_sha256"]) == 64
    assert (rows[2]["reason"], rows[6]["verdict"]) == ("it hurts", "applied")
    assert verify(entries(database), [], lambda _: False).findings == ()


def test_an_act_that_was_rolled_back_is_no_entry(database: psycopg.Connection[Any]) -> None:
    pause(database)
    with database.transaction(force_rollback=True):
        pause(database, by="bob")
    pause(database, by="cid")

    assert [(entry.number, json.loads(entry.body)["by"]) for entry in entries(database)] == [(1, "ann"), (2, "cid")]


def test_what_a_worker_decides_by_itself_is_no_entry(database: psycopg.Connection[Any]) -> None:
    database.execute(DECIDE, (uuid4(), "supersede", uuid4()))
    database.execute(JUDGE)

    assert entries(database) == []


def test_a_decision_that_is_removed_leaves_an_entry(database: psycopg.Connection[Any]) -> None:
    database.execute(DECIDE, (uuid4(), "cancel", uuid4()))
    database.execute("DELETE FROM delivery.decision")

    assert [act for _, act, _ in told(database)] == ["delivery.decision.insert", "delivery.decision.delete"]


def test_the_database_hashes_as_it_is_written_down(database: psycopg.Connection[Any]) -> None:
    with database.transaction(force_rollback=True):
        database.execute("SELECT audit.append('acme', -1, %s)", ('{"act": "é"}',))
        (entry,) = entries(database)

    assert entry.hash == link(entry, GENESIS) == "98f2eb820c99a37a1a4b9b38988942287068c9817998648f31087d1d5981e8ef"


def test_acts_at_once_stand_one_behind_the_other(
    fresh_database: FreshDatabase, database: psycopg.Connection[Any]
) -> None:
    def act(name: int) -> None:
        with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
            for _ in range(10):
                pause(connection, destination=f"d{name}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, range(4)))

    assert [entry.number for entry in entries(database)] == list(range(1, 41))
    assert verify(entries(database), [], lambda _: False).findings == ()


@pytest.mark.requirement("HS-7")
@pytest.mark.parametrize(
    "change", ["UPDATE audit.entry SET body = '{}'", "DELETE FROM audit.entry", "TRUNCATE audit.entry"]
)
def test_entries_are_only_added(database: psycopg.Connection[Any], change: str) -> None:
    pause(database)

    with pytest.raises(psycopg.errors.RestrictViolation):
        database.execute(change.encode())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit.entry SET body = '{}'",
        "DELETE FROM audit.entry",
        "INSERT INTO audit.entry VALUES ('acme', -1, 2, '{}', repeat('0', 64))",
        "SELECT audit.append('acme', -1, '{}')",
        "SELECT audit.watch('audit.entry', 'tenant')",
        "ALTER TABLE audit.entry DISABLE TRIGGER history_only",
    ],
)
def test_a_worker_acts_and_is_taken_down_and_cannot_touch_the_chain(
    fresh_database: FreshDatabase, database: psycopg.Connection[Any], change: str
) -> None:
    with closing(psycopg.connect(fresh_database.dsn("waybill_worker"), autocommit=True)) as worker:
        pause(worker, by="guard of the worker")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute(change.encode())

    (entry,) = entries(database)
    assert json.loads(entry.body)["role"] == "waybill_worker"


@pytest.mark.requirement("HS-7")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("UPDATE audit.entry SET body = replace(body, 'p3', 'p8') WHERE number = 4", {Fault.CHANGED}),
        (
            "UPDATE audit.entry SET hash = translate(hash, '0123456789abcdef', '123456789abcdef0') WHERE number = 4",
            {Fault.CHANGED},
        ),
        ("DELETE FROM audit.entry WHERE number = 4", {Fault.CHANGED, Fault.OUT_OF_ORDER}),
        ("DELETE FROM audit.entry WHERE number = 1", {Fault.CHANGED, Fault.OUT_OF_ORDER}),
        ("DELETE FROM audit.entry WHERE number >= 5", {Fault.CUT_OFF}),
        ("DELETE FROM audit.entry", {Fault.CUT_OFF}),
        (
            "UPDATE audit.entry AS e SET body = o.body, hash = o.hash FROM audit.entry o WHERE e.number + o.number = 7",
            {Fault.CHANGED, Fault.REWRITTEN},
        ),
    ],
)
def test_what_the_owner_of_the_database_changes_is_found(
    database: psycopg.Connection[Any], tmp_path: Path, change: str, expected: set[Fault]
) -> None:
    for number in range(6):
        pause(database, by=f"p{number}")
    ensure_signing(tmp_path, ACME, NOW)
    is_signed = signed_by(public_keys(tmp_path / "acme" / "jwks.json"))
    anchors = [sign_anchor(tmp_path, head, NOW) for head in AuditStore(database, "acme").heads()]
    assert verify(entries(database), anchors, is_signed).findings == ()

    as_superuser(database, change)

    assert {finding.fault for finding in verify(entries(database), anchors, is_signed).findings} == expected


@pytest.fixture
def tenant(
    stack: Stack, fresh_database: FreshDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tenant]:
    """A tenant with a topic for anchors, a key, and a control database that is relayed."""
    tenant, dsn = Tenant(f"t-{secrets.token_hex(6)}"), fresh_database.dsn()
    for name, value in {"KAFKA": stack.kafka, "CONTROL_DSN": dsn, "KEYS_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WAYBILL_{name}", value)
    migrate_all(dsn)
    ensure_signing(tmp_path, tenant, NOW)
    declared = [each for each in load_topics() if each.name == "audit"]
    apply_topics(KafkaAdmin(stack.kafka, SystemClock()), tenant, PARTITIONS, declared=declared)
    outbox = OutboxConnection(
        name=f"control-{tenant}",
        host=stack.postgres_host,
        port=stack.postgres_port,
        database=fresh_database.name,
        user="waybill_relay",
        secret_file=str(stack.secrets_file),
        secret_key="relay.password",
        schema="fabric",
        kind=OutboxKind.CONTROL,
    )
    api = ConnectApi(stack.connect_url, SystemClock())
    ensure_connector(api, dsn, outbox)
    yield tenant
    api.delete(outbox.connector)
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        drop_slot(connection, outbox.slot)
    client = AdminClient({"bootstrap.servers": stack.kafka})
    topic = f"waybill.{tenant}.audit"
    client.delete_topics([topic])[topic].result(30)


def run(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(root, ["audit", *words, "--json"], catch_exceptions=code == 2)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.mark.stack
@pytest.mark.requirement("HS-7")
def test_a_tail_that_was_cut_off_with_its_anchors_is_found_by_the_topic(
    fresh_database: FreshDatabase, tenant: Tenant, tmp_path: Path
) -> None:
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as database:
        for number in range(3):
            pause(database, tenant, by=f"p{number}")
        refused = CliRunner().invoke(root, ["audit", "anchor", tenant])
        assert "waybill apply" in str(refused.exception)
        FabricStore(database).open_routes([tenant])
        (anchor,) = run("anchor", tenant)["anchors"]
        assert (anchor["partition"], anchor["number"], run("anchor", tenant)["anchors"]) == (-1, 3, [])
        pause(database, tenant, by="p3")
        (chain,) = run("verify", tenant)["chains"]
        assert (chain["entries"], chain["anchored"]) == (4, 3)
        listed = run("list", tenant, "--act", "delivery.destination", "--limit", "2")["entries"]
        assert [row["by"] for row in listed] == ["p3", "p2"]
        assert run("list", tenant, "--act", "access")["entries"] == []

        file, keys = tmp_path / "export", str(tmp_path / tenant / "jwks.json")
        exported = CliRunner().invoke(root, ["audit", "export", tenant, "--to", str(file)], catch_exceptions=False)
        assert exported.exit_code == 0
        assert run("verify", "--file", str(file), "--keys", keys)["intact"]
        file.write_bytes(file.read_bytes().replace(b"p1", b"p9", 1))
        assert not run("verify", "--file", str(file), "--keys", keys, code=1)["intact"]

        as_superuser(database, f"DELETE FROM audit.entry WHERE tenant = '{tenant}' AND number >= 3")
        assert run("verify", tenant, code=1)["findings"][0]["fault"] == "cut_off"
        as_superuser(database, "DELETE FROM audit.anchor")
        eventually(lambda: found_on_topic(tenant), 30)


def found_on_topic(tenant: Tenant) -> bool:
    done = CliRunner().invoke(root, ["audit", "verify", tenant, "--json"])
    return done.exit_code == 1 and json.loads(done.stdout)["findings"][0]["fault"] == "cut_off"
