"""The statements of results: what arrived is written down once, under the epoch, before its position is passed."""

# ruff: noqa: S608 - put together from constants

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from waybill.delivery.core.answered import as_document, read_document
from waybill.delivery.core.records import Try
from waybill.delivery.core.results.believing import Entry, Heard, Refused
from waybill.delivery.core.results.weighing import Weighed
from waybill.delivery.store import OWNED, RESULT, Feed, Owned, TaskStore

__all__ = ["ResultStore", "Row"]

#: A result is told as if it had been an answer; no attempt of ours was.
_NO_TRY: Final = Try(0, 0, 0, "")

# What is written down already, by the identity of what it says.
SAID: Final = """
SELECT result_id::text, partition, record_offset FROM delivery.result
WHERE tenant = %(tenant)s AND destination = %(destination)s AND result_id = ANY(%(result_id)s::uuid[])
  AND weighed <> 'refused'
"""

# What arrived.
RECORD: Final = (
    OWNED
    + """
    INSERT INTO delivery.result (
        tenant, destination, partition, record_offset, result_id, delivery_id, aggregate, weighed, reason, key_id,
        skew_ms, is_quarantined, said, signed_timestamp, signature, body, body_sha256, arrived_at)
    SELECT %(tenant)s, %(destination)s, %(partition)s, r.*
    FROM o, unnest(
        %(record_offset)s::bigint[], %(result_id)s::uuid[], %(delivery_id)s::uuid[], %(aggregate)s::text[],
        %(weighed)s::text[], %(reason)s::text[], %(key_id)s::text[], %(skew_ms)s::bigint[],
        %(is_quarantined)s::boolean[], %(said)s::jsonb[], %(signed_timestamp)s::text[], %(signature)s::text[],
        %(body)s::bytea[], %(body_sha256)s::text[], %(arrived_at)s::timestamptz[]) AS r
    ON CONFLICT DO NOTHING
    RETURNING record_offset AS delivery_id"""
    + RESULT
)

# What became of some of them.
WEIGH: Final = (
    OWNED
    + """
    UPDATE delivery.result AS t SET weighed = r.weighed, reason = r.reason, weighed_at = %(now)s
    FROM o, unnest(%(record_offset)s::bigint[], %(weighed)s::text[], %(reason)s::text[])
        AS r (record_offset, weighed, reason)
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.partition = %(partition)s
      AND t.record_offset = r.record_offset AND t.weighed = 'waiting'
    RETURNING t.record_offset AS delivery_id"""
    + RESULT
)

# What was heard and not weighed yet.
WAITING: Final = """
SELECT record_offset, result_id::text, delivery_id::text, aggregate, key_id, skew_ms, is_quarantined, said
FROM delivery.result
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s AND weighed = 'waiting'
ORDER BY record_offset DESC
LIMIT %(limit)s
"""

_COLUMNS: Final = ", ".join(Feed._fields).replace("delivery_id", "delivery_id::text")


def _selecting(where: str) -> str:
    return f"SELECT {_COLUMNS}, blocks, pending_outcome IS NOT NULL FROM delivery.open_task" + where


# Where some deliveries stand.
ROWS: Final = _selecting("""
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND delivery_id = ANY(%(delivery_id)s::uuid[]) AND kind = 'delivery'
""")

DROP: Final = "SELECT delivery.drop_results(%(tenant)s, %(destination)s, %(partition)s, %(before)s, %(limit)s)"


class Row(NamedTuple):
    """Where a delivery stands."""

    feed: Feed
    blocks: bool
    #: Kafka does not have its last move yet.
    is_unsaid: bool


def _columns(entry: Entry) -> dict[str, Any]:
    """Return the row of an entry."""
    taken, arrived = entry.taken, entry.arrived
    is_believed = isinstance(taken, Heard)
    heard = taken if isinstance(taken, Heard) else entry.copy_of
    return {
        "record_offset": arrived.offset,
        "result_id": heard.result_id if heard else None,
        "delivery_id": heard.delivery_id if heard else None,
        "aggregate": heard.aggregate if heard else None,
        "weighed": (Weighed.WAITING if is_believed else Weighed.REFUSED).value,
        "reason": taken.reason if isinstance(taken, Refused) else None,
        "key_id": heard.key_id if heard else None,
        "skew_ms": heard.skew // timedelta(milliseconds=1) if heard else None,
        "is_quarantined": heard.is_quarantined if heard else False,
        "said": Jsonb(as_document(heard.verdict, _NO_TRY)) if heard else None,
        "signed_timestamp": arrived.signed.timestamp if is_believed else None,
        "signature": arrived.signed.signature if is_believed else None,
        "body": arrived.body if is_believed else None,
        "body_sha256": sha256(arrived.body).hexdigest(),
        "arrived_at": arrived.at,
    }


class ResultStore:
    """Results in the worker's database. Every method may raise TransientError, and FencedError where it writes."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs one statement."""
        self._store = store

    async def said(self, owned: Owned, result_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return partition and offset of those that were written down before, on any partition."""
        rows = await self._store.run(SAID, {**owned.parameters(), "result_id": list(result_ids)})
        return {row[0]: (row[1], row[2]) for row in rows}

    async def record(self, owned: Owned, entries: Sequence[Entry]) -> None:
        """Write down what arrived; what is there already stays as it is."""
        rows = [_columns(entry) for entry in entries]
        await self._store.fenced(RECORD, owned, {name: [row[name] for row in rows] for name in rows[0]})

    async def weigh(self, owned: Owned, weighed: Sequence[tuple[int, Weighed, str | None]], now: datetime) -> None:
        """Write what became of some that waited."""
        values = {
            "record_offset": [offset for offset, _, _ in weighed],
            "weighed": [became.value for _, became, _ in weighed],
            "reason": [reason for _, _, reason in weighed],
            "now": now,
        }
        await self._store.fenced(WEIGH, owned, values)

    async def waiting(self, owned: Owned, limit: int) -> list[tuple[int, Heard]]:
        """Return the newest that were heard and not weighed, in the order of offsets."""
        rows = await self._store.run(WAITING, {**owned.parameters(), "limit": limit})
        return [(row[0], _heard(row)) for row in reversed(rows)]

    async def rows(self, owned: Owned, delivery_ids: Sequence[str]) -> dict[str, Row]:
        """Return where those stand that have a row here."""
        rows = await self._store.run(ROWS, {**owned.parameters(), "delivery_id": list(delivery_ids)})
        found = [Row(Feed(*row[:-2]), *row[-2:]) for row in rows]
        return {row.feed.delivery_id: row for row in found}

    async def drop(self, owned: Owned, before: datetime, limit: int) -> int:
        """Drop the oldest that arrived before an instant and of whose delivery no row is left; return how many."""
        ((dropped,),) = await self._store.run(DROP, {**owned.parameters(), "before": before, "limit": limit})
        return int(dropped)


def _heard(row: tuple[Any, ...]) -> Heard:
    verdict, _ = read_document(row[7], str(uuid.UUID(int=0)))
    return Heard(
        result_id=row[1],
        delivery_id=row[2],
        aggregate=row[3],
        verdict=verdict,
        key_id=row[4],
        skew=timedelta(milliseconds=row[5]),
        is_quarantined=row[6],
    )
