"""Controls of destinations in a real PostgreSQL: by people on the command line, followed by workers."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase
from typer.testing import CliRunner, Result

from waybill.cli.destinations import app
from waybill.cli.migrate import migrate_all
from waybill.contracts.fabric import DestinationConfig, FabricConfig, FlowLimits, TenantConfig
from waybill.delivery.controls.report_statements import ReportStore
from waybill.delivery.controls.statements import ControlLog, ControlStore
from waybill.delivery.core.controls.circuit import CircuitState
from waybill.delivery.core.controls.reports import Report
from waybill.delivery.core.controls.standing import Control, Standing
from waybill.delivery.store import TaskStore
from waybill.fabric import Applied, FabricStore, plan
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACME = Tenant("acme")
FABRIC = FabricConfig(
    version=0,
    tenants=(
        TenantConfig(
            name=ACME,
            destinations=tuple(
                DestinationConfig(
                    tenant=ACME,
                    name=DestinationName(name),
                    url=f"http://{name}.example/",
                    owner=f"team-{name}",
                    tradeoff="none",
                    limits=FlowLimits(rate_per_s=20.0),
                )
                for name in ("crm", "erp")
            ),
        ),
    ),
)


@pytest.fixture
def applied(fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch) -> FreshDatabase:
    migrate_all(fresh_database.dsn())
    with psycopg.connect(fresh_database.dsn(), autocommit=True) as connection:
        store = FabricStore(connection)
        store.record(FABRIC, plan(store.current(), FABRIC).changes, Applied(at=NOW, by="test"))
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", fresh_database.dsn())
    return fresh_database


@pytest.fixture
async def store(applied: FreshDatabase) -> AsyncIterator[TaskStore]:
    """What a worker's role may do."""
    store = TaskStore(applied.dsn("waybill_worker"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def worker(store: TaskStore) -> ControlStore:
    return ControlStore(store.run)


def waybill(*words: str) -> dict[str, Any]:
    ended: Result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


async def test_what_people_decide_is_audited_and_seen_by_workers(worker: ControlStore) -> None:
    assert await worker.load() == []

    paused = waybill("pause", "acme", "crm", "--reason", "their migration", "--by", "ada")
    again = waybill("pause", "acme", "crm", "--reason", "once more", "--by", "bob")
    waybill("limit", "acme", "crm", "--rate", "10/m", "--in-flight", "3", "--reason", "gently", "--by", "bob")
    waybill("limit", "acme", "--in-flight", "100", "--reason", "their gateway", "--by", "bob")
    resumed = waybill("resume", "acme", "crm", "--reason", "done", "--by", "ada")

    assert (paused["changed"], paused["standing"], paused["rate"], paused["owner"]) == (
        True,
        "paused",
        "20/s",
        "team-crm",
    )
    assert (again["changed"], again["reason"]) == (False, "their migration")
    assert (resumed["standing"], resumed["rate"], resumed["in_flight"]) == ("running", "10/m", 3)
    seen = {control.destination: control for control in await worker.load()}
    assert (seen["crm"].standing, seen["crm"].limits) == (Standing.RUNNING, FlowLimits(rate_per_s=10 / 60, in_flight=3))
    assert seen[""].limits == FlowLimits(in_flight=100)
    shown = waybill("show", "acme", "crm")
    assert [(each["decided_by"], each["standing"], each["reason"]) for each in shown["history"]] == [
        ("ada", "running", "done"),
        ("bob", "paused", "gently"),
        ("ada", "paused", "their migration"),
    ]

    cleared = waybill("limit", "acme", "crm", "--clear", "--reason", "as agreed")
    assert (cleared["rate"], cleared["in_flight"]) == ("20/s", None)


async def test_what_a_worker_decides_is_shown_with_its_reason(worker: ControlStore) -> None:
    closed = Control(
        tenant="acme",
        destination="erp",
        standing=Standing.CLOSED,
        at=NOW,
        by="worker w1",
        reason="it answered 410 Gone",
    )
    await worker.add(closed)

    rows = {row["destination"]: row for row in waybill("show")["destinations"]}

    assert (rows["erp"]["standing"], rows["erp"]["reason"]) == ("closed", "it answered 410 Gone")
    assert (rows["crm"]["standing"], rows["crm"]["decided_by"]) == ("running", None)


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "acme", "crm", "--reason", " "),
        ("pause", "acme", "nobody", "--reason", "why"),
        ("drain", "nobody", "crm", "--reason", "why"),
        ("limit", "acme", "crm", "--reason", "why"),
        ("limit", "acme", "crm", "--rate", "5", "--reason", "why"),
        ("limit", "acme", "crm", "--rate", "5/s", "--clear", "--reason", "why"),
        ("limit", "acme", "crm", "--rate", "5/s"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(applied: FreshDatabase, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(app, words, catch_exceptions=False)

    with psycopg.connect(applied.dsn()) as connection:
        assert ControlLog(connection).in_force() == {}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE delivery.destination_control SET reason = 'x'",
        "DELETE FROM delivery.destination_control",
        "TRUNCATE delivery.destination_control",
    ],
)
def test_controls_are_never_changed(applied: FreshDatabase, statement: str) -> None:
    with psycopg.connect(applied.dsn(), autocommit=True) as connection, pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute(statement)


OPEN = Report(
    tenant="acme",
    destination="crm",
    held_back="dead",
    held_back_since=NOW,
    circuit=CircuitState.OPEN,
    circuit_since=NOW,
    next_probe=NOW,
)


def shown(destination: str = "crm") -> dict[str, Any]:
    (row,) = waybill("show", "acme", destination)["destinations"]
    found: dict[str, Any] = row
    return found


async def test_what_workers_say_is_shown_until_they_say_something_else_leave_or_go_silent(
    store: TaskStore, applied: FreshDatabase
) -> None:
    reports = ReportStore(store.run)
    with psycopg.connect(applied.dsn(), autocommit=True) as connection:
        for partition, owner in enumerate(("w0", "w0", "w1")):
            connection.execute(
                "INSERT INTO delivery.partition_owner VALUES (%s, %s, %s, gen_random_uuid(), %s, now())",
                ("acme", "crm", partition, owner),
            )
        assert [(worker["worker"], worker["silent"]) for worker in shown()["workers"]] == [("w0", True), ("w1", True)]

        await reports.write("w0", ())
        await reports.write("w1", (OPEN,))
        row = shown()
        circuits = {worker["worker"]: (worker["partitions"], worker["circuit"]["state"]) for worker in row["workers"]}
        assert circuits == {"w0": (2, "closed"), "w1": (1, "open")}
        assert (row["standing"], row["waiting"], row["oldest_due"]) == ("running", 0, None)
        assert shown("erp")["workers"] == []

        await reports.write("w1", ())
        assert {worker["circuit"]["state"] for worker in shown()["workers"]} == {"closed"}
        await reports.remove("w0")
        connection.execute("UPDATE delivery.worker_report SET reported_at = now() - interval '1 minute'")
        told = [(worker["worker"], worker["silent"], worker["circuit"]) for worker in shown()["workers"]]
        assert told == [("w0", True, None), ("w1", True, None)]

        connection.execute("UPDATE delivery.worker_report SET reported_at = now() - interval '11 minutes'")
        await reports.write("w0", ())
        left = connection.execute("SELECT worker FROM delivery.worker_report").fetchall()
        assert left == [("w0",)], "a killed worker's last word is not kept for ever"


def test_reports_are_shown_as_a_table(applied: FreshDatabase) -> None:
    ended = CliRunner().invoke(app, ["show"], catch_exceptions=False, env={"COLUMNS": "200"})

    assert ended.exit_code == 0
    assert "in the workers" in ended.stdout
