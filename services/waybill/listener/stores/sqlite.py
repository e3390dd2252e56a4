"""Delivery records in an SQLite file, beside the business data of a small destination.

One connection, one transaction at a time: SQLite has one writer anyway, so the write lock, taken before anything is
read, is also the lock between duplicates, in this process and in others. Written ahead (WAL) and synced with each
commit: what was acknowledged survives the power. Handlers cannot end the transaction: the connection refuses.
"""

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

from waybill.contracts.envelope import GapResolution, Resolution
from waybill.contracts.fabric import Profile
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import InvariantBroken, UnavailableError
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Identity, Pending, Stored
from waybill.listener.core.message import Received
from waybill.listener.core.sequencing import Told, advance
from waybill.listener.core.verification import Lane
from waybill.listener.stores.port import Effect, Found, Memory, StoreBusyError
from waybill.listener.stores.sqlite_baselines import BASELINE_SCHEMA, SqliteBaselines

__all__ = ["BlockingSqliteTransaction", "Rows", "SqliteStore", "SqliteTransaction"]

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS waybill_delivery (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, delivery_id TEXT NOT NULL, operation_id TEXT NOT NULL,
    command_type TEXT NOT NULL, aggregate TEXT NOT NULL, body_digest BLOB NOT NULL, operation_digest BLOB NOT NULL,
    received_at TEXT NOT NULL, expires_at TEXT, executed_at TEXT, receipt TEXT,
    PRIMARY KEY (tenant, destination, delivery_id), UNIQUE (tenant, destination, operation_id)
) STRICT;
CREATE INDEX IF NOT EXISTS waybill_delivery_received_at ON waybill_delivery (received_at);
CREATE TABLE IF NOT EXISTS waybill_lane (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, aggregate TEXT NOT NULL, last_sequence INTEGER NOT NULL,
    PRIMARY KEY (tenant, destination, aggregate)
) STRICT;
CREATE TABLE IF NOT EXISTS waybill_gap (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, aggregate TEXT NOT NULL, sequence INTEGER NOT NULL,
    delivery_id TEXT NOT NULL, resolution TEXT NOT NULL CHECK (resolution IN ('final', 'deferred')),
    PRIMARY KEY (tenant, destination, aggregate, sequence)
) STRICT;
"""
CLAIM: Final = """
    INSERT INTO waybill_delivery (tenant, destination, delivery_id, operation_id, command_type, aggregate,
                                  body_digest, operation_digest, received_at, expires_at)
    VALUES (:tenant, :destination, :delivery_id, :operation_id, :command_type, :aggregate,
            :body_digest, :operation_digest, :received_at, :expires_at)
    ON CONFLICT DO NOTHING
"""
# The row of the delivery itself before one of the same operation.
FIND: Final = """
    SELECT delivery_id, operation_id, body_digest, operation_digest, receipt
      FROM waybill_delivery
     WHERE tenant = :tenant AND destination = :destination
       AND (delivery_id = :delivery_id OR operation_id = :operation_id)
     ORDER BY delivery_id = :delivery_id DESC
     LIMIT 1
"""
COMPLETE: Final = """
    UPDATE waybill_delivery SET receipt = :receipt, executed_at = :executed_at
     WHERE tenant = :tenant AND destination = :destination AND delivery_id = :delivery_id
"""
TAKE_BACK: Final = """
    DELETE FROM waybill_delivery
     WHERE tenant = :tenant AND destination = :destination AND delivery_id = :delivery_id AND receipt IS NULL
"""
PURGE: Final = """
    DELETE FROM waybill_delivery
     WHERE received_at < :before AND (expires_at IS NULL OR expires_at < :now) AND receipt IS NOT NULL
"""
_LANE: Final = "WHERE tenant = :tenant AND destination = :destination AND aggregate = :aggregate"
REACHED: Final = f"SELECT last_sequence FROM waybill_lane {_LANE}"  # noqa: S608 - constants
TOLD: Final = f"SELECT sequence, delivery_id, resolution FROM waybill_gap {_LANE}"  # noqa: S608 - constants
REACH: Final = """
    INSERT INTO waybill_lane (tenant, destination, aggregate, last_sequence)
    VALUES (:tenant, :destination, :aggregate, :last)
    ON CONFLICT (tenant, destination, aggregate) DO UPDATE SET last_sequence = excluded.last_sequence
"""
# What was told final stays final.
TELL: Final = """
    INSERT INTO waybill_gap (tenant, destination, aggregate, sequence, delivery_id, resolution)
    VALUES (:tenant, :destination, :aggregate, :sequence, :told_id, :resolution)
    ON CONFLICT (tenant, destination, aggregate, sequence) DO UPDATE SET resolution = excluded.resolution
     WHERE resolution = 'deferred' AND delivery_id = excluded.delivery_id
"""
# Passed for good: never coming, or executed just now.
PASSED: Final = f"""
    DELETE FROM waybill_gap {_LANE} AND sequence <= :last AND (resolution = 'final' OR sequence = :done)
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The result of one statement."""

    rows: tuple[tuple[Any, ...], ...]
    #: Rows affected, or -1 for a query.
    rowcount: int

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def fetchall(self) -> tuple[tuple[Any, ...], ...]:
        """Return all rows."""
        return self.rows


class BlockingSqliteTransaction:
    """The open transaction as a handler without `async` sees it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_over = False

    def execute(self, query: str, values: Values = ()) -> Rows:
        """Run one statement in the delivery's transaction."""
        if self._is_over:
            raise InvariantBroken("the delivery of this handler is over: its transaction takes no more statements")
        cursor = self._connection.execute(query, values)
        return Rows(rows=tuple(cursor.fetchall()), rowcount=cursor.rowcount)

    def end(self) -> None:
        """Called when the delivery is over."""
        self._is_over = True


class SqliteTransaction:
    """The open transaction as an `async` handler sees it."""

    def __init__(self, blocking: BlockingSqliteTransaction) -> None:
        self._blocking = blocking

    async def execute(self, query: str, values: Values = ()) -> Rows:
        """Run one statement in the delivery's transaction."""
        return await asyncio.to_thread(self._blocking.execute, query, values)


class SqliteWork:
    """One transaction on the one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def claim(self, claim: Claim) -> Found:
        """Record the delivery; whoever executed it before us has committed, since the write lock is ours."""
        identity = claim.identity
        values = {
            **_key(claim),
            "command_type": claim.command_type,
            "aggregate": claim.aggregate,
            "body_digest": identity.body_digest,
            "operation_digest": identity.operation_digest,
            "received_at": format_instant(claim.received_at),
            "expires_at": format_instant(claim.expires_at) if claim.expires_at is not None else None,
        }
        if await self._count(CLAIM, values) == 1:
            return None
        return await self.find(claim)

    async def find(self, claim: Claim) -> Found:
        """Return what is recorded under the delivery's id or operation."""
        rows = await self._rows(FIND, _key(claim))
        if not rows:
            return None
        delivery_id, operation_id, body_digest, operation_digest, receipt = rows[0]
        identity = Identity(
            delivery_id=UUID(delivery_id),
            operation_id=operation_id,
            body_digest=body_digest,
            operation_digest=operation_digest,
        )
        return Pending(identity=identity) if receipt is None else Stored(identity=identity, receipt=receipt.encode())

    async def resume(self, claim: Claim) -> Stored | Pending:
        """Say what became of a pending delivery; the write lock is ours until the transaction ends."""
        found = await self.find(claim)
        if found is None:
            raise StoreBusyError("the record of this delivery was taken back meanwhile")
        return found

    async def complete(self, claim: Claim, receipt: bytes, executed_at: datetime) -> None:
        """Give the claimed record its receipt."""
        values = {**_key(claim), "receipt": receipt.decode(), "executed_at": format_instant(executed_at)}
        if await self._count(COMPLETE, values) != 1:
            raise InvariantBroken(f"the record of delivery {claim.identity.delivery_id} is gone before its receipt")

    async def forget(self, claim: Claim) -> None:
        """Take a pending record back."""
        await self._count(TAKE_BACK, _key(claim))

    async def lane(self, claim: Claim) -> Lane:
        """Say how far the claim's aggregate has come."""
        reached = await self._rows(REACHED, _key(claim))
        rows = await self._rows(TOLD, _key(claim))
        told = {number: Told(delivery_id=UUID(found), resolution=Resolution(word)) for number, found, word in rows}
        return Lane(last=reached[0][0] if reached else 0, told=told)

    async def take_turn(self, claim: Claim, lane: Lane, sequence: int) -> None:
        """Take a delivery's turn; it counts when the transaction commits."""
        await self._reach(claim, advance(max(lane.last, sequence), lane.told), done=sequence)

    async def note(self, claim: Claim, gap: GapResolution) -> None:
        """Remember what a gap resolution says, and pass over it where its turn has come."""
        for entry in gap.entries:
            told = {"told_id": str(entry.delivery_id), "resolution": entry.resolution.value}
            await self._count(TELL, {**_key(claim), "sequence": entry.sequence, **told})
        lane = await self.lane(claim)
        await self._reach(claim, advance(lane.last, lane.told), done=None)

    async def baselines(self) -> SqliteBaselines:
        """Return the baselines of this transaction."""
        return SqliteBaselines(self._connection)

    async def _reach(self, claim: Claim, last: int, done: int | None) -> None:
        await self._count(REACH, {**_key(claim), "last": last})
        await self._count(PASSED, {**_key(claim), "last": last, "done": done})

    async def call(self, function: Callable[[Received, Any], Any], command: Received) -> Any:
        """Call a handler with the transaction, which it cannot end."""
        transaction = BlockingSqliteTransaction(self._connection)
        self._connection.set_authorizer(_deny_ending)
        try:
            if inspect.iscoroutinefunction(function):
                return await function(command, SqliteTransaction(transaction))
            return await asyncio.to_thread(function, command, transaction)
        finally:
            transaction.end()
            self._connection.set_authorizer(None)

    async def _count(self, query: str, values: Mapping[str, Any]) -> int:
        return await asyncio.to_thread(lambda: self._connection.execute(query, values).rowcount)

    async def _rows(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(lambda: self._connection.execute(query, values).fetchall())


class SqliteStore:
    """The delivery records and the one connection handlers work on.

    Args:
        path: the file; the handler's business tables are in it too.
        dedup_retention: how long a repeat is recognised; at least the sender's retry horizon.
        lock_timeout: how long a delivery waits for the ones before it.
        effect: `elsewhere` when what handlers do does not become durable in this file.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        dedup_retention: timedelta = timedelta(days=30),
        lock_timeout: timedelta = timedelta(seconds=10),
        effect: Effect = Effect.INSIDE,
    ) -> None:
        self._path = Path(path)
        self._retention = dedup_retention
        self._lock_timeout_s = lock_timeout.total_seconds()
        self._effect = effect
        self._connection: sqlite3.Connection | None = None
        self._turn = asyncio.Lock()

    @property
    def memory(self) -> Memory:
        """Durable: every repeat within the retention is recognised."""
        return Memory(
            profile=Profile.DURABLE_IDEMPOTENT, retention=self._retention, effect=self._effect, has_lanes=True
        )

    async def open(self) -> None:
        """Open the file and make the tables; does nothing when open.

        Raises:
            UnavailableError: it cannot be opened.
        """
        if self._connection is None:
            async with self._turn:
                if self._connection is None:
                    self._connection = await asyncio.to_thread(self._connect)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self._path, timeout=self._lock_timeout_s, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(SCHEMA + BASELINE_SCHEMA)
        except sqlite3.Error as error:
            raise UnavailableError(f"{self._path} cannot be opened as an SQLite database: {error}") from error
        return connection

    async def close(self) -> None:
        """Close the file."""
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                await asyncio.to_thread(connection.close)

    async def ping(self) -> None:
        """Read something."""
        async with self.transaction():
            pass

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteWork]:
        """Take the write lock; committed at the end, rolled back by an exception.

        Raises:
            StoreBusyError: others held it too long.
            sqlite3.OperationalError: the file cannot be read or written.
        """
        await self.open()
        try:
            await asyncio.wait_for(self._turn.acquire(), self._lock_timeout_s)
        except TimeoutError as error:
            raise StoreBusyError("deliveries before this one hold the file") from error
        try:
            connection = self._connection
            if connection is None:
                raise StoreBusyError("the store was closed")
            await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
            try:
                yield SqliteWork(connection)
                await asyncio.to_thread(connection.execute, "COMMIT")
            finally:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
        finally:
            self._turn.release()

    async def look(self, claim: Claim) -> Found:
        """Return what was executed; what was being executed has ended when the lock is ours."""
        async with self.transaction() as work:
            return await work.find(claim)

    async def purge(self, now: datetime) -> int:
        """Drop records behind the retention whose commands have expired; return how many. What is pending stays."""
        values = {"before": format_instant(now - self._retention), "now": format_instant(now)}
        async with self.transaction():
            assert self._connection is not None
            return self._connection.execute(PURGE, values).rowcount

    def is_unavailable(self, error: Exception) -> bool:
        """Whether the file was locked, full or gone; a statement that is wrong is the handler's fault."""
        if isinstance(error, sqlite3.OperationalError):
            return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR
        return isinstance(error, StoreBusyError)


def _deny_ending(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def _key(claim: Claim) -> dict[str, Any]:
    return {
        "tenant": claim.tenant,
        "destination": claim.destination,
        "delivery_id": str(claim.identity.delivery_id),
        "operation_id": claim.identity.operation_id,
        "aggregate": claim.aggregate,
    }
