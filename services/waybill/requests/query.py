"""What the tables say of requests, for people and programs."""

from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

__all__ = ["MAX_PAGE", "list_requests", "show_request"]

#: Requests of one page.
MAX_PAGE: Final = 1000

_COLUMNS: Final = (
    "r.tenant, r.request_id, r.is_complete, r.completions, r.commands, r.size, r.done, r.excused, r.open, "
    "r.leans_until, r.settled_at, r.changed_at"
)
_LIST: Final = f"""
SELECT {_COLUMNS} FROM requests.request r
WHERE (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s)
  AND (%(complete)s::boolean IS NULL OR r.is_complete = %(complete)s)
  AND (%(after)s::text IS NULL OR (r.tenant, r.request_id) > (%(after_tenant)s, %(after)s))
ORDER BY r.tenant, r.request_id LIMIT %(limit)s
"""  # noqa: S608 - constants
_DELIVERIES: Final = """
SELECT d.delivery_id, d.command_id, d.destination, d.required, d.replaces, coalesce(o.state, 'queued') AS state,
    coalesce(o.version, 0) AS version, o.error_code, o.detail, o.at,
    (SELECT max(e.expires_at) FROM requests.excuse e WHERE (e.tenant, e.delivery_id) = (d.tenant, d.delivery_id)) AS excused_until,
    EXISTS (SELECT FROM requests.delivery c WHERE (c.tenant, c.request_id) = (d.tenant, d.request_id)
        AND c.replaces = d.command_id AND c.destination = d.destination AND c.command_id <> d.command_id) AS is_replaced
FROM requests.delivery d LEFT JOIN requests.outcome o USING (tenant, delivery_id)
WHERE d.tenant = %(tenant)s AND d.request_id = %(request_id)s ORDER BY d.destination, d.command_id
"""
_TURNS: Final = """
SELECT number, turn, at FROM requests.turn
WHERE tenant = %(tenant)s AND request_id = %(request_id)s ORDER BY number, turn
"""
_ONE: Final = f"""
SELECT {_COLUMNS} FROM requests.request r
WHERE (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s) AND r.request_id = %(request_id)s ORDER BY r.tenant
"""  # noqa: S608 - constants

Row = dict[str, Any]


def list_requests(
    connection: psycopg.Connection[Any],
    tenant: str | None,
    *,
    is_complete: bool | None = None,
    after: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[Row]:
    """Return requests in the order of tenant and id.

    Args:
        connection: to the control database.
        tenant: only this tenant's.
        is_complete: only those that are, or are not.
        after: tenant and id of the last one of the page before.
        limit: how many at most.
    """
    after_tenant, after_id = after or (None, None)
    wanted = {
        "tenant": tenant,
        "complete": is_complete,
        "after_tenant": after_tenant,
        "after": after_id,
        "limit": min(limit, MAX_PAGE),
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST, wanted).fetchall()


def show_request(connection: psycopg.Connection[Any], tenant: str | None, request_id: str) -> list[Row]:
    """Return the requests of that id, one a tenant, each with its `deliveries` and the `turns` that were told."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(_ONE, {"tenant": tenant, "request_id": request_id}).fetchall()
        for row in found:
            key = {"tenant": row["tenant"], "request_id": request_id}
            row["deliveries"] = cursor.execute(_DELIVERIES, key).fetchall()
            row["turns"] = cursor.execute(_TURNS, key).fetchall()
    return found
