"""The outbox's database as the relay needs it: slots, publication, roles; and the preflight over them.

Reading `pg_replication_slots` needs no privilege; making and dropping a slot needs REPLICATION or a superuser. A
column that only newer servers have is read through JSON, so that one query serves PostgreSQL 14 to 18.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.relay.core.connection import OutboxConnection
from waybill.relay.core.facts import SlotFacts, parse_lsn

__all__ = ["create_slot", "drop_slot", "has_rows", "preflight", "slot_facts", "slots_of"]

_SLOTS: Final = """
    SELECT to_jsonb(s) AS slot, s.database, s.slot_name, s.active, s.wal_status, s.safe_wal_size,
        s.confirmed_flush_lsn::text AS confirmed, h.lsn - s.confirmed_flush_lsn AS behind,
        h.lsn - s.restart_lsn AS retained
    FROM pg_replication_slots s,
        (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn) h
    WHERE s.slot_type = 'logical' AND (%(slot)s::text IS NULL OR s.slot_name = %(slot)s)
    ORDER BY s.slot_name
"""

_PREFLIGHT: Final = """
    SELECT current_setting('wal_level') AS wal_level, current_database() AS database,
        to_regclass(%(table)s) IS NOT NULL AS has_table,
        p.oid IS NOT NULL AS has_publication, p.puballtables AS all_tables, p.pubviaroot AS via_root,
        p.pubinsert AND NOT (p.pubupdate OR p.pubdelete OR p.pubtruncate) AS insert_only,
        ARRAY(SELECT t.schemaname || '.' || t.tablename FROM pg_publication_tables t
            WHERE t.pubname = %(publication)s) AS tables,
        r.oid IS NOT NULL AS has_role, r.rolreplication OR r.rolsuper AS may_replicate, r.rolcanlogin AS may_login,
        r.oid IS NOT NULL AND to_regclass(%(table)s) IS NOT NULL
            AND has_schema_privilege(r.oid, %(schema)s, 'USAGE')
            AND has_table_privilege(r.oid, to_regclass(%(table)s), 'SELECT') AS may_read
    FROM (SELECT 1) one
        LEFT JOIN pg_publication p ON p.pubname = %(publication)s
        LEFT JOIN pg_roles r ON r.rolname = %(user)s
"""


def slots_of(connection: psycopg.Connection, slot: str | None = None) -> list[SlotFacts]:
    """Return the logical slots of the whole server, or the one of a name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SLOTS, {"slot": slot}).fetchall()
    return [
        SlotFacts(
            name=row["slot_name"],
            database=row["database"],
            is_active=row["active"],
            wal_status=row["wal_status"],
            invalidation_reason=row["slot"].get("invalidation_reason"),
            confirmed_lsn=parse_lsn(row["confirmed"]) if row["confirmed"] else None,
            behind_bytes=_whole(row["behind"]),
            retained_bytes=_whole(row["retained"]),
            safe_bytes=_whole(row["safe_wal_size"]),
            inactive_since=_instant(row["slot"].get("inactive_since")),
        )
        for row in rows
    ]


def _whole(value: object) -> int | None:
    return None if value is None else int(str(value).partition(".")[0])


def _instant(text: str | None) -> datetime | None:
    return parse_instant(text) if text else None


def slot_facts(connection: psycopg.Connection, slot: str) -> SlotFacts | None:
    """Return one slot, or None when it does not exist."""
    return next(iter(slots_of(connection, slot)), None)


def preflight(connection: psycopg.Connection, outbox: OutboxConnection) -> None:
    """Check what a connector would only find out by failing, or worse, by losing rows.

    Raises:
        ConfigError: every fault at once, each with what is expected.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        names = {"table": outbox.table, "publication": outbox.publication, "schema": outbox.schema}
        found = cursor.execute(_PREFLIGHT, {**names, "user": outbox.user}).fetchone()
    assert found is not None
    faults = list(_faults(found, outbox))
    if faults:
        raise ConfigError("\n".join(f"outbox {outbox.name}: {fault}" for fault in faults))


def _faults(found: dict[str, object], outbox: OutboxConnection) -> Iterator[str]:
    if found["database"] != outbox.database:
        yield f"this is database {found['database']}, the connector would read {outbox.database}"
    if found["wal_level"] != "logical":
        yield f"wal_level is {found['wal_level']}: expected logical (a server setting that needs a restart)"
    if not found["has_table"]:
        yield f"table {outbox.table} does not exist: run the outbox's migrations first"
    if not found["has_publication"]:
        yield f"publication {outbox.publication} does not exist: the outbox's migrations make it"
    elif found["tables"] != [outbox.table] or found["all_tables"]:
        yield f"publication {outbox.publication}: expected exactly the table {outbox.table}"
    elif not found["insert_only"] or not found["via_root"]:
        yield (
            f"publication {outbox.publication}: expected publish = 'insert' and publish_via_partition_root = true, "
            "else partitions become topics of their own"
        )
    if not found["has_role"]:
        yield f"role {outbox.user} does not exist: expected a role with LOGIN and REPLICATION"
    elif not (found["may_replicate"] and found["may_login"]):
        yield f"role {outbox.user}: expected LOGIN and REPLICATION"
    elif found["has_table"] and not found["may_read"]:
        yield f"role {outbox.user}: expected USAGE on schema {outbox.schema} and SELECT on {outbox.table}"


def has_rows(connection: psycopg.Connection, outbox: OutboxConnection) -> bool:
    """Whether anything was ever committed to the outbox and is still kept."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(outbox.schema, outbox.table_name))
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def create_slot(connection: psycopg.Connection, slot: str) -> None:
    """Make a logical slot; on PostgreSQL 17 and later one that fails over with the server."""
    failover = ", false, false, true" if connection.info.server_version >= 170000 else ""
    connection.execute(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{failover})", (slot,))


def drop_slot(connection: psycopg.Connection, slot: str) -> bool:
    """Drop a slot, ending whoever still holds it; return False when there was none.

    Raises:
        RefusedError: rule `slot_of_another_database`: the name is taken elsewhere on this server.
    """
    found = slot_facts(connection, slot)
    if found is None:
        return False
    row = connection.execute("SELECT current_database()").fetchone()
    if row is None or found.database != row[0]:
        raise RefusedError(
            f"slot {slot} belongs to database {found.database}: two outboxes would share it",
            rule="slot_of_another_database",
        )
    connection.execute(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
        "WHERE slot_name = %s AND active_pid IS NOT NULL",
        (slot,),
    )
    connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    return True
