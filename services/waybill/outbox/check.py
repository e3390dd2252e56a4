"""Reading the facts that `waybill outbox check` judges; looks only, changes nothing, and takes no lock anybody waits for."""

from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from waybill.infra import migrate
from waybill.infra.postgres import identifier
from waybill.kernel.clock import Clock
from waybill.outbox.core.preflight import DAYS_AHEAD, Facts, Finding, RoleFacts, judge
from waybill.outbox.install import PACKAGE, Roles

__all__ = ["check", "gather"]

_SERVER = """
SELECT current_setting('server_version_num')::int AS server_version_num,
    current_setting('server_encoding') AS encoding,
    current_setting('wal_level') AS wal_level,
    current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)::int AS slots_free,
    current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)::int AS senders_free,
    (SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS max_slot_wal_keep_size_mb,
    (SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')
        AS idle_in_transaction_timeout_ms,
    coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()), 0)::float8 AS oldest_transaction_s,
    (clock_timestamp() AT TIME ZONE 'UTC')::date AS today
"""

_ROLE = """
SELECT r.rolcanlogin AS login, r.rolreplication AS replication,
    r.rolsuper OR coalesce((SELECT pg_has_role(r.oid, c.relowner, 'MEMBER') FROM pg_class c
        WHERE c.oid = to_regclass('{schema}.outbox')), false) AS is_owner,
    has_schema_privilege(r.oid, '{schema}', 'USAGE') AND coalesce((SELECT bool_and(
            has_function_privilege(r.oid, p.oid, 'EXECUTE')) FROM pg_proc p
        WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname IN ('emit', 'emit_many')), false) AS may_emit,
    has_schema_privilege(r.oid, '{schema}', 'USAGE')
        AND coalesce(has_table_privilege(r.oid, to_regclass('{schema}.outbox'), 'SELECT'), false) AS may_read,
    ARRAY(SELECT kind || ' on ' || c.relname FROM pg_class c, unnest(%s::text[]) AS kind
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'p')
        AND has_table_privilege(r.oid, c.oid, kind) ORDER BY 1) AS excess
FROM pg_roles r WHERE r.rolname = %s
"""

_DAYS = """
SELECT d::date AS day FROM generate_series(%s::date, %s::date, interval '1 day') AS d
WHERE NOT EXISTS (SELECT FROM {schema}.day_partition p WHERE d >= p.first_day AND d < p.after_day)
ORDER BY 1
"""

_PUBLICATION = """
SELECT concat_ws(', ', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
        CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END)
    || CASE WHEN p.pubviaroot THEN ' via root' ELSE '' END || ' of '
    || CASE WHEN p.puballtables THEN 'all tables' ELSE coalesce((SELECT string_agg(r.prrelid::regclass::text, ', ')
        FROM pg_publication_rel r WHERE r.prpubid = p.oid), 'nothing') END AS publication
FROM pg_publication p WHERE p.pubname = %s
"""

_WRITES = ["INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES"]


def check(
    connection: psycopg.Connection[Any], clock: Clock, *, schema: str = "waybill", roles: Roles | None = None
) -> list[Finding]:
    """Look at one producer database as it is now and say what to repair."""
    return judge(gather(connection, clock, schema=schema, roles=roles or Roles()))


def gather(connection: psycopg.Connection[Any], clock: Clock, *, schema: str, roles: Roles) -> Facts:
    """Read the facts; the connection's role needs no right beyond logging in to read most of them."""
    identifier(schema)
    skew_s, error_s = _skew(connection, clock)
    server = _one(connection, _SERVER)
    applied = len(_applied(connection, schema))
    today = server["today"]
    installed = applied > 0
    until = today + timedelta(days=DAYS_AHEAD)
    publication = _one(connection, _PUBLICATION, (f"{schema}_outbox",))
    return Facts(
        schema=schema,
        **server,
        pooled=_one(connection, "SELECT pg_backend_pid() AS pid")["pid"] != connection.info.backend_pid,
        skew_s=skew_s,
        skew_error_s=error_s,
        migrations_applied=applied,
        migrations_known=len(migrate.load(PACKAGE)),
        app=_role(connection, schema, roles.app, [*_WRITES, "SELECT"], installed),
        relay=_role(connection, schema, roles.relay, _WRITES, installed),
        days_missing=tuple(row["day"] for row in _rows(connection, _DAYS, (today, until), schema)) if installed else (),
        default_rows=installed and _has_default_rows(connection, schema),
        publication=publication.get("publication"),
    )


def _role(
    connection: psycopg.Connection[Any], schema: str, name: str, forbidden: list[str], installed: bool
) -> RoleFacts:
    if not installed:
        return RoleFacts(name=name, exists=False)
    found = _one(connection, _ROLE, (forbidden, name), schema)
    if not found:
        return RoleFacts(name=name, exists=False)
    return RoleFacts(name=name, **{**found, "excess": tuple(found["excess"])})


def _applied(connection: psycopg.Connection[Any], schema: str) -> dict[int, str]:
    """Return what is applied; a role that may not look into the schema sees that it is there and no more."""
    with connection.transaction():
        seen = _one(connection, "SELECT has_schema_privilege(to_regnamespace(%s), 'USAGE') AS seen", (schema,))["seen"]
        if not seen:
            return {}
        with connection.cursor(row_factory=tuple_row) as cursor:
            may = cursor.execute(
                "SELECT coalesce(has_table_privilege(to_regclass(%s), 'SELECT'), false)", (f"{schema}.migration",)
            ).fetchone()
        return migrate.applied(connection, schema) if may and may[0] else {}


def _has_default_rows(connection: psycopg.Connection[Any], schema: str) -> bool:
    found = _one(connection, "SELECT EXISTS (SELECT FROM {schema}.outbox_default) AS filled", (), schema)
    return bool(found["filled"])


def _skew(connection: psycopg.Connection[Any], clock: Clock) -> tuple[float, float]:
    """Return database clock minus ours, and half the round trip; the quickest of three decides."""
    best = (0.0, float("inf"))
    for _ in range(3):
        before = clock.now()
        theirs = _one(connection, "SELECT clock_timestamp() AS now")["now"]
        after = clock.now()
        error = (after - before).total_seconds() / 2
        if error < best[1]:
            best = ((theirs - before).total_seconds() - error, error)
    return best


def _one(
    connection: psycopg.Connection[Any], query: str, parameters: tuple[object, ...] = (), schema: str = ""
) -> dict[str, Any]:
    rows = _rows(connection, query, parameters, schema)
    return rows[0] if rows else {}


def _rows(
    connection: psycopg.Connection[Any], query: str, parameters: tuple[object, ...] = (), schema: str = ""
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.replace("{schema}", schema).encode(), parameters).fetchall()
