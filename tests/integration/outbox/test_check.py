"""The preflight against real databases: what is wrong is seen where it is, and nothing is changed by looking."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import ON_BOTH, OutboxDatabase

from waybill.infra.clock import SystemClock
from waybill.outbox import CommandDraft, Outbox
from waybill.outbox.check import check, gather
from waybill.outbox.core.preflight import Severity, judge
from waybill.outbox.install import Roles
from waybill.testing.clocks import MovableClock

pytestmark = pytest.mark.postgres


def severities(outbox: OutboxDatabase, role: str = "postgres", roles: Roles | None = None) -> dict[str, Severity]:
    with closing(outbox.connect(role, autocommit=True)) as connection:
        return {finding.check: finding.severity for finding in check(connection, SystemClock(), roles=roles)}


def failing(outbox: OutboxDatabase) -> set[str]:
    return {name for name, severity in severities(outbox).items() if severity is Severity.FAIL}


@ON_BOTH
def test_a_fresh_outbox_fails_nothing(own_outbox: OutboxDatabase):
    found = severities(own_outbox)

    assert {name for name, severity in found.items() if severity is Severity.FAIL} == set()
    assert found["pooler"] is Severity.OK
    assert len(found) == 19


def test_a_database_without_an_outbox_says_how_to_install_it(empty_database: OutboxDatabase):
    with closing(empty_database.connect("postgres", autocommit=True)) as connection:
        bad = [finding for finding in check(connection, SystemClock()) if finding.severity is Severity.FAIL]

    assert [finding.check for finding in bad] == ["schema"]
    assert "waybill outbox install" in bad[0].advice


DAMAGE: dict[str, tuple[str, str]] = {
    "publication": ("ALTER PUBLICATION waybill_outbox SET (publish = 'insert, update')", "publication"),
    "no publication": ("DROP PUBLICATION waybill_outbox", "publication"),
    "application inserts": ("GRANT INSERT ON waybill.outbox TO waybill_app", "application role"),
    "application sets numbers": ("GRANT UPDATE ON waybill.counter TO waybill_app", "application role"),
    "application cannot emit": ("REVOKE ALL ON FUNCTION waybill.emit_many FROM waybill_app", "application may emit"),
    "relay cannot read": ("REVOKE SELECT ON waybill.outbox FROM waybill_relay", "relay may read"),
    "relay deletes": ("GRANT DELETE ON waybill.outbox TO waybill_relay", "relay reads only"),
    "migration missing": ("DELETE FROM waybill.migration WHERE number = 5", "schema"),
}


def test_each_damage_is_found(own_outbox: OutboxDatabase):
    found = {}
    with closing(own_outbox.connect("postgres")) as connection:
        for name, (damage, _) in DAMAGE.items():
            connection.execute(damage.encode())
            facts = gather(connection, SystemClock(), schema="waybill", roles=Roles())
            found[name] = {one.check for one in judge(facts) if one.severity is Severity.FAIL}
            connection.rollback()

    assert found == {name: {check_name} for name, (_, check_name) in DAMAGE.items()}


def test_missing_days_and_rows_in_the_default_partition_are_found(own_outbox: OutboxDatabase):
    with closing(own_outbox.connect("postgres", autocommit=True)) as connection:
        for (name,) in connection.execute("DELETE FROM waybill.day_partition RETURNING name").fetchall():
            connection.execute(f"DROP TABLE waybill.{name}".encode())
    with own_outbox.connect() as connection:
        Outbox(connection, tenant="acme").emit(
            CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={})
        )

    assert failing(own_outbox) == {"partitions", "default partition"}


def test_a_clock_that_differs_is_found(outbox: OutboxDatabase):
    clock = MovableClock()  # stands in another year
    with closing(outbox.connect("postgres", autocommit=True)) as connection:
        facts = gather(connection, clock, schema="waybill", roles=Roles())

    assert abs(facts.skew_s) > 86_400
    assert facts.skew_error_s == 0.0


def test_roles_under_other_names_are_looked_for(outbox: OutboxDatabase):
    found = severities(outbox, roles=Roles(app="nobody_app", relay="postgres"))

    assert found["application role"] is Severity.FAIL
    assert found["relay reads only"] is Severity.FAIL


@pytest.mark.parametrize("role", ["waybill_app", "waybill_relay"])
def test_a_role_that_may_not_look_learns_what_it_may(outbox: OutboxDatabase, role: str):
    found = severities(outbox, role=role)

    assert found["wal_level"] is Severity.OK
    assert found["clock"] is Severity.OK


def test_a_long_transaction_is_found(outbox: OutboxDatabase):
    holder: psycopg.Connection[Any]
    with closing(outbox.connect()) as holder, closing(outbox.connect("postgres", autocommit=True)) as connection:
        holder.execute("SELECT 1")
        facts = gather(connection, SystemClock(), schema="waybill", roles=Roles())

    assert facts.oldest_transaction_s > 0
    old = replace(facts, oldest_transaction_s=601.0)
    assert {one.severity for one in judge(old) if one.check == "oldest transaction"} == {Severity.WARN}
