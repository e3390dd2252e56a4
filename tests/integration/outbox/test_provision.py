"""Applied configuration in the outbox: exactly what was given, at a version that never goes back."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase, outbox_settings

from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import DestinationName
from waybill.outbox import CommandDraft, Outbox, Rule
from waybill.outbox.provision import read, remove, sync

pytestmark = pytest.mark.postgres

PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})


@pytest.fixture
def owner(outbox: OutboxDatabase) -> Iterator[psycopg.Connection[Any]]:
    with closing(outbox.connect("postgres", autocommit=True)) as connection:
        yield connection


def rule_of(outbox: OutboxDatabase, draft: CommandDraft) -> str:
    with outbox.connect() as connection, pytest.raises(RefusedError) as caught:
        Outbox(connection, tenant=outbox.tenant).emit(draft)
    return caught.value.rule


def test_what_is_written_is_read_back_and_again_changes_nothing(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    settings = outbox_settings(outbox.tenant, version=4)
    rows = "SELECT ctid::text, xmin::text FROM waybill.route WHERE tenant = %s UNION ALL SELECT ctid::text, xmin::text FROM waybill.tenant WHERE name = %s"

    sync(owner, "waybill", settings)
    before = outbox.rows(rows, outbox.tenant, outbox.tenant)
    sync(owner, "waybill", settings)

    shown = read(owner, "waybill", outbox.tenant)
    assert shown is not None
    assert replace(shown, routes=()) == replace(settings, routes=())
    assert [route.command_type for route in shown.routes] == ["order.dispatch", "subject.erase", "subject.hold"]
    assert [(route.capability, route.ttl_s) for route in shown.routes[:2]] == [
        ("order.dispatch", 3600.0),
        ("erase", 604800.0),
    ]
    assert outbox.rows(rows, outbox.tenant, outbox.tenant) == before


def test_a_route_that_is_not_open_yet_is_refused_until_it_is(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    settings = outbox_settings(outbox.tenant, version=4)

    sync(owner, "waybill", replace(settings, routes=()))
    closed = rule_of(outbox, PLAIN)
    sync(owner, "waybill", settings)
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(PLAIN)

    assert closed == Rule.UNKNOWN_ROUTE


def test_what_is_taken_away_is_refused(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    settings = outbox_settings(outbox.tenant, version=4)

    sync(owner, "waybill", replace(settings, aggregate_types=("order",)))
    foreign = rule_of(outbox, PLAIN)
    sync(owner, "waybill", replace(settings, destinations=(DestinationName("crm"),), routes=()))
    unknown = rule_of(outbox, replace(PLAIN, destinations=("erp",)))

    assert (foreign, unknown) == (Rule.FOREIGN_AGGREGATE_TYPE, Rule.UNKNOWN_DESTINATION)


def test_commands_carry_the_version_that_is_applied(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    with closing(outbox.connect(autocommit=True)) as connection:
        for version in (4, 9):
            sync(owner, "waybill", outbox_settings(outbox.tenant, version=version))
            with connection.transaction():
                Outbox(connection, tenant=outbox.tenant).emit(PLAIN)

    query = "SELECT config_version FROM waybill.outbox WHERE tenant = %s ORDER BY position"
    assert outbox.rows(query, outbox.tenant) == [(4,), (9,)]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"version": 2}, "version_went_back"),
        ({"source": "waybill://acme/other"}, "outbox_is_another"),
    ],
)
def test_a_step_back_or_another_name_is_refused(
    outbox: OutboxDatabase, owner: psycopg.Connection[Any], changes: dict[str, Any], rule: str
):
    with pytest.raises(RefusedError) as caught:
        sync(owner, "waybill", outbox_settings(outbox.tenant, **changes))

    assert caught.value.rule == rule


def test_a_database_without_an_outbox_is_named(owner: psycopg.Connection[Any]):
    for call in (
        lambda: sync(owner, "elsewhere", outbox_settings()),
        lambda: read(owner, "elsewhere", "acme"),
        lambda: remove(owner, "elsewhere", "acme"),
    ):
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.rule == "outbox_not_installed"


def test_an_outbox_of_an_older_version_is_named(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    with owner.transaction(force_rollback=True):
        owner.execute("ALTER TABLE waybill.route DROP COLUMN rendering")
        with pytest.raises(RefusedError) as caught:
            sync(owner, "waybill", outbox_settings(outbox.tenant))

    assert caught.value.rule == "outbox_outdated"


def test_a_removed_tenant_emits_nothing_and_its_issued_commands_stay(
    outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(PLAIN)

    remove(owner, "waybill", outbox.tenant)
    remove(owner, "waybill", outbox.tenant)

    assert rule_of(outbox, PLAIN) == Rule.UNKNOWN_TENANT
    assert read(owner, "waybill", outbox.tenant) is None
    assert outbox.rows("SELECT count(*) FROM waybill.outbox WHERE tenant = %s", outbox.tenant) == [(1,)]


def test_a_tenant_that_comes_back_goes_on_counting(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    with closing(outbox.connect(autocommit=True)) as connection:
        sdk = Outbox(connection, tenant=outbox.tenant)
        with connection.transaction():
            sdk.emit(PLAIN)
        remove(owner, "waybill", outbox.tenant)
        sync(owner, "waybill", outbox_settings(outbox.tenant))
        with connection.transaction():
            again = sdk.emit(PLAIN)

    assert again.sequences == {"crm": 2, "erp": 2}
