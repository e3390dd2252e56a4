"""The statements of asking: which deliveries are due to be asked about, and what the last answer was.

An answer is noted before anything follows from it, under the epoch like every write of a row. The row stays as it
stands: its version counts moves. A crash at any point leaves it ambiguous and due.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from waybill.delivery.store import OWNED, Feed, Owned, TaskStore

__all__ = ["Asked", "AskingStore", "Due"]

#: The columns of a row to work on, and when it was moved last.
_SELECTED: Final = "SELECT t." + ", t.".join((*Feed._fields, "updated_at")).replace("delivery_id", "delivery_id::text")


def _due_sql(where: str) -> str:
    """Put a condition on rows `t` behind the columns of `Feed` and the time of the last move."""
    return _SELECTED + where


# Ambiguous heads whose time to be asked about has come, and of which Kafka knows that they are ambiguous.
DUE: Final = _due_sql("""
FROM delivery.open_task t
WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.partition = %(partition)s
  AND t.blocks AND t.state = 'ambiguous' AND t.kind = 'delivery' AND t.pending_outcome IS NULL
  AND t.updated_at <= %(since)s AND (t.next_due IS NULL OR t.next_due <= %(now)s)
  AND NOT EXISTS (
      SELECT FROM delivery.open_task e
      WHERE e.tenant = t.tenant AND e.destination = t.destination AND e.partition = t.partition
        AND e.aggregate = t.aggregate AND e.blocks AND (e.sequence, e.record_offset) < (t.sequence, t.record_offset))
ORDER BY t.next_due NULLS FIRST
LIMIT %(limit)s
""")


_RESULT: Final = ") SELECT (SELECT count(*) FROM o), (SELECT count(*) FROM w)"


def _fenced_sql(write: str) -> str:
    """Put a write that selects from `o` into one statement with the check of ownership."""
    return OWNED + write + _RESULT


# What an answer was, and when to ask again.
NOTE: Final = _fenced_sql("""
    UPDATE delivery.open_task AS t SET next_due = %(due)s, asked = %(asked)s
    FROM o
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = %(delivery_id)s::uuid
      AND t.version = %(version)s AND t.state = 'ambiguous'
    RETURNING t.delivery_id""")


class Due(NamedTuple):
    """A row to ask about."""

    feed: Feed
    #: When it became ambiguous.
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is kept of a question: who asked, when, what, and what came back (AM-3)."""

    query_id: str
    worker: str
    asked_at: datetime
    answered_at: datetime
    body_sha256: str
    detail: str
    http_status: int | None
    answer_sha256: str | None

    def document(self) -> dict[str, Any]:
        """Return it as the row keeps it."""
        return {
            "query_id": self.query_id,
            "worker": self.worker,
            "asked_at": self.asked_at.isoformat(),
            "answered_at": self.answered_at.isoformat(),
            "body_sha256": self.body_sha256,
            "said": self.detail,
            "http_status": self.http_status,
            "answer_sha256": self.answer_sha256,
        }


class AskingStore:
    """What asking reads and writes. Every method may raise TransientError."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs statements."""
        self._store = store

    async def due(self, owned: Owned, *, since: datetime, now: datetime, limit: int) -> Sequence[Due]:
        """Return heads that are to be asked about now and became ambiguous by `since`, longest due first."""
        values = {**owned.parameters(), "since": since, "now": now, "limit": limit}
        return [Due(Feed(*row[:-1]), row[-1]) for row in await self._store.run(DUE, values)]

    async def note(self, owned: Owned, delivery_id: str, version: int, asked: Asked, due: datetime) -> bool:
        """Keep an answer with its row, and when to ask again; False when the row stands elsewhere by now.

        Raises:
            FencedError: the partition has another owner; nothing was written.
        """
        values = {"delivery_id": delivery_id, "version": version, "asked": Jsonb(asked.document()), "due": due}
        ((owners, written),) = await self._store.write(NOTE, owned, values)
        if owners == 0:
            raise owned.fenced()
        return bool(written)
