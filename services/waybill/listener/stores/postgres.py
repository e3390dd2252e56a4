"""Delivery records in the destination's own PostgreSQL, in a schema of their own.

The record is inserted first, in the transaction in which the handler runs, and completed with the receipt before
that transaction commits: record and business change are there together or not at all (GW-6). The insert is also the
lock between concurrent duplicates: the second one waits in the unique index until the first commits, and then finds
its receipt, or rolls back, and then executes itself.

Where the effect is elsewhere, the insert commits alone and leaves a record without a receipt; executing locks that row,
and the lock dies with its connection, so a crashed process keeps nobody out.

Records are kept through the retention, which must not be shorter than the sender's retry horizon (GW-8), and never
purged before the command expired: a repeat after that is refused as expired, not executed again.
"""

import asyncio
import inspect
import select
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from waybill.contracts.envelope import GapResolution
from waybill.contracts.fabric import Profile
from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect, identifier
from waybill.kernel.errors import InvariantBroken
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Identity, Pending, Stored
from waybill.listener.core.message import Received
from waybill.listener.core.verification import Lane
from waybill.listener.stores.port import Effect, Found, Memory, StoreBusyError, UnderWayError
from waybill.listener.stores.postgres_baselines import PostgresBaselines
from waybill.listener.stores.postgres_lanes import PostgresLanes
from waybill.listener.stores.postgres_trips import BEGIN, COMMIT, Results, Statement, TripConnection, instant
from waybill.listener.transaction import BlockingTransaction

__all__ = ["PostgresStore"]

MIGRATIONS: Final = "waybill.listener.migrations"

#: How long a look waits for a delivery that may be under way.
_LOOK_LOCK_MS: Final = "200"

# Waits for a concurrent duplicate.
CLAIM: Final = sql.SQL("SELECT {schema}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
# The row of the delivery itself before one of the same operation. Two looks, each into its own index.
FIND: Final = sql.SQL("""
    SELECT delivery_id, operation_id, body_digest, operation_digest, receipt
      FROM (SELECT * FROM {schema}.delivery
             WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = %(delivery_id)s
             UNION ALL
            SELECT * FROM {schema}.delivery
             WHERE operation_id = %(operation_id)s
               AND tenant || '/' || destination = %(tenant)s || '/' || %(destination)s) AS known
     ORDER BY delivery_id = %(delivery_id)s DESC
     LIMIT 1
""")
SET_LOCK_TIMEOUT: Final = sql.SQL("SELECT set_config('lock_timeout', %s, %s)")
# The lock of a pending delivery.
RESUME: Final = sql.SQL("""
    SELECT delivery_id, operation_id, body_digest, operation_digest, receipt
      FROM {schema}.delivery
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = %(delivery_id)s
       FOR UPDATE
""")
FORGET: Final = sql.SQL("""
    DELETE FROM {schema}.delivery
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = %(delivery_id)s
       AND receipt IS NULL
""")
# Fails where there is no such record.
COMPLETE: Final = sql.SQL("SELECT {schema}.complete($1, $2, $3, $4, $5)")
PURGE: Final = sql.SQL("""
    DELETE FROM {schema}.delivery
     WHERE received_at < %(before)s AND (expires_at IS NULL OR expires_at < %(now)s) AND receipt IS NOT NULL
""")


class PostgresWork:
    """One transaction on one connection: begun with the first statement, ended by `end`."""

    def __init__(self, connection: TripConnection, texts: "_Texts", *, is_begun: bool = False) -> None:
        self._connection = connection
        self._texts = texts
        self._lanes = PostgresLanes(connection, texts.schema)
        self._baselines = PostgresBaselines(connection, texts.schema)
        #: Travels with what comes next.
        self._waiting: list[Statement] = [] if is_begun else [BEGIN]

    async def claim(self, claim: Claim) -> Found:
        """Record the delivery as being executed here, after waiting for a concurrent duplicate."""
        if await self.insert(claim):
            return None
        found = await self.find(claim)
        if found is None:
            raise StoreBusyError("the record that stopped this delivery went away meanwhile")
        return found

    async def insert(self, claim: Claim) -> bool:
        """Insert the record; False when there is one of the same delivery or operation."""
        results = await self._trip(Statement(self._texts.claim, _values(claim)))
        return results[-1].get_value(0, 0) == b"t"

    async def find(self, claim: Claim) -> Found:
        """Return what is recorded under the delivery's id or operation."""
        await self._trip()
        values = {**_key(claim), "operation_id": claim.identity.operation_id}
        row = await (await self._connection.execute(self._sql(FIND), values)).fetchone()
        return None if row is None else _found(row)

    async def resume(self, claim: Claim) -> Stored | Pending:
        """Lock the record of a pending delivery; it may have been completed while we waited."""
        await self._trip()
        row = await (await self._connection.execute(self._sql(RESUME), _key(claim))).fetchone()
        if row is None:
            raise StoreBusyError("the record of this delivery was taken back meanwhile")
        return _found(row)

    async def complete(self, claim: Claim, receipt: bytes, executed_at: datetime) -> None:
        """Give the claimed record its receipt; it is on its way with what comes next."""
        values = (*_key_values(claim), receipt, instant(executed_at))
        self._waiting.append(Statement(self._texts.complete, values))

    async def forget(self, claim: Claim) -> None:
        """Take a pending record back."""
        await self._trip()
        await self._connection.execute(self._sql(FORGET), _key(claim))

    async def lane(self, claim: Claim) -> Lane:
        """Lock the lane of the claim's aggregate and say how far it has come."""
        await self._trip()
        return await self._lanes.read(claim)

    async def take_turn(self, claim: Claim, lane: Lane, sequence: int) -> None:
        """Take a delivery's turn in a lane that was read."""
        await self._trip()
        await self._lanes.take_turn(claim, lane, sequence)

    async def note(self, claim: Claim, gap: GapResolution) -> None:
        """Remember what a gap resolution says."""
        await self._trip()
        await self._lanes.note(claim, gap)

    async def baselines(self) -> PostgresBaselines:
        """Return the baselines of this transaction, which has begun."""
        await self._trip()
        return self._baselines

    async def call(self, function: Callable[[Received, Any], Any], command: Received) -> Any:
        """Call a handler with the connection, or in a thread with a `BlockingTransaction`."""
        await self._trip()
        if inspect.iscoroutinefunction(function):
            return await function(command, self._connection)
        transaction = BlockingTransaction(self._connection, asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(function, command, transaction)
        finally:
            transaction.end()

    async def commit(self) -> None:
        """Make it durable, the receipt with it.

        Raises:
            InvariantBroken: the record is gone before its receipt; nothing is committed.
            psycopg.Error: it was not committed, or nobody knows.
        """
        try:
            await self._trip(COMMIT)
        except psycopg.errors.NoDataFound as error:
            raise InvariantBroken("the record of a delivery is gone before its receipt") from error

    async def _trip(self, *statements: Statement) -> Results:
        """Send what waits and then the statements; nothing when there is neither."""
        sent, self._waiting = (*self._waiting, *statements), []
        return await self._connection.trip(*sent) if sent else []

    def _sql(self, query: sql.SQL) -> sql.Composed:
        return query.format(schema=sql.Identifier(self._texts.schema))


class _Texts:
    """What each delivery needs, written once for a schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        named = sql.Identifier(schema)
        self.claim = CLAIM.format(schema=named).as_string().encode()
        self.complete = COMPLETE.format(schema=named).as_string().encode()


class PostgresStore:
    """The delivery records and the connections handlers work on.

    Args:
        dsn: the destination's own database; the handler's business tables are there too.
        schema: where the records live; made and kept up to date when the store opens.
        dedup_retention: how long a repeat is recognised; at least the sender's retry horizon.
        max_connections: deliveries executed at the same time.
        lock_timeout: how long a concurrent duplicate waits for the first one.
        effect: `elsewhere` when what handlers do does not become durable in this database.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "waybill_listener",
        dedup_retention: timedelta = timedelta(days=30),
        max_connections: int = 10,
        lock_timeout: timedelta = timedelta(seconds=10),
        effect: Effect = Effect.INSIDE,
    ) -> None:
        self._dsn = dsn
        self._schema = identifier(schema)
        self._texts = _Texts(schema)
        self._retention = dedup_retention
        self._max_connections = max_connections
        self._lock_timeout_ms = str(int(lock_timeout.total_seconds() * 1000))
        self._effect = effect
        self._pool: AsyncConnectionPool[TripConnection] | None = None
        self._opening = asyncio.Lock()

    @property
    def memory(self) -> Memory:
        """Durable: every repeat within the retention is recognised."""
        return Memory(
            profile=Profile.DURABLE_IDEMPOTENT, retention=self._retention, effect=self._effect, has_lanes=True
        )

    async def open(self) -> None:
        """Bring the schema up to date and open the connections; does nothing when open.

        Raises:
            UnavailableError: the database does not answer.
            ConfigError: the connection string cannot be read, or the schema is newer than this code.
        """
        async with self._opening:
            if self._pool is None:
                await asyncio.to_thread(self._migrate)
                pool = AsyncConnectionPool(
                    self._dsn,
                    connection_class=TripConnection,
                    min_size=1,
                    max_size=self._max_connections,
                    open=False,
                    timeout=self._POOL_TIMEOUT_S,
                    check=_check,
                    configure=self._bound,
                    kwargs={"application_name": "waybill-listener", "autocommit": True, "client_encoding": "UTF8"},
                )
                await pool.open()
                self._pool = pool

    _POOL_TIMEOUT_S: Final = 10.0

    async def _bound(self, connection: TripConnection) -> None:
        """Let no statement of a connection wait for ever for a lock: whoever sends gives up earlier."""
        await connection.execute(SET_LOCK_TIMEOUT, (self._lock_timeout_ms, False))

    def _migrate(self) -> None:
        with connect(self._dsn, application_name="waybill-listener-migrate") as connection:
            migrate(connection, schema=self._schema, package=MIGRATIONS)

    async def close(self) -> None:
        """Close the connections; what is under way was finished by the server before."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def ping(self) -> None:
        """Ask the database for a sign of life; raises as `transaction` does."""
        async with self._lend() as connection:
            await connection.execute("SELECT 1")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresWork]:
        """Open a transaction on a connection of its own.

        Raises:
            psycopg.OperationalError: no connection, or the transaction could not be committed.
        """
        async with self._lend() as connection:
            connection.is_lent, work = True, PostgresWork(connection, self._texts)
            try:
                yield work
                await work.commit()
            except BaseException:
                await connection.undo()
                raise
            finally:
                connection.is_lent = False

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[TripConnection]:
        await self.open()
        assert self._pool is not None
        connection = await self._pool.getconn()
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)

    async def look(self, claim: Claim) -> Found:
        """Return what was executed under the delivery's id or operation; None when nothing was and nothing is.

        It claims as the delivery would, and takes that back: whoever executes it holds what the claim waits for.

        Raises:
            UnderWayError: it is being executed.
            psycopg.OperationalError: no connection.
        """
        try:
            async with self._lend() as connection, connection.transaction(force_rollback=True):
                await connection.execute(SET_LOCK_TIMEOUT, (_LOOK_LOCK_MS, True))
                work = PostgresWork(connection, self._texts, is_begun=True)
                return None if await work.insert(claim) else await work.find(claim)
        except psycopg.errors.LockNotAvailable as error:
            raise UnderWayError from error

    async def purge(self, now: datetime) -> int:
        """Drop records behind the retention whose commands have expired; return how many. What is pending stays."""
        async with self._lend() as connection:
            query = PURGE.format(schema=sql.Identifier(self._schema))
            return (await connection.execute(query, {"before": now - self._retention, "now": now})).rowcount

    def is_unavailable(self, error: Exception) -> bool:
        """Whether the database could not serve, or not in time."""
        return isinstance(error, psycopg.OperationalError | StoreBusyError)


async def _check(connection: psycopg.AsyncConnection) -> None:
    """Ask a connection only when something came on it while nobody used it: the server may have closed it."""
    came = select.poll()
    came.register(connection.fileno(), select.POLLIN)
    if came.poll(0):
        await AsyncConnectionPool.check_connection(connection)


def _found(row: tuple[Any, ...]) -> Stored | Pending:
    delivery_id, operation_id, body_digest, operation_digest, receipt = row
    identity = Identity(
        delivery_id=delivery_id,
        operation_id=operation_id,
        body_digest=bytes(body_digest),
        operation_digest=bytes(operation_digest),
    )
    return Pending(identity=identity) if receipt is None else Stored(identity=identity, receipt=receipt.encode())


def _key(claim: Claim) -> dict[str, Any]:
    return {"tenant": claim.tenant, "destination": claim.destination, "delivery_id": claim.identity.delivery_id}


def _key_values(claim: Claim) -> tuple[bytes, bytes, bytes]:
    return claim.tenant.encode(), claim.destination.encode(), claim.identity.delivery_id.bytes


def _values(claim: Claim) -> tuple[bytes | None, ...]:
    identity = claim.identity
    return (
        *_key_values(claim),
        identity.operation_id.encode(),
        claim.command_type.encode(),
        claim.aggregate.encode(),
        identity.body_digest,
        identity.operation_digest,
        instant(claim.received_at),
        None if claim.expires_at is None else instant(claim.expires_at),
    )
