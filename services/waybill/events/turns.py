"""How one tenant's destinations came to stand as they do, read from the control database.

Controls are rows that are only added, a few a day, and those of two destinations may become visible in another order
than that of their numbers. So no position moves over them: the newest are read again and again, and what was told is
known by its id. Only where telling began is kept.
"""

from collections.abc import Container
from contextlib import closing
from typing import Final

from psycopg.rows import class_row

from waybill.events.core.telling import Event, Turn, event_of_turn
from waybill.events.store import EventStore
from waybill.infra.postgres import connect
from waybill.kernel.ids import Tenant

__all__ = ["BEGINNING", "Turns"]

#: Where telling began, kept among the positions of topics; no topic can be called so.
BEGINNING: Final = "controls of destinations"
#: Controls this old are not read again; ids of what was told are kept three times as long.
_READ_DAYS: Final = 30

_NEXT: Final = "SELECT coalesce(max(number), 0) + 1 FROM delivery.destination_control"
_TURNS: Final = """
SELECT number, tenant, destination, before, standing, decided_at AS at, decided_by AS "by", reason
FROM (
    SELECT *, lag(standing, 1, 'running') OVER (PARTITION BY destination ORDER BY number) AS before
    FROM delivery.destination_control WHERE tenant = %(tenant)s AND destination <> ''
) AS controls
WHERE number >= %(first)s AND standing <> before
    AND decided_at > clock_timestamp() - make_interval(days => %(days)s)
ORDER BY number
"""


class Turns:
    """Tells one tenant's turns, each once; a connection to the control database for each look."""

    def __init__(self, dsn: str, tenant: Tenant, store: EventStore) -> None:
        """Find where telling began; a tenant that is told for the first time begins now."""
        self._dsn, self._tenant, self._store = dsn, tenant, store
        self._first = store.positions(BEGINNING, [self._next()])[0]
        #: Those looked at since the process began; one that begins anew knows them by their ids.
        self._known: set[int] = set()

    def tell(self, wanted: Container[str]) -> list[Event]:
        """Write the events of wanted types about what nobody looked at yet, in one transaction; return them."""
        turns = [turn for turn in self._look() if turn.number not in self._known]
        if not turns:
            return []
        told = self._store.tell_without_position([event_of_turn(turn) for turn in turns], wanted)
        self._known.update(turn.number for turn in turns)
        return told

    def _next(self) -> int:
        with closing(connect(self._dsn, application_name="waybill-events", autocommit=True)) as connection:
            row = connection.execute(_NEXT).fetchone()
        return int(row[0]) if row is not None else 1

    def _look(self) -> list[Turn]:
        values = {"tenant": self._tenant, "first": self._first, "days": _READ_DAYS}
        with (
            closing(connect(self._dsn, application_name="waybill-events", autocommit=True)) as connection,
            connection.cursor(row_factory=class_row(Turn)) as cursor,
        ):
            return cursor.execute(_TURNS, values).fetchall()
