"""Rows of deliveries that left the happy path, and who owns which partition. Every write is fenced by the epoch.

Check and write are one statement: the owner's row is locked FOR SHARE in the same snapshot that writes, so a new
owner's bump waits for a write under way and a former owner's write finds nothing and writes nothing. Two
statements in a pipeline, or WHERE EXISTS, do not have that property. Each statement is its own transaction and
is safe to repeat: an insert conflicts with itself, a move checks the version it starts from.

The same check asks for the newest beacon this owner knows, and each write leaves a new one (`beacons.known`): in a
database that was set back nothing is written, and what an owner goes on from is not read.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from waybill.contracts.codes import RETRIED
from waybill.contracts.driver_errors import UNREVIEWED, database_code
from waybill.delivery.beacons.known import Beacons, RewoundError
from waybill.delivery.beacons.statements import KNOWS, OWNED, TAKE, sure_sql
from waybill.kernel.errors import FencedError, InvariantBroken, TransientError

__all__ = [
    "OWNED",
    "RESULT",
    "ROWS",
    "Feed",
    "Found",
    "Owned",
    "Published",
    "RowImage",
    "RowMove",
    "TaskStore",
    "Unpublished",
    "columns_of",
]

SCHEMA: Final = "delivery"

#: What every connection of the worker has, whatever its role was given.
SESSION_OPTIONS: Final = (
    "-c synchronous_commit=on -c statement_timeout=10s -c idle_in_transaction_session_timeout=3s -c lock_timeout=5s"
)

#: How a fenced write ends: one row that says whether it was ours, and what was written.
RESULT: Final = ") SELECT (SELECT count(*) FROM o), (SELECT array_agg(delivery_id::text) FROM w)"


def _fenced_sql(write: str) -> str:
    """Put a write that selects from `o` into one statement with the check of ownership."""
    return OWNED + write + RESULT


# New rows; a delivery that has one is left as it is. Selects from `o`.
ROWS: Final = """
    INSERT INTO delivery.open_task (
        tenant, destination, partition, delivery_id, command_id, aggregate, sequence, record_offset, state, version,
        attempt, throttled, next_due, expires_at, blocks, error_code, detail, sent, may_have_acted, record,
        pending_outcome, pending_state, pending_dead_letter, pending_envelope, created_at, updated_at)
    SELECT %(tenant)s, %(destination)s, %(partition)s, r.*, %(now)s, %(now)s
    FROM o, unnest(
        %(delivery_id)s::uuid[], %(command_id)s::uuid[], %(aggregate)s::text[], %(sequence)s::integer[],
        %(record_offset)s::bigint[], %(state)s::text[], %(version)s::integer[], %(attempt)s::integer[],
        %(throttled)s::integer[], %(next_due)s::timestamptz[], %(expires_at)s::timestamptz[], %(blocks)s::boolean[], %(error_code)s::text[],
        %(detail)s::text[], %(sent)s::boolean[], %(may_have_acted)s::boolean[], %(record)s::bytea[],
        %(pending_outcome)s::bytea[], %(pending_state)s::bytea[], %(pending_dead_letter)s::bytea[],
        %(pending_envelope)s::bytea[]) AS r
    ON CONFLICT (tenant, destination, delivery_id) DO NOTHING
    RETURNING delivery_id"""
INSERT: Final = _fenced_sql(ROWS)

# Moves of rows, each from the version before.
MOVE: Final = _fenced_sql("""
    UPDATE delivery.open_task AS t SET
        state = r.state, version = r.version, attempt = r.attempt, throttled = r.throttled, next_due = r.next_due, blocks = r.blocks,
        error_code = r.error_code, detail = r.detail, sent = r.sent, may_have_acted = r.may_have_acted,
        pending_outcome = r.pending_outcome, pending_state = r.pending_state,
        pending_dead_letter = r.pending_dead_letter, pending_envelope = r.pending_envelope, handed_to = NULL,
        updated_at = %(now)s
    FROM o, unnest(
        %(delivery_id)s::uuid[], %(state)s::text[], %(version)s::integer[], %(attempt)s::integer[],
        %(throttled)s::integer[], %(next_due)s::timestamptz[], %(blocks)s::boolean[], %(error_code)s::text[], %(detail)s::text[],
        %(sent)s::boolean[], %(may_have_acted)s::boolean[], %(pending_outcome)s::bytea[], %(pending_state)s::bytea[],
        %(pending_dead_letter)s::bytea[], %(pending_envelope)s::bytea[]
    ) AS r (delivery_id, state, version, attempt, throttled, next_due, blocks, error_code, detail, sent, may_have_acted,
        pending_outcome, pending_state, pending_dead_letter, pending_envelope)
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = r.delivery_id
      AND t.version = r.version - 1
    RETURNING t.delivery_id""")

# What Kafka now has, and where what was handed over lies.
PUBLISHED: Final = _fenced_sql("""
    UPDATE delivery.open_task AS t
    SET pending_outcome = NULL, pending_state = NULL, pending_dead_letter = NULL, pending_envelope = NULL,
        handed_to = CASE WHEN t.state = 'delivered' THEN r.handed_to END
    FROM o, unnest(%(delivery_id)s::uuid[], %(version)s::integer[], %(handed_to)s::bigint[])
        AS r (delivery_id, version, handed_to)
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = r.delivery_id
      AND t.version = r.version
    RETURNING t.delivery_id""")

# Rows by id, to tell our own repeated insert from another record's row.
FIND: Final = """
SELECT delivery_id::text, partition, record_offset, state, version, attempt FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = ANY(%(delivery_id)s::uuid[])
"""

KNOWN: Final = """
SELECT delivery_id FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
"""

LANES: Final = """
SELECT aggregate, count(*)::integer, (array_agg(next_due ORDER BY sequence, record_offset))[1] FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s AND blocks
GROUP BY aggregate
"""

UNPUBLISHED: Final = """
SELECT delivery_id::text, version, aggregate, pending_outcome, pending_state, pending_dead_letter, pending_envelope
FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND pending_outcome IS NOT NULL
ORDER BY updated_at, sequence
LIMIT %(limit)s
"""

# The next blocking rows of some aggregates, in the order of sequences.
FEED: Final = sure_sql(
    """
SELECT f.aggregate, f.delivery_id::text, f.sequence, f.record_offset, f.state, f.version, f.attempt, f.throttled, f.next_due,
       f.expires_at, f.sent, f.may_have_acted, f.record, f.detail, f.kind, f.handed_to
FROM unnest(%(aggregates)s::text[]) AS a (aggregate)
CROSS JOIN LATERAL (
    SELECT * FROM delivery.open_task t
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.partition = %(partition)s
      AND t.aggregate = a.aggregate AND t.blocks
    ORDER BY t.sequence, t.record_offset
    LIMIT %(limit)s
) AS f""",
    "r.aggregate, r.sequence, r.record_offset",
)

# Deliveries whose time is over although nobody works on them.
OVERDUE: Final = """
SELECT aggregate, delivery_id::text, sequence, record_offset, state, version, attempt, throttled, next_due,
       expires_at, sent, may_have_acted, record, detail, kind, handed_to
FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND blocks AND state IN ('queued', 'retrying') AND expires_at <= %(now)s AND aggregate = ANY(%(aggregates)s::text[])
ORDER BY expires_at
LIMIT %(limit)s
"""

# What nobody needs any more. Not fenced: what is closed is final, whoever owns its partition.
DROP_CLOSED: Final = (
    "SELECT delivery.drop_closed(%(tenant)s, %(destination)s, %(partition)s, %(before)s::timestamptz, %(limit)s)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A partition of a destination under one assignment."""

    tenant: str
    destination: str
    partition: int
    epoch: uuid.UUID
    beacons: Beacons = field(default_factory=Beacons, compare=False)

    def parameters(self) -> dict[str, Any]:
        """Return the query parameters that name it and what it knows."""
        return {
            "tenant": self.tenant,
            "destination": self.destination,
            "partition": self.partition,
            "epoch": self.epoch,
            "beacon": self.beacons.newest,
            "named": self.beacons.named,
            "committed": self.beacons.committed,
        }

    def fenced(self) -> FencedError:
        """Return the error of a statement that found that it is not ours."""
        place = f"{self.tenant}/{self.destination}[{self.partition}]"
        return FencedError(f"{place} has another owner, or its database was set back")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowImage:
    """A row to be written."""

    delivery_id: str
    command_id: str
    aggregate: str
    sequence: int
    record_offset: int
    state: str
    version: int
    attempt: int
    throttled: int
    next_due: datetime | None
    expires_at: datetime
    blocks: bool
    error_code: str | None
    detail: str | None
    sent: bool
    may_have_acted: bool
    record: bytes
    pending_outcome: bytes | None
    pending_state: bytes | None
    pending_dead_letter: bytes | None
    pending_envelope: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMove:
    """A row to be moved from the version before."""

    delivery_id: str
    state: str
    version: int
    attempt: int
    throttled: int
    next_due: datetime | None
    blocks: bool
    error_code: str | None
    detail: str | None
    sent: bool
    may_have_acted: bool
    pending_outcome: bytes
    pending_state: bytes
    pending_dead_letter: bytes | None
    pending_envelope: bytes | None = None


class Found(NamedTuple):
    """A row that was there already."""

    delivery_id: str
    partition: int
    record_offset: int
    state: str
    version: int
    attempt: int


class Feed(NamedTuple):
    """A row to work on."""

    aggregate: str
    delivery_id: str
    sequence: int
    record_offset: int
    state: str
    version: int
    attempt: int
    throttled: int
    next_due: datetime | None
    expires_at: datetime
    sent: bool
    may_have_acted: bool
    record: bytes
    detail: str | None
    #: `delivery`, or `resolution` of a gap.
    kind: str
    #: Where its hand-over lies, until its listeners are seen to have read past it.
    handed_to: int | None = None


class Unpublished(NamedTuple):
    """What Kafka does not have yet."""

    delivery_id: str
    version: int
    aggregate: str
    pending_outcome: bytes
    pending_state: bytes
    pending_dead_letter: bytes | None
    pending_envelope: bytes | None


#: Delivery, version, and the offset of its envelope if there was one.
Published: TypeAlias = tuple[str, int, int | None]
_IMAGE_COLUMNS: Final = tuple(field.name for field in fields(RowImage))
_MOVE_COLUMNS: Final = tuple(field.name for field in fields(RowMove))


class TaskStore:
    """The worker's database. Every method may raise TransientError: the same call is safe to repeat."""

    def __init__(self, dsn: str, *, size: int = 4) -> None:
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]] = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=size,
            open=False,
            timeout=5.0,
            reconnect_timeout=0,
            kwargs={
                "autocommit": True,
                "row_factory": tuple_row,
                "application_name": "waybill-worker",
                "connect_timeout": 5,
                "options": SESSION_OPTIONS,
            },
        )

    async def open(self) -> None:
        """Start connecting; does not wait for the database."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(2.0)

    async def knows(self, owned: Owned) -> None:
        """Make sure that the database has the beacon that the committed offset names.

        Raises:
            RewoundError: it was set back.
        """
        ((is_known, newest),) = await self._run(KNOWS, owned.parameters())
        if not is_known:
            raise RewoundError.of(owned.tenant, owned.destination, owned.partition, newest)

    async def take(self, owned: Owned, *, owner: str, now: datetime) -> None:
        """Make this assignment the owner; from here on no earlier epoch writes.

        Raises:
            RewoundError: the database lacks the beacon that the committed offset names; nothing was written.
        """
        ((is_known, newest),) = await self.write(TAKE, owned, {"owner": owner, "now": now})
        if not is_known:
            raise RewoundError.of(owned.tenant, owned.destination, owned.partition, newest)

    async def known(self, owned: Owned) -> list[uuid.UUID]:
        """Return the ids of all rows of a partition, closed ones too."""
        return [row[0] for row in await self._run(KNOWN, owned.parameters())]

    async def lanes(self, owned: Owned) -> list[tuple[str, int, datetime | None]]:
        """Return each aggregate that has blocking rows, how many, and when the first of them is due."""
        return [(row[0], row[1], row[2]) for row in await self._run(LANES, owned.parameters())]

    async def unpublished(self, owned: Owned, limit: int) -> list[Unpublished]:
        """Return what a former owner decided and Kafka may not have, oldest first."""
        return [Unpublished(*row) for row in await self._run(UNPUBLISHED, {**owned.parameters(), "limit": limit})]

    async def insert(self, owned: Owned, rows: Sequence[RowImage], now: datetime) -> dict[str, Found]:
        """Write rows in one transaction; return those deliveries that another record's row holds already.

        Raises:
            FencedError: the partition has another owner; nothing was written.
        """
        values = columns_of(rows, _IMAGE_COLUMNS)
        written = await self._fenced(INSERT, owned, {**values, "now": now})
        offsets: Mapping[str, int] = {row.delivery_id: row.record_offset for row in reversed(rows)}
        missing = [key for key in offsets if key not in written]
        found: dict[str, Found] = {}
        if missing or len(offsets) < len(rows):
            for item in await self.find(owned, list(offsets)):
                found[item.delivery_id] = item
        return found

    async def find(self, owned: Owned, delivery_ids: Sequence[str]) -> list[Found]:
        """Return the rows some deliveries have."""
        rows = await self._run(FIND, {**owned.parameters(), "delivery_id": list(delivery_ids)})
        return [Found(*row) for row in rows]

    async def move(self, owned: Owned, moves: Sequence[RowMove], now: datetime) -> None:
        """Move rows, each from the version before; a move that is there already is left.

        Raises:
            FencedError: the partition has another owner; nothing was written.
            InvariantBroken: a row is at another version than its only writer knows.
        """
        written = await self._fenced(MOVE, owned, {**columns_of(moves, _MOVE_COLUMNS), "now": now})
        missing = {move.delivery_id: move for move in moves if move.delivery_id not in written}
        if not missing:
            return
        for found in await self.find(owned, list(missing)):
            if found.version == missing[found.delivery_id].version:
                del missing[found.delivery_id]
        if missing:
            raise InvariantBroken(f"rows moved by somebody else: {', '.join(sorted(missing))}")

    async def published(self, owned: Owned, done: Sequence[Published]) -> None:
        """Note that Kafka has what was pending of (delivery, version), and at which offset what was handed over.

        Raises:
            FencedError: the partition has another owner, who will publish again what is the same.
        """
        names = ("delivery_id", "version", "handed_to")
        await self._fenced(PUBLISHED, owned, dict(zip(names, map(list, zip(*done, strict=True)), strict=True)))

    async def feed(self, owned: Owned, aggregates: Sequence[str], limit: int) -> list[Feed]:
        """Return up to `limit` next blocking rows of each aggregate, ordered by aggregate and sequence.

        Raises:
            FencedError: the database was set back: that it has no row means nothing.
        """
        return [Feed(*row) for row in await self.sure(FEED, owned, {"aggregates": list(aggregates), "limit": limit})]

    async def overdue(self, owned: Owned, aggregates: Sequence[str], now: datetime, limit: int) -> list[Feed]:
        """Return deliveries of some aggregates that expired where they stand."""
        values = {**owned.parameters(), "aggregates": list(aggregates), "now": now, "limit": limit}
        return [Feed(*row) for row in await self._run(OVERDUE, values)]

    async def fenced(self, query: str, owned: Owned, values: Mapping[str, Any]) -> set[str]:
        """Run one statement of another part of the worker that writes under the epoch; return what it wrote.

        Raises:
            FencedError: the partition has another owner; nothing was written.
        """
        return await self._fenced(query, owned, values)

    async def run(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement of another part of the worker and return its rows."""
        return await self._run(query, values)

    async def sure(self, query: str, owned: Owned, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a read made by `sure_sql` and return its rows.

        Raises:
            FencedError: the database was set back.
        """
        rows = await self._run(query, {**owned.parameters(), **values})
        if not rows[0][0]:
            raise owned.fenced()
        return [row[1:] for row in rows if row[1] is not None]

    async def write(self, query: str, owned: Owned, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement that leaves a beacon and return its rows; the first column is 0 where nothing was written."""
        beacons = owned.beacons
        async with beacons.turn:
            fresh = uuid.uuid4()
            rows = await self._run(query, {**owned.parameters(), "fresh": fresh, **values})
            if rows[0][0]:
                beacons.newest = fresh
        return rows

    async def drop_closed(self, owned: Owned, before: datetime, limit: int) -> int:
        """Drop up to `limit` of each kind of what only tells repeats and is older than an instant, oldest first.

        Kinds are closed rows, answered intents and decisions about superseding; returns the most that went of one.
        """
        rows = await self._run(DROP_CLOSED, {**owned.parameters(), "before": before, "limit": limit})
        return int(rows[0][0])

    async def _fenced(self, query: str, owned: Owned, values: Mapping[str, Any]) -> set[str]:
        ((owners, written),) = await self.write(query, owned, values)
        if owners == 0:
            raise owned.fenced()
        return set(written or ())

    async def _run(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(query.encode(), values)
                return await cursor.fetchall() if cursor.description else []
        except PoolTimeout as error:
            raise TransientError("the control database does not answer: PoolTimeout") from error
        except psycopg.Error as error:
            raise _told(error) from error


_OLDER: Final = (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)


def _told(error: psycopg.Error) -> Exception:
    """Return what a database error means to the worker; one that does not pass by itself ends the process."""
    if isinstance(error, _OLDER):
        return TransientError("the control database is older than this worker: run `waybill migrate`")
    is_misused = error.sqlstate is None and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    code = UNREVIEWED if is_misused else database_code(error.sqlstate)
    if code in RETRIED:
        return TransientError(f"the control database does not answer: {type(error).__name__}")
    return InvariantBroken(f"the control database refused a statement ({code}): {type(error).__name__}")


def columns_of(rows: Iterable[object], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return one array per column."""
    listed = list(rows)
    return {name: [getattr(row, name) for row in listed] for name in names}
