"""A database that would lose rows is refused before anything is made in it."""

from contextlib import closing

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.kernel.errors import ConfigError, RefusedError
from waybill.outbox.install import install
from waybill.relay import OutboxConnection, ensure_slot
from waybill.relay.database import slot_facts

pytestmark = pytest.mark.postgres

#: what is done to the database, and what is said about it
DAMAGE = [
    ("DROP PUBLICATION waybill_outbox", "publication waybill_outbox does not exist"),
    ("ALTER PUBLICATION waybill_outbox SET (publish = 'insert, update')", "expected publish = 'insert'"),
    # each partition would become a topic of its own
    ("ALTER PUBLICATION waybill_outbox SET (publish_via_partition_root = false)", "expected exactly the table"),
    ("ALTER PUBLICATION waybill_outbox ADD TABLE waybill.counter", "expected exactly the table"),
    ("REVOKE SELECT ON waybill.outbox FROM waybill_relay", "expected USAGE on schema waybill and SELECT"),
    ("REVOKE USAGE ON SCHEMA waybill FROM waybill_relay", "expected USAGE on schema waybill and SELECT"),
]

REPAIR = """
    DROP PUBLICATION IF EXISTS waybill_outbox;
    CREATE PUBLICATION waybill_outbox FOR TABLE waybill.outbox
        WITH (publish = 'insert', publish_via_partition_root = true);
    GRANT USAGE ON SCHEMA waybill TO waybill_relay;
    GRANT SELECT ON waybill.outbox TO waybill_relay;
"""


def outbox(there: FreshDatabase, **changed: str) -> OutboxConnection:
    named = {"name": there.name.replace("_", "-"), "user": "waybill_relay", "database": there.name, **changed}
    return OutboxConnection(host="127.0.0.1", port=5432, secret_file="/x", secret_key="y", **named)  # type: ignore[arg-type] # texts only


def test_each_damage_is_named_and_no_slot_is_made(fresh_database: FreshDatabase) -> None:
    relay = outbox(fresh_database)
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        install(connection)
    for damage, message in DAMAGE:
        with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
            connection.execute(damage)
            with pytest.raises(ConfigError, match=message):
                ensure_slot(fresh_database.dsn(), relay)
            assert slot_facts(connection, relay.slot) is None
            connection.execute(REPAIR)

    assert ensure_slot(fresh_database.dsn(), relay) is True


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schema": "elsewhere"}, "table elsewhere.outbox does not exist"),
        ({"user": "nobody_here"}, "role nobody_here does not exist"),
        # may not replicate
        ({"user": "waybill_app"}, "role waybill_app: expected LOGIN and REPLICATION"),
        ({"database": "other"}, "the connector would read other"),
    ],
)
def test_what_was_asked_for_must_be_there(fresh_database: FreshDatabase, changed: dict[str, str], message: str) -> None:
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        install(connection)

    with pytest.raises(ConfigError, match=message):
        ensure_slot(fresh_database.dsn(), outbox(fresh_database, **changed))


def test_a_slot_name_taken_by_another_database_is_refused(fresh_database: FreshDatabase, postgres: object) -> None:
    relay = outbox(fresh_database)
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        install(connection)
    with closing(psycopg.connect(fresh_database.stack.dsn("postgres"), autocommit=True)) as elsewhere:
        elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (relay.slot,))
        try:
            with pytest.raises(RefusedError, match="belongs to database postgres"):
                ensure_slot(fresh_database.dsn(), relay)
        finally:
            elsewhere.execute("SELECT pg_drop_replication_slot(%s)", (relay.slot,))
