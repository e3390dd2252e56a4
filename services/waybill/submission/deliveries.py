"""Reading a tenant's deliveries from the read model: pages, and one by its id. Looks only."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from waybill.kernel.ids import Tenant
from waybill.submission.core.pages import Wanted

__all__ = ["Deliveries"]

_COLUMNS: Final = (
    "delivery_id, command_id, destination, aggregate, sequence, command_type, request_id, state, version, error_code, "
    "detail, proof_level, issued_at, expires_at, updated_at"
)
_AGE: Final = "coalesce(issued_at, '-infinity'::timestamptz)"
_PAGE: Final = f"""
SELECT {_COLUMNS} FROM read.delivery
WHERE tenant = %(tenant)s
    AND (%(destination)s::text IS NULL OR destination = %(destination)s)
    AND (%(state)s::text IS NULL OR state = %(state)s)
    AND (%(aggregate)s::text IS NULL OR aggregate = %(aggregate)s)
    AND (%(request_id)s::text IS NULL OR request_id = %(request_id)s)
    AND (%(command_id)s::uuid IS NULL OR command_id = %(command_id)s)
    AND (%(after)s::uuid IS NULL OR ({_AGE}, delivery_id) < (coalesce(%(at)s::timestamptz, '-infinity'), %(after)s::uuid))
ORDER BY {_AGE} DESC, delivery_id DESC LIMIT %(limit)s
"""  # noqa: S608 - constants
_ONE: Final = f"SELECT {_COLUMNS} FROM read.delivery WHERE tenant = %s AND delivery_id = %s"  # noqa: S608 - constants


class Deliveries:
    """The read model over a pool of the control database."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def page(self, tenant: Tenant, wanted: Wanted) -> Sequence[Mapping[str, Any]]:
        """Return deliveries, newest first, from behind the place that is given."""
        after = wanted.after
        values = {
            "tenant": tenant,
            "destination": wanted.destination,
            "state": wanted.state,
            "aggregate": wanted.aggregate,
            "request_id": wanted.request_id,
            "command_id": wanted.command_id,
            "after": None if after is None else after.delivery_id,
            "at": None if after is None else after.issued_at,
            "limit": wanted.limit,
        }
        async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_PAGE.encode(), values)
            rows: Sequence[Mapping[str, Any]] = await cursor.fetchall()
        return rows

    async def one(self, tenant: Tenant, identity: UUID) -> Mapping[str, Any] | None:
        """Return a tenant's delivery by id."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_ONE.encode(), (tenant, identity))
            row: Mapping[str, Any] | None = await cursor.fetchone()
        return row
