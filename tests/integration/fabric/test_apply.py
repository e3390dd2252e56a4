"""Applying against a real database: versions, history, order of steps, and a kill between any two of them."""

import json
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fabric_world import Killed, RememberingWorld
from fixtures.fix_stack import FreshDatabase
from psycopg.rows import dict_row

from waybill.contracts.fabric import (
    CommandTypeConfig,
    DestinationConfig,
    FabricConfig,
    OutboxConfig,
    PiiClass,
    RouteConfig,
    SecretRef,
    TenantConfig,
    TypeVersion,
)
from waybill.fabric import Applied, Applier, FabricStore, Result, Step
from waybill.infra.migrate import migrate
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName, Tenant

pytestmark = pytest.mark.postgres

ACME = Tenant("acme")
WHEN = Applied(at=datetime(2026, 1, 1, tzinfo=UTC), by="tester", comment="why")


def destination(name: str, **more: Any) -> DestinationConfig:
    return DestinationConfig(
        tenant=ACME, name=DestinationName(name), url="http://127.0.0.1/", owner="o", tradeoff="t", **more
    )


CRM, ERP = destination("crm"), destination("erp")
ORDERS = OutboxConfig(tenant=ACME, name="orders", dsn=SecretRef(env="A"), aggregate_types=("subject",))
FIRST = FabricConfig(
    version=0,
    tenants=(
        TenantConfig(
            name=ACME,
            partitions=2,
            outboxes=(ORDERS,),
            destinations=(CRM,),
            routes=(RouteConfig(tenant=ACME, command_type="subject.erase", destinations=(CRM.name,)),),
        ),
    ),
)
SECOND = replace(
    FIRST,
    tenants=(
        replace(
            FIRST.tenants[0],
            outboxes=(replace(ORDERS, aggregate_types=("consent", "subject")),),
            destinations=(replace(CRM, concurrency=8), ERP),
            routes=(RouteConfig(tenant=ACME, command_type="subject.export", destinations=(CRM.name, ERP.name)),),
        ),
    ),
)


def apply(control: psycopg.Connection[Any], fabric_world: RememberingWorld, wanted: FabricConfig) -> Result:
    return Applier(FabricStore(control), fabric_world.ports(), lambda _: None).apply(wanted, WHEN)


def rows(control: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
    return control.cursor(row_factory=dict_row).execute(query.encode()).fetchall()


def everything(control: psycopg.Connection[Any]) -> list[list[dict[str, Any]]]:
    return [
        rows(control, "SELECT version, digest FROM fabric.config_version ORDER BY 1"),
        rows(control, "SELECT * FROM fabric.object ORDER BY kind, tenant, name, version"),
        rows(control, "SELECT route, key, payload FROM fabric.control_outbox ORDER BY position"),
    ]


def test_a_first_apply_takes_the_steps_in_the_order_that_keeps_the_promises(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    told: list[Step] = []

    result = Applier(FabricStore(control), fabric_world.ports(), told.append).apply(FIRST, WHEN)

    assert result.version == 1
    assert told == list(Step)
    assert fabric_world.calls == [
        "topics acme",
        "groups acme",
        "slots",
        "sync acme/orders at 0",
        "sync acme/orders at 1",
        "connectors",
    ]


def test_an_outbox_learns_nothing_new_before_the_version_that_says_it(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    seen: list[tuple[int, set[str], set[str], tuple[str, ...]]] = []
    ports = fabric_world.ports()
    original = ports.outboxes.sync

    def watched(view: Any) -> None:
        seen.append(
            (
                view.version,
                {route.command_type for route in view.tenant.routes},
                {each.name for each in view.tenant.destinations},
                view.outbox.aggregate_types,
            )
        )
        original(view)

    ports.outboxes.sync = watched  # type: ignore[method-assign]
    for wanted in (FIRST, SECOND):
        Applier(FabricStore(control), ports, lambda _: None).apply(wanted, WHEN)

    assert seen == [
        (0, set(), set(), ()),
        (1, {"subject.erase"}, {"crm"}, ("subject",)),
        (1, {"subject.erase"}, {"crm"}, ("subject",)),
        (2, {"subject.export"}, {"crm", "erp"}, ("consent", "subject")),
    ]


def test_the_same_file_twice_makes_no_new_version(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    before = everything(control)

    result = apply(control, fabric_world, FIRST)

    assert (result.version, result.plan.changes) == (1, ())
    assert everything(control) == before


def test_a_change_becomes_the_next_version_and_history_keeps_the_old_one(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    apply(control, fabric_world, SECOND)

    kept = rows(control, "SELECT kind, name, version, body IS NULL AS gone FROM fabric.object ORDER BY version, 1, 2")

    assert [tuple(row.values()) for row in kept] == [
        ("destination", "crm", 1, False),
        ("outbox", "orders", 1, False),
        ("route", "subject.erase", 1, False),
        ("tenant", "acme", 1, False),
        ("destination", "crm", 2, False),
        ("destination", "erp", 2, False),
        ("outbox", "orders", 2, False),
        ("route", "subject.erase", 2, True),
        ("route", "subject.export", 2, False),
    ]
    assert FabricStore(control).current() == replace(SECOND, version=2)


def test_every_changed_object_is_announced_with_its_version_and_a_retired_route_as_a_tombstone(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    control.execute("DELETE FROM fabric.control_outbox")
    apply(control, fabric_world, SECOND)

    announced = {
        row["key"]: row["payload"] and json.loads(row["payload"])
        for row in rows(control, "SELECT route, key, payload FROM fabric.control_outbox WHERE route = 'acme.config'")
    }

    assert sorted(announced) == [
        "destination/crm",
        "destination/erp",
        "outbox/orders",
        "route/subject.erase",
        "route/subject.export",
    ]
    assert announced["route/subject.erase"] is None
    assert announced["destination/crm"] | {"body": None} == {
        "kind": "destination",
        "tenant": "acme",
        "name": "crm",
        "version": 2,
        "body": None,
    }
    assert announced["destination/crm"]["body"]["concurrency"] == 8


def test_an_apply_of_one_tenant_leaves_the_others_alone(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    other = FabricConfig(version=0, tenants=(TenantConfig(name=Tenant("other"), partitions=1),))
    apply(control, fabric_world, FIRST)
    fabric_world.calls.clear()

    assert apply(control, fabric_world, other).version == 2
    assert [call for call in fabric_world.calls if "acme" in call] == []
    assert [tenant.name for tenant in FabricStore(control).current().tenants] == ["acme", "other"]

    apply(control, fabric_world, FIRST)
    assert fabric_world.outboxes["acme/orders"].version == 1


def test_a_refused_step_changes_nothing(control: psycopg.Connection[Any], fabric_world: RememberingWorld) -> None:
    apply(control, fabric_world, FIRST)
    before, calls = everything(control), list(fabric_world.calls)

    result = apply(control, fabric_world, replace(SECOND, tenants=(replace(SECOND.tenants[0], outboxes=()),)))

    assert (result.version, {refusal.rule for refusal in result.plan.refusals}) == (1, {"never-removed"})
    assert (everything(control), fabric_world.calls) == (before, calls)


def _run_killed_at(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld, wanted: FabricConfig, call: int
) -> bool:
    left = call

    def before(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    fabric_world.before = before
    try:
        apply(control, fabric_world, wanted)
    except Killed:
        return True
    else:
        return False
    finally:
        fabric_world.before = lambda _: None


@pytest.mark.parametrize("call", range(6))
def test_an_apply_killed_between_any_two_steps_is_finished_by_repeating_it(
    control_database: FreshDatabase, control: psycopg.Connection[Any], call: int
) -> None:
    whole, killed = RememberingWorld(), RememberingWorld()
    with closing(psycopg.connect(control_database.dsn(), autocommit=True)) as dying:
        apply(control, killed, FIRST)
        assert _run_killed_at(dying, killed, SECOND, call)

    result = apply(control, killed, SECOND)

    assert result.version == 2
    reached = everything(control)
    control.execute("DROP PUBLICATION fabric_control_outbox")
    control.execute("DROP SCHEMA fabric CASCADE")
    migrate(control, schema="fabric", package="waybill.fabric.migrations")
    for wanted in (FIRST, SECOND):
        apply(control, whole, wanted)
    assert everything(control) == reached
    assert killed.facts() == whole.facts()


def test_two_applies_at_once_follow_one_another(
    control_database: FreshDatabase, control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def before(name: str) -> None:
        if name == "slots" and not inside.is_set():
            inside.set()
            assert go_on.wait(30)

    fabric_world.before = before
    results: list[Result] = []
    first = threading.Thread(target=lambda: results.append(apply(control, fabric_world, FIRST)))
    first.start()
    assert inside.wait(30)
    with closing(psycopg.connect(control_database.dsn(), autocommit=True)) as other:
        second = threading.Thread(target=lambda: results.append(apply(other, fabric_world, SECOND)))
        second.start()
        waiting = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        with closing(psycopg.connect(control_database.dsn(), autocommit=True)) as watcher:
            while rows(watcher, waiting)[0]["n"] == 0:
                assert second.is_alive()
        go_on.set()
        first.join(30)
        second.join(30)

    assert [result.version for result in results] == [1, 2]


def test_an_apply_that_waits_too_long_says_so(
    control_database: FreshDatabase, control: psycopg.Connection[Any]
) -> None:
    with closing(psycopg.connect(control_database.dsn(), autocommit=True)) as other, FabricStore(other).locked():
        store = FabricStore(control, lock_wait_s=0.05)

        with pytest.raises(UnavailableError, match="another apply"), store.locked():
            pytest.fail("two applies at once")


def test_drift_is_found_where_the_world_differs(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    applier = Applier(FabricStore(control), fabric_world.ports(), lambda _: None)
    assert not list(applier.drift())

    fabric_world.outboxes.clear()
    fabric_world.topics.clear()

    assert [drift.subject for drift in applier.drift()] == ["topics of acme", "outbox orders"]


def test_announced_rows_are_forgotten_after_a_month(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    control.execute("UPDATE fabric.control_outbox SET created_day = '2025-11-30' WHERE key = 'tenant/acme'")

    apply(control, fabric_world, SECOND)

    kept = {row["key"] for row in rows(control, "SELECT key FROM fabric.control_outbox")}
    assert "tenant/acme" not in kept
    assert "outbox/orders" in kept


def with_catalogue(config: FabricConfig) -> FabricConfig:
    entry = CommandTypeConfig(
        tenant=ACME,
        name="subject.erase",
        owner="o",
        pii=PiiClass.NONE,
        description="d",
        versions=(TypeVersion(version="v1.0", schema="{}", example="1"),),
    )
    return replace(config, tenants=(replace(config.tenants[0], command_types=(entry,)),))


def test_a_catalogue_is_stored_announced_and_read_back(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    wanted = with_catalogue(FIRST)

    result = apply(control, fabric_world, wanted)

    assert FabricStore(control).current() == replace(wanted, version=result.version)
    assert ("command-type/subject.erase",) in control.execute("SELECT key FROM fabric.control_outbox").fetchall()


def test_outboxes_know_the_catalogue_before_the_rows_say_so(
    control: psycopg.Connection[Any], fabric_world: RememberingWorld
) -> None:
    apply(control, fabric_world, FIRST)
    seen: list[tuple[int, int, int]] = []

    def look(step: Step) -> None:
        view = fabric_world.outboxes["acme/orders"]
        if step is Step.ROWS:
            seen.append(
                (
                    view.version,
                    len(view.tenant.command_types),
                    len(FabricStore(control).current().tenants[0].command_types),
                )
            )

    Applier(FabricStore(control), fabric_world.ports(), look).apply(with_catalogue(SECOND), WHEN)

    assert seen == [(1, 1, 0)]
