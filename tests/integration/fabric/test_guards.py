"""What the database itself refuses: changed history, rows that cannot be produced, roles that reach too far."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from fixtures.databases import create_database, drop_database
from fixtures.fabric_world import RememberingWorld

from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.fabric import Applied, Applier, FabricStore
from waybill.infra.migrate import migrate
from waybill.kernel.ids import DestinationName, Tenant

if TYPE_CHECKING:
    from waybill.devstack import Stack

pytestmark = pytest.mark.postgres

ACME = Tenant("acme")
CRM = DestinationConfig(tenant=ACME, name=DestinationName("crm"), url="http://127.0.0.1/", owner="o", tradeoff="t")
CONFIG = FabricConfig(version=0, tenants=(TenantConfig(name=ACME, destinations=(CRM,)),))
NAME = "test_fabric_guards"


@dataclass(frozen=True)
class Guarded:
    """One applied configuration that every test here leaves as it is: all they do is refused."""

    stack: "Stack"

    def run(self, statement: str, role: str = "postgres") -> None:
        with psycopg.connect(self.stack.dsn(NAME, role)) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def guarded(postgres: "Stack") -> Iterator[Guarded]:
    drop_database(postgres.dsn("postgres"), NAME)  # one that a killed session left
    create_database(postgres.dsn("postgres"), NAME)
    with closing(psycopg.connect(postgres.dsn(NAME), autocommit=True)) as connection:
        migrate(connection, schema="fabric", package="waybill.fabric.migrations")
        world = RememberingWorld()
        Applier(FabricStore(connection), world.ports(), world.calls.append).apply(
            CONFIG, Applied(at=datetime(2026, 1, 1, tzinfo=UTC), by="tester")
        )
    yield Guarded(postgres)
    drop_database(postgres.dsn("postgres"), NAME)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fabric.object SET body = '{}'",
        "DELETE FROM fabric.object",
        "TRUNCATE fabric.object",
        "UPDATE fabric.config_version SET comment = 'x'",
        "DELETE FROM fabric.config_version",
    ],
)
def test_history_is_never_changed_not_even_by_its_owner(guarded: Guarded, statement: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation, match="history"):
        guarded.run(statement)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("waybill_worker", "INSERT INTO fabric.config_version VALUES (9, now(), 'x', repeat('a', 64), '')"),
        ("waybill_worker", "INSERT INTO fabric.object VALUES ('route', 'a', 'b', 1, '{}')"),
        ("waybill_worker", "DELETE FROM fabric.object"),
        ("waybill_worker", "SELECT * FROM fabric.control_outbox"),
        ("waybill_worker", "INSERT INTO fabric.control_outbox (route, key) VALUES ('acme.config', 'x')"),
        ("waybill_relay", "INSERT INTO fabric.control_outbox (route, key) VALUES ('acme.config', 'x')"),
        ("waybill_relay", "DELETE FROM fabric.control_outbox"),
        ("waybill_relay", "SELECT * FROM fabric.object"),
        ("waybill_app", "SELECT * FROM fabric.object"),
    ],
)
def test_a_role_may_do_no_more_than_it_needs(guarded: Guarded, role: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        guarded.run(statement, role)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO fabric.control_outbox (route, key) VALUES ('nobody.config', 'a/b')", "ForeignKeyViolation"),
        ("INSERT INTO fabric.control_route VALUES ('acme.commands')", "CheckViolation"),
        ("INSERT INTO fabric.control_route VALUES ('Acme.config')", "CheckViolation"),
        ("INSERT INTO fabric.control_outbox (route, key) VALUES ('acme.config', '')", "CheckViolation"),
        ("INSERT INTO fabric.control_outbox (route, key) VALUES ('acme.config', NULL)", "NotNullViolation"),
        ("INSERT INTO fabric.control_outbox (route, key, payload) VALUES ('acme.config', 'a', '')", "CheckViolation"),
        (
            "INSERT INTO fabric.control_outbox (route, key, payload) VALUES ('acme.config', 'a', decode(repeat('00', 524289), 'hex'))",
            "CheckViolation",
        ),
    ],
)
def test_a_row_that_could_not_be_produced_stays_out_of_the_control_outbox(
    guarded: Guarded, statement: str, error: str
) -> None:
    with pytest.raises(getattr(psycopg.errors, error)):
        guarded.run(statement)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("waybill_worker", "SELECT version, body FROM fabric.object JOIN fabric.config_version USING (version)"),
        ("waybill_relay", "SELECT route, key, payload FROM fabric.control_outbox"),
    ],
)
def test_a_role_may_do_what_it_needs(guarded: Guarded, role: str, statement: str) -> None:
    guarded.run(statement, role)
