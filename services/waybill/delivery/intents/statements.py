"""The statements of intents. Opening one is fenced by the epoch like every write of a row; answering one is not.

Truth about effects is never fenced: what a former owner learns late is as true as what an owner learns. Each
statement is its own transaction. Repeating `begin` or `again` after a lost acknowledgement finds the intent already
opened and returns it as it stands, which the caller judges like anybody's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from waybill.delivery.beacons.statements import LEAVES, MINE, OWNED, sure_sql
from waybill.delivery.store import Owned, TaskStore

__all__ = ["Answer", "Intent", "IntentStore", "Opened", "Opening"]

_OPENED: Final = """) SELECT n.owners, w.delivery_id::text, w.sends, w.first_sent_at
FROM (SELECT count(*) AS owners FROM o) AS n LEFT JOIN w ON true"""


def _opening_sql(write: str) -> str:
    """Put a write that selects from `o` into one statement with the check of ownership."""
    return OWNED + write + _OPENED


# A first attempt, or another one after an attempt that was answered.
BEGIN: Final = _opening_sql("""
    INSERT INTO delivery.intent AS i (
        tenant, destination, delivery_id, partition, record_offset, epoch, attempts, sends, first_sent_at, last_sent_at)
    SELECT %(tenant)s, %(destination)s, r.delivery_id, %(partition)s, r.record_offset, %(epoch)s, r.number, 1,
        %(now)s, %(now)s
    FROM o, unnest(%(delivery_id)s::uuid[], %(record_offset)s::bigint[], %(number)s::integer[])
        AS r (delivery_id, record_offset, number)
    ON CONFLICT (tenant, destination, delivery_id) DO UPDATE SET
        attempts = EXCLUDED.attempts, sends = i.sends + 1, answer = NULL, epoch = EXCLUDED.epoch,
        first_sent_at = coalesce(i.first_sent_at, EXCLUDED.first_sent_at), last_sent_at = EXCLUDED.last_sent_at
    WHERE i.attempts = EXCLUDED.attempts - 1 AND i.answer IS NOT NULL
    RETURNING i.delivery_id, i.sends, i.first_sent_at""")

# One more attempt although the last one was never answered, or was another's.
AGAIN: Final = _opening_sql("""
    UPDATE delivery.intent AS i SET
        attempts = r.number, sends = i.sends + 1, answer = NULL, epoch = %(epoch)s,
        first_sent_at = coalesce(i.first_sent_at, %(now)s), last_sent_at = %(now)s
    FROM o, unnest(%(delivery_id)s::uuid[], %(found)s::integer[], %(number)s::integer[])
        AS r (delivery_id, found, number)
    WHERE i.tenant = %(tenant)s AND i.destination = %(destination)s AND i.delivery_id = r.delivery_id
      AND i.attempts = r.found
    RETURNING i.delivery_id, i.sends, i.first_sent_at""")

# What an attempt came to. One that never left, or was refused unseen, is no send. An owner's answer leaves a beacon, anybody's is written.
ANSWER: Final = f"""{MINE}
), {LEAVES}, w AS (
    UPDATE delivery.intent AS i SET
        answer = r.answer, sends = i.sends - r.unsent,
        first_sent_at = CASE WHEN i.sends - r.unsent > 0 THEN i.first_sent_at END
    FROM unnest(%(delivery_id)s::uuid[], %(number)s::integer[], %(unsent)s::integer[], %(answer)s::jsonb[])
        AS r (delivery_id, number, unsent, answer)
    WHERE i.tenant = %(tenant)s AND i.destination = %(destination)s AND i.delivery_id = r.delivery_id
      AND i.attempts = r.number AND i.answer IS NULL
) SELECT count(*) FROM o
"""  # noqa: S608 - put together from constants

LOOK: Final = sure_sql("""
    SELECT delivery_id::text, record_offset, epoch::text, attempts, sends, first_sent_at, last_sent_at, answer
    FROM delivery.intent
    WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = ANY(%(delivery_id)s::uuid[])""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An attempt that is about to be made. `found` is the attempt it follows, where that is known to be there."""

    delivery_id: str
    record_offset: int
    number: int
    found: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an attempt came to; `unsent` is 1 when no byte of it left or it was refused unseen."""

    delivery_id: str
    number: int
    unsent: int
    answer: Mapping[str, Any]


class Opened(NamedTuple):
    """An intent that is now open."""

    delivery_id: str
    sends: int
    first_sent_at: datetime


class Intent(NamedTuple):
    """An intent as it stands."""

    delivery_id: str
    record_offset: int
    epoch: str
    attempts: int
    sends: int
    first_sent_at: datetime | None
    last_sent_at: datetime
    answer: dict[str, Any] | None


class IntentStore:
    """Intents in the worker's database. Every method may raise TransientError."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs statements."""
        self._store = store

    async def begin(self, owned: Owned, openings: Sequence[Opening], now: datetime) -> dict[str, Opened | Intent]:
        """Open intents; return for each either that it is open or how it stands instead.

        Raises:
            FencedError: the partition has another owner, or its database was set back; nothing was written.
        """
        return await self._open(BEGIN, owned, [one for one in openings if one.found is None], now) | (
            await self._open(AGAIN, owned, [one for one in openings if one.found is not None], now)
        )

    async def answer(self, owned: Owned, answers: Sequence[Answer]) -> None:
        """Note what attempts came to, whoever owns the partition; an answer that is there stays."""
        values = _columns(answers, Answer)
        values["answer"] = [Jsonb(one.answer) for one in answers]
        await self._store.write(ANSWER, owned, values)

    async def look(self, owned: Owned, delivery_ids: Sequence[str]) -> dict[str, Intent]:
        """Return the intents some deliveries have.

        Raises:
            FencedError: the database was set back: that it has none means nothing.
        """
        rows = await self._store.sure(LOOK, owned, {"delivery_id": list(delivery_ids)})
        return {row[0]: Intent(*row) for row in rows}

    async def _open(
        self, query: str, owned: Owned, openings: Sequence[Opening], now: datetime
    ) -> dict[str, Opened | Intent]:
        if not openings:
            return {}
        rows = await self._store.write(query, owned, {**_columns(openings, Opening), "now": now})
        if rows[0][0] == 0:
            raise owned.fenced()
        found: dict[str, Opened | Intent] = {row[1]: Opened(*row[1:]) for row in rows if row[1] is not None}
        missing = [one.delivery_id for one in openings if one.delivery_id not in found]
        return found | (await self.look(owned, missing) if missing else {})


def _columns(records: Sequence[object], kind: type) -> dict[str, list[Any]]:
    return {field.name: [getattr(record, field.name) for record in records] for field in fields(kind)}
