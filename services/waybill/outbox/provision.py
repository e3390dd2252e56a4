"""Writing applied configuration into an outbox, so that emit can resolve and refuse inside the producer's transaction.

Invariants: one transaction, so that no command is resolved against half of a configuration; the version never goes
back; a topic, once known, stays, because retained rows point at it; other tenants of the same outbox are not touched.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from waybill.commandtypes.core.versions import version_key
from waybill.contracts.command import DataForm
from waybill.contracts.fabric import Rendering, RouteConfig, SchemaFormat
from waybill.infra.postgres import identifier
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.outbox.core.settings import OutboxSettings, TypeSchema

__all__ = ["read", "remove", "sync"]


def sync(connection: psycopg.Connection[Any], schema: str, settings: OutboxSettings) -> None:
    """Make the outbox know exactly these settings of the tenant; idempotent, joins an open transaction.

    Raises:
        RefusedError: `outbox_not_installed`; `outbox_outdated`; `outbox_is_another` (the tenant is served here under another outbox
            name, and a second name would change the source of its commands); `version_went_back`.
    """
    _check_installed(connection, schema)
    with connection.transaction():
        _check_current(connection, schema, settings)
        route = f"{settings.tenant}.commands"
        _run(connection, schema, "INSERT INTO {schema}.topic (route) VALUES (%s) ON CONFLICT DO NOTHING", (route,))
        _run(connection, schema, _UPSERT_TENANT, (
            settings.tenant, settings.source, route, settings.config_version, settings.max_payload_bytes,
        ))  # fmt: skip
        _names(connection, schema, "aggregate_type", settings.tenant, settings.aggregate_types)
        _names(connection, schema, "destination", settings.tenant, settings.destinations)
        for name in settings.destinations:
            limit = settings.max_ttl_s.get(name)
            _run(connection, schema, _UPDATE_LIMIT, (limit, settings.tenant, name, limit))
        _types(connection, schema, settings)
        kept = [item.command_type for item in settings.routes]
        _run(connection, schema, "DELETE FROM {schema}.route WHERE tenant = %s AND command_type <> ALL (%s)", (
            settings.tenant, kept,
        ))  # fmt: skip
        for item in settings.routes:
            _run(connection, schema, _UPSERT_ROUTE, _route_row(settings.tenant, item))


def read(connection: psycopg.Connection[Any], schema: str, tenant: str) -> OutboxSettings | None:
    """Return what the outbox knows of a tenant, or None; `on_expiry` of its routes is not kept here.

    Raises:
        RefusedError: `outbox_not_installed`; `outbox_outdated`.
    """
    _check_installed(connection, schema)
    head = _rows(
        connection,
        schema,
        "SELECT source, config_version, max_payload_bytes FROM {schema}.tenant WHERE name = %s",
        tenant,
    )
    if not head:
        return None
    source, version, limit = head[0]
    types = _rows(connection, schema, "SELECT name FROM {schema}.aggregate_type WHERE tenant = %s ORDER BY 1", tenant)
    query = "SELECT name, max_ttl_s FROM {schema}.destination WHERE tenant = %s ORDER BY 1"
    limits = {DestinationName(name): limit for name, limit in _rows(connection, schema, query, tenant)}
    return OutboxSettings(
        tenant=Tenant(tenant),
        source=source,
        config_version=version,
        max_payload_bytes=limit,
        aggregate_types=tuple(sorted(name for (name,) in types)),
        destinations=tuple(sorted(limits)),
        max_ttl_s={name: float(limit) for name, limit in limits.items() if limit is not None},
        types=_known_types(connection, schema, tenant),
        routes=tuple(
            RouteConfig(
                tenant=Tenant(tenant),
                command_type=command_type,
                destinations=tuple(DestinationName(name) for name in destinations),
                ttl_s=float(ttl_s),
                capability=capability,
                capability_version=capability_version,
                forms=frozenset(DataForm(form) for form in forms),
                rendering=Rendering(rendering),
            )
            for command_type, destinations, ttl_s, capability, capability_version, forms, rendering in _rows(
                connection, schema, _SELECT_ROUTES, tenant
            )
        ),
    )


def remove(connection: psycopg.Connection[Any], schema: str, tenant: str) -> None:
    """Let the tenant emit nothing more here; issued rows, its topic and its counters stay. Idempotent."""
    _check_installed(connection, schema)
    with connection.transaction():
        _run(connection, schema, "DELETE FROM {schema}.tenant WHERE name = %s", (tenant,))


_UPSERT_TENANT = """
INSERT INTO {schema}.tenant (name, source, route, config_version, max_payload_bytes) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE
SET config_version = excluded.config_version, max_payload_bytes = excluded.max_payload_bytes
WHERE (tenant.config_version, tenant.max_payload_bytes) IS DISTINCT FROM
    (excluded.config_version, excluded.max_payload_bytes)
"""

_UPDATE_LIMIT = """
UPDATE {schema}.destination SET max_ttl_s = %s WHERE tenant = %s AND name = %s AND max_ttl_s IS DISTINCT FROM %s
"""

_UPSERT_ROUTE = """
INSERT INTO {schema}.route (tenant, command_type, destinations, ttl_s, capability, capability_version, forms, rendering)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant, command_type) DO UPDATE
SET destinations = excluded.destinations, ttl_s = excluded.ttl_s, capability = excluded.capability,
    capability_version = excluded.capability_version, forms = excluded.forms, rendering = excluded.rendering
WHERE route IS DISTINCT FROM excluded
"""

_SELECT_ROUTES = """
SELECT command_type, destinations, ttl_s, capability, capability_version, forms, rendering
FROM {schema}.route WHERE tenant = %s ORDER BY command_type COLLATE "C"
"""


_UPSERT_TYPE = """
INSERT INTO {schema}.type_version (tenant, command_type, version, format, definition) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant, command_type, version) DO UPDATE
SET format = excluded.format, definition = excluded.definition
WHERE type_version IS DISTINCT FROM excluded
"""

_FORGET_TYPES = """
DELETE FROM {schema}.type_version
WHERE tenant = %s AND (command_type, version) NOT IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""

_SELECT_TYPES = """
SELECT command_type, version, format, definition FROM {schema}.type_version WHERE tenant = %s
"""


def _types(connection: psycopg.Connection[Any], schema: str, settings: OutboxSettings) -> None:
    names = [each.command_type for each in settings.types], [each.version for each in settings.types]
    _run(connection, schema, _FORGET_TYPES, (settings.tenant, *names))
    for each in settings.types:
        row = (settings.tenant, each.command_type, each.version, each.format, each.schema)
        _run(connection, schema, _UPSERT_TYPE, row)


def _known_types(connection: psycopg.Connection[Any], schema: str, tenant: str) -> tuple[TypeSchema, ...]:
    found = [
        TypeSchema(command_type=name, version=version, format=SchemaFormat(kind), schema=definition)
        for name, version, kind, definition in _rows(connection, schema, _SELECT_TYPES, tenant)
    ]
    return tuple(sorted(found, key=lambda each: (each.command_type, version_key(each.version))))


def _route_row(tenant: str, route: RouteConfig) -> tuple[object, ...]:
    return (
        tenant,
        route.command_type,
        list(route.destinations),
        timedelta(seconds=route.ttl_s).total_seconds(),
        route.capability or route.command_type,
        route.capability_version,
        sorted(form.value for form in route.forms),
        route.rendering,
    )


def _names(connection: psycopg.Connection[Any], schema: str, table: str, tenant: str, names: Iterable[str]) -> None:
    """Make a table of (tenant, name) hold exactly these."""
    listed = list(names)
    place = sql.SQL("{}.{}").format(sql.Identifier(identifier(schema)), sql.Identifier(table))
    delete = sql.SQL("DELETE FROM {} WHERE tenant = %s AND name <> ALL (%s)").format(place)
    insert = sql.SQL("INSERT INTO {} (tenant, name) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING").format(place)
    connection.execute(delete, (tenant, listed))
    connection.execute(insert, (tenant, listed))


def _check_installed(connection: psycopg.Connection[Any], schema: str) -> None:
    query = """
        SELECT to_regclass(%(schema)s || '.outbox') IS NOT NULL, EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = to_regclass(%(schema)s || '.route') AND attname = 'rendering')
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(query, {"schema": identifier(schema)}).fetchone()
    if found is not None and found[0] and not found[1]:
        raise RefusedError(
            f"the outbox in schema {schema} is older than this version: run `waybill outbox install --dsn … "
            f"--schema {schema}`, or the newer migrations that `waybill outbox sql` prints",
            rule="outbox_outdated",
        )
    if found is None or not found[0]:
        raise RefusedError(
            f"there is no outbox in schema {schema}: run `waybill outbox install --dsn … --schema {schema}`",
            rule="outbox_not_installed",
        )


def _check_current(connection: psycopg.Connection[Any], schema: str, settings: OutboxSettings) -> None:
    there = _rows(
        connection,
        schema,
        "SELECT source, config_version FROM {schema}.tenant WHERE name = %s FOR UPDATE",
        settings.tenant,
    )
    if not there:
        return
    source, version = there[0]
    if source != settings.source:
        raise RefusedError(f"tenant {settings.tenant} is served here as {source}", rule="outbox_is_another")
    if version > settings.config_version:
        raise RefusedError(
            f"the outbox knows version {version} of tenant {settings.tenant}, {settings.config_version} is older",
            rule="version_went_back",
        )


def _run(connection: psycopg.Connection[Any], schema: str, query: str, parameters: tuple[object, ...]) -> None:
    connection.execute(query.replace("{schema}", identifier(schema)).encode(), parameters)


def _rows(connection: psycopg.Connection[Any], schema: str, query: str, tenant: str) -> list[tuple[Any, ...]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query.replace("{schema}", identifier(schema)).encode(), (tenant,)).fetchall()
