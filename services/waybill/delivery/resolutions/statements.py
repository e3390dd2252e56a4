"""The statement that puts a gap resolution in the place of a delivery that ended, in one transaction.

The delivery's row blocks no longer, the resolution's does: there is no moment in which neither holds the lane, and
none in which a crash could leave the delivery to be sent after its end was told. Repeated, it finds nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from waybill.delivery.store import OWNED, RESULT, Owned, TaskStore, columns_of

__all__ = ["RESOLVE", "RETELL", "TOLD", "ResolutionRow", "ResolutionStore"]

# Written by both statements; what follows may narrow it.
_INSERT: Final = """
    INSERT INTO delivery.open_task (
        tenant, destination, partition, delivery_id, command_id, aggregate, sequence, record_offset, state, version,
        attempt, expires_at, blocks, sent, may_have_acted, record, created_at, updated_at, kind)
    SELECT %(tenant)s, %(destination)s, %(partition)s, r.resolution_id, r.command_id, r.aggregate, r.sequence,
        r.record_offset, 'queued', 0, 0, r.expires_at, true, false, false, r.record, %(now)s, %(now)s, 'resolution'
    FROM o, unnest(
        %(resolution_id)s::uuid[], %(ended_id)s::uuid[], %(command_id)s::uuid[], %(aggregate)s::text[],
        %(sequence)s::integer[], %(record_offset)s::bigint[], %(expires_at)s::timestamptz[], %(record)s::bytea[])
        AS r (resolution_id, ended_id, command_id, aggregate, sequence, record_offset, expires_at, record)"""
_ONCE: Final = """
    ON CONFLICT (tenant, destination, delivery_id) DO NOTHING
    RETURNING delivery_id"""

# Instead of rows that ended and hold their lanes, resolutions that hold them.
_UNBLOCK: Final = """, u AS (
    UPDATE delivery.open_task AS t SET blocks = false, updated_at = %(now)s
    FROM o, unnest(%(ended_id)s::uuid[]) AS e (id)
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = e.id
      AND t.blocks AND t.state IN ('ambiguous', 'failed', 'exception', 'dead_letter')
    RETURNING t.delivery_id
), w AS ("""
_OF_THOSE: Final = """
    JOIN u ON u.delivery_id = r.ended_id"""
RESOLVE: Final = OWNED.removesuffix(", w AS (") + _UNBLOCK + _INSERT + _OF_THOSE + _ONCE + RESULT

# One more resolution of what was told before, for a listener that does not remember.
RETELL: Final = OWNED + _INSERT + _ONCE + RESULT

# Deliveries of an aggregate that ended without acknowledgement by their listener, below a number.
TOLD: Final = """
SELECT aggregate, delivery_id::text, sequence, record_offset, state, version, attempt, throttled, next_due,
       expires_at, sent, may_have_acted, record, detail, kind
FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND aggregate = %(aggregate)s AND sequence >= %(first)s AND sequence < %(before)s
  AND kind = 'delivery' AND NOT blocks
  AND (state IN ('ambiguous', 'failed', 'exception', 'dead_letter') OR detail = 'acknowledged_by_people')
ORDER BY sequence
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionRow:
    """A gap resolution to be written, and the delivery whose end it tells."""

    resolution_id: str
    ended_id: str
    command_id: str
    aggregate: str
    sequence: int
    record_offset: int
    expires_at: datetime
    record: bytes


class ResolutionStore:
    """The rows of gap resolutions. Every method may raise TransientError, and FencedError where it writes."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs one statement."""
        self._store = store

    async def resolve(self, owned: Owned, rows: Sequence[ResolutionRow], now: datetime) -> None:
        """Put resolutions in the places of rows that ended; what is done already stays."""
        await self._store.fenced(RESOLVE, owned, _values(rows, now))

    async def retell(self, owned: Owned, row: ResolutionRow, now: datetime) -> None:
        """Write one more resolution of what was told before."""
        await self._store.fenced(RETELL, owned, _values([row], now))

    async def told(self, owned: Owned, aggregate: str, first: int, before: int, limit: int) -> list[tuple[Any, ...]]:
        """Return what ended in [first, before) of an aggregate and holds its lane no longer, as feeds."""
        values = {"aggregate": aggregate, "first": first, "before": before, "limit": limit}
        return await self._store.run(TOLD, {**owned.parameters(), **values})


def _values(rows: Sequence[ResolutionRow], now: datetime) -> dict[str, Any]:
    return {**columns_of(rows, tuple(ResolutionRow.__dataclass_fields__)), "now": now}
