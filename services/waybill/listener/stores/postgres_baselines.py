"""Baselines in the destination's own PostgreSQL, beside the lanes they move.

Parts are kept as rows and counted for nothing. The last one that was missing moves all lanes by one statement, in the
transaction that keeps it: a crash leaves lanes as they were, and the parts that had come.
"""

from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from waybill.contracts.baseline import BaselinePart, render_lanes
from waybill.listener.core.baseline import Asked
from waybill.listener.core.verification import Binding

__all__ = ["PostgresBaselines"]

ASK: Final = sql.SQL("""
    INSERT INTO {schema}.baseline (tenant, destination, nonce, asked_at)
    VALUES (%(tenant)s, %(destination)s, %(nonce)s, %(at)s)
""")
NEWEST: Final = sql.SQL("""
    SELECT number, nonce, baseline_id, digest, parts, applied_at FROM {schema}.baseline
     WHERE tenant = %(tenant)s AND destination = %(destination)s
     ORDER BY number DESC LIMIT 1
       FOR UPDATE
""")
STAGED: Final = sql.SQL("SELECT part, data_sha256 FROM {schema}.baseline_part WHERE number = %(number)s")
BEGIN: Final = sql.SQL("""
    UPDATE {schema}.baseline SET baseline_id = %(baseline_id)s, digest = %(digest)s, parts = %(parts)s
     WHERE number = %(number)s AND baseline_id IS NULL
""")
STAGE: Final = sql.SQL("""
    INSERT INTO {schema}.baseline_part (number, part, data_sha256, lanes, staged_at)
    VALUES (%(number)s, %(part)s, %(data_sha256)s, %(lanes)s::jsonb -> 'lanes', %(at)s)
""")
# A lane only ever moves on: what this listener did is not unlearnt. In the order of aggregates, as all who lock several.
MOVE: Final = sql.SQL("""
    WITH said AS (
        SELECT lane ->> 'aggregate' AS aggregate, max((lane ->> 'next')::integer) - 1 AS last
          FROM {schema}.baseline_part AS p, jsonb_array_elements(p.lanes) AS lane
         WHERE p.number = %(number)s
         GROUP BY 1
    )
    INSERT INTO {schema}.lane AS l (tenant, destination, aggregate, last_sequence)
    SELECT %(tenant)s, %(destination)s, said.aggregate, said.last FROM said ORDER BY said.aggregate
    ON CONFLICT (tenant, destination, aggregate) DO UPDATE SET last_sequence = EXCLUDED.last_sequence
     WHERE l.last_sequence < EXCLUDED.last_sequence
""")
# What was told final stays final.
TELL: Final = sql.SQL("""
    INSERT INTO {schema}.gap AS g (tenant, destination, aggregate, sequence, delivery_id, resolution)
    SELECT %(tenant)s, %(destination)s, lane ->> 'aggregate', (told ->> 'sequence')::integer,
           (told ->> 'delivery_id')::uuid, told ->> 'resolution'
      FROM {schema}.baseline_part AS p, jsonb_array_elements(p.lanes) AS lane,
           jsonb_array_elements(lane -> 'told') AS told
     WHERE p.number = %(number)s
    ON CONFLICT (tenant, destination, aggregate, sequence) DO UPDATE SET resolution = EXCLUDED.resolution
     WHERE g.resolution = 'deferred' AND g.delivery_id = EXCLUDED.delivery_id
""")
# Passed for good.
FORGET: Final = sql.SQL("""
    DELETE FROM {schema}.gap AS g USING {schema}.lane AS l
     WHERE l.tenant = %(tenant)s AND l.destination = %(destination)s
       AND (g.tenant, g.destination, g.aggregate) = (l.tenant, l.destination, l.aggregate)
       AND g.sequence <= l.last_sequence AND g.resolution = 'final'
""")
APPLIED: Final = sql.SQL(
    "UPDATE {schema}.baseline SET applied_at = %(at)s, moved = %(moved)s WHERE number = %(number)s"
)


class PostgresBaselines:
    """What was asked for and what came, in one transaction."""

    def __init__(self, connection: psycopg.AsyncConnection, schema: str) -> None:
        """Work in a transaction, in the schema of the delivery records."""
        self._connection = connection
        self._schema = sql.Identifier(schema)
        self._number = 0

    async def ask(self, binding: Binding, nonce: str, at: datetime) -> None:
        """Remember that a baseline is asked for; what was asked for before counts no more."""
        await self._run(ASK, {**_place(binding), "nonce": nonce, "at": at})

    async def asked(self, binding: Binding) -> Asked | None:
        """Lock the last time it was asked until the transaction ends, and say what has come since."""
        row = await (await self._run(NEWEST, _place(binding))).fetchone()
        if row is None:
            return None
        self._number, nonce, baseline_id, digest, parts, applied_at = row
        staged = await (await self._run(STAGED, {"number": self._number})).fetchall()
        return Asked(
            nonce=nonce,
            baseline_id=baseline_id,
            digest=digest or "",
            parts=parts or 0,
            applied_at=applied_at,
            staged=dict(staged),
        )

    async def stage(self, part: BaselinePart, at: datetime) -> None:
        """Keep a part for what `asked` returned."""
        statement = {"baseline_id": part.baseline_id, "digest": part.digest, "parts": part.parts}
        await self._run(BEGIN, {"number": self._number, **statement})
        values = {"part": part.part, "data_sha256": part.data_sha256, "lanes": render_lanes(part.lanes).decode()}
        await self._run(STAGE, {"number": self._number, "at": at, **values})

    async def apply(self, binding: Binding, at: datetime) -> int:
        """Let all parts that were kept count; return how many aggregates were moved on."""
        values = {**_place(binding), "number": self._number}
        moved = (await self._run(MOVE, values)).rowcount
        await self._run(TELL, values)
        await self._run(FORGET, values)
        await self._run(APPLIED, {"number": self._number, "at": at, "moved": moved})
        return moved

    async def _run(self, query: sql.SQL, values: dict[str, Any]) -> psycopg.AsyncCursor:
        return await self._connection.execute(query.format(schema=self._schema), values)


def _place(binding: Binding) -> dict[str, Any]:
    return {"tenant": binding.tenant, "destination": binding.destination}
