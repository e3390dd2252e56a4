"""How far each aggregate has come, in the destination's own PostgreSQL, beside the delivery records.

Read and written in the transaction that executes a delivery or hears a gap resolution: what is executed and how far
its aggregate has come are there together or not at all. The rule is `core.sequencing`.
"""

from typing import Any, Final

import psycopg
from psycopg import sql

from waybill.contracts.envelope import GapResolution, Resolution
from waybill.listener.core.claims import Claim
from waybill.listener.core.sequencing import Told, advance
from waybill.listener.core.verification import Lane

__all__ = ["PostgresLanes"]

# Locks the lane until the transaction ends; makes it when it is new.
LOCK: Final = sql.SQL("""
    INSERT INTO {schema}.lane AS l (tenant, destination, aggregate, last_sequence)
    VALUES (%(tenant)s, %(destination)s, %(aggregate)s, 0)
    ON CONFLICT (tenant, destination, aggregate) DO UPDATE SET last_sequence = l.last_sequence
    RETURNING last_sequence
""")
TOLD: Final = sql.SQL("""
    SELECT sequence, delivery_id, resolution FROM {schema}.gap
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND aggregate = %(aggregate)s
""")
# What was told final stays final.
TELL: Final = sql.SQL("""
    INSERT INTO {schema}.gap AS g (tenant, destination, aggregate, sequence, delivery_id, resolution)
    VALUES (%(tenant)s, %(destination)s, %(aggregate)s, %(sequence)s, %(delivery_id)s, %(resolution)s)
    ON CONFLICT (tenant, destination, aggregate, sequence) DO UPDATE SET resolution = EXCLUDED.resolution
     WHERE g.resolution = 'deferred' AND g.delivery_id = EXCLUDED.delivery_id
""")
REACH: Final = sql.SQL("""
    UPDATE {schema}.lane SET last_sequence = %(last)s
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND aggregate = %(aggregate)s
""")
# Passed for good: never coming, or executed just now.
FORGET: Final = sql.SQL("""
    DELETE FROM {schema}.gap
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND aggregate = %(aggregate)s
       AND sequence <= %(last)s AND (resolution = 'final' OR sequence = %(done)s)
""")


class PostgresLanes:
    """How far aggregates have come."""

    def __init__(self, connection: psycopg.AsyncConnection, schema: str) -> None:
        """Work in a transaction, in the schema of the delivery records."""
        self._connection = connection
        self._schema = sql.Identifier(schema)

    async def read(self, claim: Claim) -> Lane:
        """Lock the lane of a claim's aggregate until the transaction ends, and say how far it has come."""
        where = _where(claim)
        row = await (await self._connection.execute(self._sql(LOCK), where)).fetchone()
        assert row is not None
        rows = await (await self._connection.execute(self._sql(TOLD), where)).fetchall()
        told = {number: Told(delivery_id=found, resolution=Resolution(word)) for number, found, word in rows}
        return Lane(last=row[0], told=told)

    async def take_turn(self, claim: Claim, lane: Lane, sequence: int) -> None:
        """Take a delivery's turn in a lane that was read; it counts when the transaction commits."""
        await self._reach(claim, advance(max(lane.last, sequence), lane.told), done=sequence)

    async def note(self, claim: Claim, gap: GapResolution) -> None:
        """Remember what a gap resolution says, and pass over it where its turn has come."""
        await self._connection.execute(self._sql(LOCK), _where(claim))
        for entry in gap.entries:
            values = {
                "sequence": entry.sequence,
                "delivery_id": entry.delivery_id,
                "resolution": entry.resolution.value,
            }
            await self._connection.execute(self._sql(TELL), {**_where(claim), **values})
        lane = await self.read(claim)
        await self._reach(claim, advance(lane.last, lane.told), done=None)

    async def _reach(self, claim: Claim, last: int, done: int | None) -> None:
        where = _where(claim)
        await self._connection.execute(self._sql(REACH), {**where, "last": last})
        await self._connection.execute(self._sql(FORGET), {**where, "last": last, "done": done})

    def _sql(self, query: sql.SQL) -> sql.Composed:
        return query.format(schema=self._schema)


def _where(claim: Claim) -> dict[str, Any]:
    return {"tenant": claim.tenant, "destination": claim.destination, "aggregate": claim.aggregate}
