"""The statements of hand-overs that wait to be read."""

# ruff: noqa: S608 - put together from constants

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from waybill.delivery.store import OWNED, Owned, TaskStore

__all__ = ["Begun", "WaitStore"]

_UNREAD: Final = """
    FROM delivery.open_task
    WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
      AND handed_to IS NOT NULL"""

# Begin the waits of what was read past; let those end at once whose command expired unread.
BEGIN: Final = (
    OWNED
    + f"""
    UPDATE delivery.open_task AS t SET handed_to = NULL, next_due = r.due
    FROM o, (
        (SELECT delivery_id, %(until)s::timestamptz AS due {_UNREAD} AND handed_to < %(passed)s
        ORDER BY handed_to LIMIT %(limit)s)
        UNION ALL
        (SELECT delivery_id, %(now)s::timestamptz {_UNREAD} AND handed_to >= %(passed)s AND expires_at <= %(now)s
        ORDER BY expires_at LIMIT %(limit)s)
    ) AS r
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = r.delivery_id
    RETURNING t.delivery_id::text, t.aggregate, t.next_due
    ) SELECT (SELECT count(*) FROM o), w.* FROM (SELECT) AS one LEFT JOIN w ON true"""
)


class Begun(NamedTuple):
    """A delivery whose wait has a time now."""

    delivery_id: str
    aggregate: str
    due: datetime


class WaitStore:
    """Waits in the worker's database."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs one statement."""
        self._store = store

    async def begin(self, owned: Owned, passed: int, now: datetime, wait: timedelta, limit: int) -> list[Begun]:
        """Give a time to up to `limit` of what was read past, and of what expired unread; return them.

        Args:
            owned: the partition.
            passed: its listeners have committed this offset.
            now: the instant from which results are waited for.
            wait: for how long.
            limit: of each kind.

        Raises:
            FencedError: the partition has another owner; nothing was written.
            TransientError: not now; the same call is safe to repeat.
        """
        values = {"passed": passed, "now": now, "until": now + wait, "limit": limit}
        rows = await self._store.write(BEGIN, owned, values)
        if rows[0][0] == 0:
            raise owned.fenced()
        return [Begun(*row[1:]) for row in rows if row[1] is not None]
