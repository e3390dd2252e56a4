"""What the read model says to a worker before it tells a failure: was this delivery acknowledged before?

The answer counts only when everything that stood in the partition of `state` is folded; position and deliveries are
read in one statement, since they are written in one transaction.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import psycopg

from waybill.contracts.names import state_topic
from waybill.kernel.errors import FabricError
from waybill.kernel.ids import Tenant

__all__ = ["ReadModelStanding"]

ACKNOWLEDGED: Final = """
SELECT (SELECT p.next FROM read.position AS p WHERE p.topic = %(topic)s AND p.partition = %(partition)s),
       (SELECT array_agg(d.delivery_id::text) FROM read.delivery AS d
        WHERE d.tenant = %(tenant)s AND d.delivery_id = ANY (%(ids)s::uuid[]) AND d.state = 'acknowledged')
"""

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[tuple[Any, ...]]]]
#: There is no read model here, or this role may not read it.
_NO_MODEL: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)


class ReadModelStanding:
    """The read model as it is now, over somebody's connection."""

    def __init__(self, run: Run) -> None:
        """Take what runs one statement; what it raises has the database's error as its cause."""
        self._run = run

    async def acknowledged(
        self, tenant: Tenant, partition: int, end: int, delivery_ids: Collection[str]
    ) -> Collection[str] | None:
        """Return those that are acknowledged; None while states below `end` are not folded yet.

        Where there is no read model nothing is known to be acknowledged.
        """
        values = {"topic": state_topic(tenant), "partition": partition, "tenant": tenant, "ids": list(delivery_ids)}
        try:
            ((folded, found),) = await self._run(ACKNOWLEDGED, values)
        except FabricError as error:
            if isinstance(error.__cause__, _NO_MODEL):
                return ()
            raise
        return None if folded is None or folded < end else found or ()
