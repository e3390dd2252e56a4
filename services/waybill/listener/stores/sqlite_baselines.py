"""Baselines in an SQLite file, beside the lanes they move; the same as `postgres_baselines`, under the write lock."""

import asyncio
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from waybill.contracts.baseline import BaselinePart, render_lanes
from waybill.kernel.clock import format_instant, parse_instant
from waybill.listener.core.baseline import Asked
from waybill.listener.core.verification import Binding

__all__ = ["BASELINE_SCHEMA", "SqliteBaselines"]

BASELINE_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS waybill_baseline (
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, destination TEXT NOT NULL,
    nonce TEXT NOT NULL UNIQUE, asked_at TEXT NOT NULL, baseline_id TEXT, digest TEXT, parts INTEGER,
    applied_at TEXT, moved INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS waybill_baseline_part (
    number INTEGER NOT NULL REFERENCES waybill_baseline, part INTEGER NOT NULL, data_sha256 TEXT NOT NULL,
    lanes TEXT NOT NULL, staged_at TEXT NOT NULL,
    PRIMARY KEY (number, part)
) STRICT;
"""
ASK: Final = """
    INSERT INTO waybill_baseline (tenant, destination, nonce, asked_at) VALUES (:tenant, :destination, :nonce, :at)
"""
NEWEST: Final = """
    SELECT number, nonce, baseline_id, digest, parts, applied_at FROM waybill_baseline
     WHERE tenant = :tenant AND destination = :destination
     ORDER BY number DESC LIMIT 1
"""
STAGED: Final = "SELECT part, data_sha256 FROM waybill_baseline_part WHERE number = :number"
BEGIN: Final = """
    UPDATE waybill_baseline SET baseline_id = :baseline_id, digest = :digest, parts = :parts
     WHERE number = :number AND baseline_id IS NULL
"""
STAGE: Final = """
    INSERT INTO waybill_baseline_part (number, part, data_sha256, lanes, staged_at)
    VALUES (:number, :part, :data_sha256, :lanes, :at)
"""
# A lane only ever moves on: what this listener did is not unlearnt.
MOVE: Final = """
    INSERT INTO waybill_lane (tenant, destination, aggregate, last_sequence)
    SELECT :tenant, :destination, json_extract(lane.value, '$.aggregate'), max(json_extract(lane.value, '$.next')) - 1
      FROM waybill_baseline_part AS p, json_each(p.lanes, '$.lanes') AS lane
     WHERE p.number = :number
     GROUP BY 3
    ON CONFLICT (tenant, destination, aggregate) DO UPDATE SET last_sequence = excluded.last_sequence
     WHERE last_sequence < excluded.last_sequence
"""
# What was told final stays final.
TELL: Final = """
    INSERT INTO waybill_gap (tenant, destination, aggregate, sequence, delivery_id, resolution)
    SELECT :tenant, :destination, json_extract(lane.value, '$.aggregate'), json_extract(told.value, '$.sequence'),
           json_extract(told.value, '$.delivery_id'), json_extract(told.value, '$.resolution')
      FROM waybill_baseline_part AS p, json_each(p.lanes, '$.lanes') AS lane,
           json_each(lane.value, '$.told') AS told
     WHERE p.number = :number
    ON CONFLICT (tenant, destination, aggregate, sequence) DO UPDATE SET resolution = excluded.resolution
     WHERE resolution = 'deferred' AND delivery_id = excluded.delivery_id
"""
# Passed for good.
FORGET: Final = """
    DELETE FROM waybill_gap
     WHERE tenant = :tenant AND destination = :destination AND resolution = 'final'
       AND sequence <= (SELECT l.last_sequence FROM waybill_lane AS l
                         WHERE l.tenant = waybill_gap.tenant AND l.destination = waybill_gap.destination
                           AND l.aggregate = waybill_gap.aggregate)
"""
APPLIED: Final = "UPDATE waybill_baseline SET applied_at = :at, moved = :moved WHERE number = :number"


class SqliteBaselines:
    """What was asked for and what came, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Work in the open transaction of a connection."""
        self._connection = connection
        self._number = 0

    async def ask(self, binding: Binding, nonce: str, at: datetime) -> None:
        """Remember that a baseline is asked for; what was asked for before counts no more."""
        await self._run(ASK, {**_place(binding), "nonce": nonce, "at": format_instant(at)})

    async def asked(self, binding: Binding) -> Asked | None:
        """Say when it was asked last, and what has come since."""
        rows, _ = await self._run(NEWEST, _place(binding))
        if not rows:
            return None
        self._number, nonce, baseline_id, digest, parts, applied_at = rows[0]
        staged, _ = await self._run(STAGED, {"number": self._number})
        return Asked(
            nonce=nonce,
            baseline_id=UUID(baseline_id) if baseline_id is not None else None,
            digest=digest or "",
            parts=parts or 0,
            applied_at=parse_instant(applied_at) if applied_at is not None else None,
            staged=dict(staged),
        )

    async def stage(self, part: BaselinePart, at: datetime) -> None:
        """Keep a part for what `asked` returned."""
        statement = {"baseline_id": str(part.baseline_id), "digest": part.digest, "parts": part.parts}
        await self._run(BEGIN, {"number": self._number, **statement})
        values = {"part": part.part, "data_sha256": part.data_sha256, "lanes": render_lanes(part.lanes).decode()}
        await self._run(STAGE, {"number": self._number, "at": format_instant(at), **values})

    async def apply(self, binding: Binding, at: datetime) -> int:
        """Let all parts that were kept count; return how many aggregates were moved on."""
        values = {**_place(binding), "number": self._number}
        _, moved = await self._run(MOVE, values)
        await self._run(TELL, values)
        await self._run(FORGET, values)
        await self._run(APPLIED, {"number": self._number, "at": format_instant(at), "moved": moved})
        return moved

    async def _run(self, query: str, values: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], int]:
        def run() -> tuple[list[tuple[Any, ...]], int]:
            cursor = self._connection.execute(query, values)
            return cursor.fetchall(), cursor.rowcount

        return await asyncio.to_thread(run)


def _place(binding: Binding) -> dict[str, Any]:
    return {"tenant": binding.tenant, "destination": binding.destination}
