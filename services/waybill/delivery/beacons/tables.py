"""One destination's rows, intents and beacons in PostgreSQL, as a rebuild reads and writes them.

Each write is one transaction that holds the owner's row, so that it has an end before anybody else takes the partition
and finds nothing of its own after. It needs a role that may delete rows: the control database's, not the worker's.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from waybill.contracts.fabric import DestinationConfig
from waybill.delivery.beacons.judging import Kept
from waybill.delivery.beacons.ports import Mark, Note
from waybill.delivery.core.position import Position
from waybill.delivery.store import ROWS, Feed, RowImage, columns_of
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FencedError, UnavailableError

__all__ = ["PostgresTables"]

_IMAGE: Final = tuple(RowImage.__dataclass_fields__)
_PLACE: Final = "tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s"

MARK: Final = f"""
SELECT count(*) FILTER (WHERE beacon = %(beacon)s) > 0, max(created_at),
    coalesce((array_agg(committed ORDER BY number DESC))[1], 0)
FROM delivery.beacon WHERE {_PLACE}
"""  # noqa: S608 - put together from constants

TAKE: Final = """
INSERT INTO delivery.partition_owner AS p (tenant, destination, partition, epoch, owner, taken_at)
VALUES (%(tenant)s, %(destination)s, %(partition)s, %(epoch)s, 'tasks rebuild', %(now)s)
ON CONFLICT (tenant, destination, partition)
DO UPDATE SET epoch = EXCLUDED.epoch, owner = EXCLUDED.owner, taken_at = EXCLUDED.taken_at
"""
HOLD: Final = f"SELECT 1 FROM delivery.partition_owner WHERE {_PLACE} AND epoch = %(epoch)s FOR UPDATE"  # noqa: S608 - the same

# What there is of each delivery: its row, and whether its intent says that it was acknowledged. Gap resolutions stay as
# they are: one that is told again says the same.
KEPT: Final = f"""
SELECT delivery_id::text, coalesce(t.record_offset, i.record_offset), t.version,
    coalesce(i.answer IS NOT NULL AND i.answer ->> 'code' IS NULL, false)
FROM (SELECT * FROM delivery.open_task WHERE {_PLACE} AND kind = 'delivery') AS t
FULL JOIN (SELECT * FROM delivery.intent WHERE {_PLACE}) AS i USING (delivery_id)
"""  # noqa: S608 - the same

LOAD: Final = """
SELECT aggregate, delivery_id::text, sequence, record_offset, state, version, attempt, throttled, next_due,
    expires_at, sent, may_have_acted, record, detail, kind
FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = ANY(%(delivery_id)s::uuid[])
"""

DROP: Final = """
DELETE FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = ANY(%(delivery_id)s::uuid[])
"""

NOTE: Final = """
INSERT INTO delivery.intent AS i (tenant, destination, delivery_id, partition, record_offset, epoch, attempts, sends,
    first_sent_at, last_sent_at, answer)
VALUES (%(tenant)s, %(destination)s, %(delivery_id)s, %(partition)s, %(record_offset)s, %(epoch)s, %(attempts)s,
    %(attempts)s, %(at)s, %(at)s, %(answer)s)
ON CONFLICT (tenant, destination, delivery_id) DO UPDATE SET
    attempts = greatest(i.attempts, EXCLUDED.attempts), sends = greatest(i.sends, EXCLUDED.sends),
    first_sent_at = coalesce(i.first_sent_at, EXCLUDED.first_sent_at), answer = EXCLUDED.answer
"""

PUT_BACK: Final = """
INSERT INTO delivery.beacon (tenant, destination, partition, beacon, committed)
VALUES (%(tenant)s, %(destination)s, %(partition)s, %(beacon)s, %(committed)s)
ON CONFLICT DO NOTHING
"""


class PostgresTables:
    """The tables end of a rebuild. Every method may raise UnavailableError."""

    def __init__(self, connection: psycopg.Connection[Any], config: DestinationConfig, clock: Clock) -> None:
        """Take a connection of its own, in autocommit; the caller closes it."""
        self._connection, self._clock = connection, clock
        self._place = {"tenant": config.tenant, "destination": config.name}
        self._epochs: dict[int, uuid.UUID] = {}

    def mark(self, partition: int, note: Position) -> Mark:
        """Say what is known of a partition."""
        ((is_known, at, committed),) = self._rows(MARK, partition, beacon=note.beacon)
        return Mark(is_known=is_known, at=at, committed=committed)

    def take(self, partition: int) -> str:
        """Shut out every owner there was, by a fresh epoch; return it. It leaves no beacon."""
        epoch = self._epochs[partition] = uuid.uuid4()
        self._rows(TAKE, partition, now=self._clock.now())
        return str(epoch)

    def kept(self, partition: int) -> dict[str, tuple[int, Kept]]:
        """Return by delivery id what a partition has, and the offset of the record it is of."""
        return {
            delivery_id: (offset, Kept(version=version, is_answered=is_answered))
            for delivery_id, offset, version, is_answered in self._rows(KEPT, partition)
        }

    def load(self, partition: int, delivery_ids: Collection[str]) -> list[Feed]:
        """Return rows."""
        return [Feed(*row) for row in self._rows(LOAD, partition, delivery_id=list(delivery_ids))]

    def write(self, partition: int, rows: Sequence[RowImage], notes: Sequence[Note]) -> None:
        """Put rows in the place of older ones, and notes, in one transaction."""
        now = self._clock.now()
        with self._held(partition):
            if rows:
                columns = columns_of(rows, _IMAGE)
                self._rows(DROP, partition, delivery_id=columns["delivery_id"])
                self._rows("WITH o AS (SELECT)" + ROWS, partition, now=now, **columns)
            if notes:
                place = {**self._place, "partition": partition, "epoch": self._epochs[partition]}
                self._connection.cursor().executemany(
                    NOTE, [{**place, **asdict(note), "answer": Jsonb(note.answer)} for note in notes]
                )

    def put_back(self, partition: int, offset: int, note: Position) -> None:
        """Put the beacon back that the committed offset names: owners go on from here."""
        with self._held(partition):
            self._rows(PUT_BACK, partition, beacon=note.beacon, committed=offset)

    @contextmanager
    def _held(self, partition: int) -> Iterator[None]:
        with self._connection.transaction():
            if not self._rows(HOLD, partition):
                place = f"{self._place['tenant']}/{self._place['destination']}[{partition}]"
                raise FencedError(f"{place} was taken by another rebuild, or by a worker: run it again")
            yield

    def _rows(self, query: str, partition: int, **values: object) -> list[tuple[Any, ...]]:
        parameters = {**self._place, "partition": partition, "epoch": self._epochs.get(partition), **values}
        try:
            cursor = self._connection.cursor(row_factory=tuple_row).execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []
        except psycopg.errors.UndefinedTable as error:
            raise UnavailableError("the control database is older than this version: run `waybill migrate`") from error
        except psycopg.OperationalError as error:
            raise UnavailableError(f"the control database does not answer: {type(error).__name__}") from error
