"""What each role may not do, tried: the application emits and nothing else, the relay reads and nothing else, and an
issued command is final for the owner too."""

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.outbox import CommandDraft, Outbox, Rule
from waybill.outbox.core.rules import SQLSTATES

pytestmark = pytest.mark.postgres

NOT_ALLOWED = "42501"
PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})

#: What would forge, change, hide or read commands; `{day}` is a partition by name.
FORBIDDEN_TO_BOTH = [
    "INSERT INTO waybill.outbox (aggregate) VALUES ('subject/1')",
    "INSERT INTO waybill.{day} (aggregate) VALUES ('subject/1')",
    "COPY waybill.outbox (aggregate) FROM STDIN",
    "UPDATE waybill.outbox SET payload = '{}'",
    "UPDATE waybill.{day} SET payload = '{}'",
    "DELETE FROM waybill.outbox",
    "DELETE FROM waybill.{day}",
    "TRUNCATE waybill.outbox",
    "TRUNCATE waybill.{day}",
    "DROP TABLE waybill.{day}",
    "ALTER TABLE waybill.outbox DETACH PARTITION waybill.{day}",
    "ALTER TABLE waybill.outbox DISABLE TRIGGER ALL",
    "ALTER TABLE waybill.outbox DROP CONSTRAINT payload_fits",
    "CREATE TRIGGER mine BEFORE INSERT ON waybill.outbox FOR EACH ROW EXECUTE FUNCTION waybill.refuse_change()",
    "CREATE TABLE waybill.mine (a int)",
    "CREATE FUNCTION waybill.is_json(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE OR REPLACE FUNCTION waybill.is_json(bytea) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "SELECT * FROM waybill.{day}",
    "SELECT * FROM waybill.counter",
    "UPDATE waybill.counter SET numbers = '{}'",
    "INSERT INTO waybill.counter VALUES ('acme', 'subject/1', '{}')",
    "DELETE FROM waybill.counter",
    "SELECT * FROM waybill.reissued",
    "INSERT INTO waybill.reissued VALUES ('acme', gen_random_uuid(), 'me', 'mine')",
    "DELETE FROM waybill.reissued",
    "INSERT INTO waybill.topic VALUES ('x.commands')",
    "INSERT INTO waybill.destination VALUES ('acme', 'mine')",
    "UPDATE waybill.tenant SET max_payload_bytes = 900000",
    "UPDATE waybill.route SET destinations = '{mine}'",
    "DELETE FROM waybill.aggregate_type",
    "UPDATE waybill.day_partition SET closed_lsn = '0/0', closed_position = 0",
    "DELETE FROM waybill.migration",
    "SELECT waybill.issue('acme', '[]', '{}')",
    "SELECT waybill.take_numbers('acme', 'subject/1', '{\"crm\": 1}')",
    "SELECT * FROM waybill.make_partitions()",
    "SELECT * FROM waybill.close_partitions()",
    "SELECT * FROM waybill.drop_partitions()",
    "SELECT waybill.adopt_default()",
    "ALTER PUBLICATION waybill_outbox SET (publish = 'update')",
    "DROP PUBLICATION waybill_outbox",
    "DROP SCHEMA waybill CASCADE",
    "SET ROLE postgres",
    "SET session_replication_role = replica",
]
FORBIDDEN_TO_APP = [
    "SELECT * FROM waybill.outbox",
    "SELECT * FROM waybill.tenant",
    "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')",
    "SELECT pg_drop_replication_slot('mine')",
]
FORBIDDEN_TO_RELAY = [
    "SELECT waybill.emit('acme', 'subject', '1', 'subject.erase', '{}')",
    "SELECT waybill.emit_many('acme', '[]')",
    "SELECT waybill.canary('acme')",
    "SELECT waybill.reissue('acme', gen_random_uuid(), '{}', 'me', 'mine')",
]
FORBIDDEN = [
    *(("waybill_app", statement) for statement in FORBIDDEN_TO_BOTH + FORBIDDEN_TO_APP),
    *(("waybill_relay", statement) for statement in FORBIDDEN_TO_BOTH + FORBIDDEN_TO_RELAY),
]


def issue_one(outbox: OutboxDatabase) -> None:
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(PLAIN)


def day_partition(outbox: OutboxDatabase) -> str:
    query = "SELECT relname FROM pg_class WHERE oid = (SELECT tableoid FROM waybill.outbox WHERE tenant = %s LIMIT 1)"
    return str(outbox.rows(query, outbox.tenant)[0][0])


def state_of(connection: psycopg.Connection[Any], statement: str) -> str | None:
    """Run a statement and return its SQLSTATE, or None when it was allowed."""
    try:
        with connection.transaction(force_rollback=True):
            if statement.startswith("COPY"):
                with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
                    copy.write(b"subject/1\n")
            else:
                connection.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN, ids=[f"{role}: {text[:60]}" for role, text in FORBIDDEN])
def test_a_role_may_not(shared_outbox: OutboxDatabase, role: str, statement: str):
    day = f"outbox_{datetime.now(UTC):%Y%m%d}"

    with closing(shared_outbox.connect(role, autocommit=True)) as connection:
        assert state_of(connection, statement.replace("{day}", day)) == NOT_ALLOWED


def test_the_relay_reads_the_root(outbox: OutboxDatabase):
    issue_one(outbox)

    with closing(outbox.connect("waybill_relay", autocommit=True)) as connection:
        found = connection.execute(
            "SELECT aggregate FROM waybill.outbox WHERE tenant = %s", (outbox.tenant,)
        ).fetchall()

    assert found == [("subject/7",)]


FINAL = [
    "UPDATE waybill.outbox SET payload = payload",
    "UPDATE waybill.outbox SET payload = '{}' WHERE false",
    "UPDATE waybill.{day} SET payload = payload",
    "UPDATE waybill.outbox SET created_day = created_day + 1",  # would be a DELETE and an INSERT
    "DELETE FROM waybill.outbox",
    "DELETE FROM waybill.{day}",
    "TRUNCATE waybill.outbox",
    "TRUNCATE waybill.{day}",
    "TRUNCATE waybill.topic CASCADE",
    "TRUNCATE waybill.outbox_default",
    "MERGE INTO waybill.outbox o USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
    "INSERT INTO waybill.outbox OVERRIDING SYSTEM VALUE SELECT * FROM waybill.outbox ON CONFLICT (created_day, position) DO UPDATE SET payload = ''",
]


@pytest.mark.requirement("DC-2")
@pytest.mark.parametrize("statement", FINAL)
def test_not_even_the_owner_changes_an_issued_command(any_outbox: OutboxDatabase, statement: str):
    issue_one(any_outbox)
    statement = statement.replace("{day}", day_partition(any_outbox))
    kept = "SELECT payload FROM waybill.outbox WHERE tenant = %s"

    with closing(any_outbox.connect("postgres", autocommit=True)) as connection:
        states = [state_of(connection, statement)]
        connection.execute("SET session_replication_role = replica")
        states.append(state_of(connection, statement))
        rows = connection.execute(kept, (any_outbox.tenant,)).fetchall()

    assert {SQLSTATES.get(state or "") for state in states} <= {Rule.ISSUED_IS_FINAL, Rule.MALFORMED_FIELD}, states
    assert rows == [(b'{"id":7}',)]


def test_every_function_that_runs_as_the_owner_has_a_fixed_search_path(any_outbox: OutboxDatabase):
    loose = any_outbox.rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'waybill'::regnamespace AND prosecdef "
        "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"
    )

    assert loose == []


def test_a_look_alike_in_the_callers_search_path_is_not_used(outbox: OutboxDatabase):
    with closing(outbox.connect()) as connection:
        connection.execute("CREATE FUNCTION pg_temp.jsonb_array_length(jsonb) RETURNS int LANGUAGE sql AS 'SELECT 0'")
        connection.execute("CREATE TEMP TABLE tenant AS SELECT 'mine' AS name")
        connection.execute("SET search_path = pg_temp, waybill, pg_catalog")
        emitted = Outbox(connection, tenant=outbox.tenant).emit(PLAIN)

    assert emitted.sequences == {"crm": 1, "erp": 1}


def test_public_may_call_nothing(any_outbox: OutboxDatabase):
    open_to_all = any_outbox.rows(
        "SELECT proname FROM pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a "
        "WHERE pronamespace = 'waybill'::regnamespace AND a.grantee = 0"
    )

    assert open_to_all == []
