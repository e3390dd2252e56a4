"""Delivery records in the destination's own PostgreSQL, in a schema of their own.

The record is inserted first, in the transaction in which the handler runs, and completed with the receipt before
that transaction commits: record and business change are there together or not at all (GW-6). The insert is also the
lock between concurrent duplicates: the second one waits in the unique index until the first commits, and then finds
its receipt, or rolls back, and then executes itself.

Records are kept through the retention, which must not be shorter than the sender's retry horizon (GW-8), and never
purged before the command expired: a repeat after that is refused as expired, not executed again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect, identifier
from waybill.kernel.errors import InvariantBroken
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Identity, Stored

__all__ = ["PostgresStore"]

MIGRATIONS: Final = "waybill.listener.migrations"

#: How long a look waits for a delivery that may be under way.
_LOOK_LOCK_MS: Final = "200"

# Wait for a concurrent duplicate, not for ever: its sender gives up earlier.
SET_LOCK_TIMEOUT: Final = sql.SQL("SELECT set_config('lock_timeout', %s, true)")
CLAIM: Final = sql.SQL("""
    INSERT INTO {schema}.delivery (tenant, destination, delivery_id, operation_id, command_type, aggregate,
                                   body_digest, operation_digest, received_at, expires_at)
    VALUES (%(tenant)s, %(destination)s, %(delivery_id)s, %(operation_id)s, %(command_type)s, %(aggregate)s,
            %(body_digest)s, %(operation_digest)s, %(received_at)s, %(expires_at)s)
    ON CONFLICT DO NOTHING
""")
# The row of the delivery itself before one of the same operation.
FIND: Final = sql.SQL("""
    SELECT delivery_id, operation_id, body_digest, operation_digest, receipt
      FROM {schema}.delivery
     WHERE tenant = %(tenant)s AND destination = %(destination)s
       AND (delivery_id = %(delivery_id)s OR operation_id = %(operation_id)s)
     ORDER BY delivery_id = %(delivery_id)s DESC
     LIMIT 1
""")
COMPLETE: Final = sql.SQL("""
    UPDATE {schema}.delivery SET receipt = %(receipt)s, executed_at = %(executed_at)s
     WHERE tenant = %(tenant)s AND destination = %(destination)s AND delivery_id = %(delivery_id)s
""")
PURGE: Final = sql.SQL("""
    DELETE FROM {schema}.delivery
     WHERE received_at < %(before)s AND (expires_at IS NULL OR expires_at < %(now)s)
""")


class PostgresStore:
    """The delivery records and the connections handlers work on.

    Args:
        dsn: the destination's own database; the handler's business tables are there too.
        schema: where the records live; made and kept up to date when the store opens.
        dedup_retention: how long a repeat is recognised; at least the sender's retry horizon.
        max_connections: deliveries executed at the same time.
        lock_timeout: how long a concurrent duplicate waits for the first one.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "waybill_listener",
        dedup_retention: timedelta = timedelta(days=30),
        max_connections: int = 10,
        lock_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        self._dsn = dsn
        self._schema = identifier(schema)
        self._retention = dedup_retention
        self._max_connections = max_connections
        self._lock_timeout_ms = str(int(lock_timeout.total_seconds() * 1000))
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection] | None = None
        self._opening = asyncio.Lock()

    @property
    def schema(self) -> str:
        """Where the records live."""
        return self._schema

    async def open(self) -> None:
        """Bring the schema up to date and open the connections; does nothing when open.

        Raises:
            UnavailableError: the database does not answer.
            ConfigError: the connection string cannot be read, or the schema is newer than this code.
        """
        async with self._opening:
            if self._pool is None:
                await asyncio.to_thread(self._migrate)
                pool: AsyncConnectionPool[psycopg.AsyncConnection] = AsyncConnectionPool(
                    self._dsn,
                    min_size=1,
                    max_size=self._max_connections,
                    open=False,
                    timeout=self._POOL_TIMEOUT_S,
                    check=AsyncConnectionPool.check_connection,
                    kwargs={"application_name": "waybill-listener"},
                )
                await pool.open()
                self._pool = pool

    _POOL_TIMEOUT_S: Final = 10.0

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
        async with self.transaction() as transaction:
            await transaction.execute("SELECT 1")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Lend a connection inside a transaction: committed at the end, rolled back by an exception.

        Raises:
            psycopg.OperationalError: no connection, or the transaction could not be committed.
        """
        await self.open()
        assert self._pool is not None
        async with self._pool.connection() as connection, connection.transaction():
            yield connection

    async def claim(self, connection: psycopg.AsyncConnection, claim: Claim) -> Stored | None:
        """Record the delivery as being executed here, after waiting for a concurrent duplicate.

        Returns:
            None: it is ours to execute. Otherwise what was executed before.
        """
        if await self._insert(connection, claim, self._lock_timeout_ms):
            return None
        stored = await self.find(connection, claim)
        if stored is None:
            # The row that stopped us was purged in between: the sender tries again.
            raise psycopg.errors.SerializationFailure("the record of this delivery went away meanwhile")
        return stored

    async def look(self, claim: Claim) -> Stored | None:
        """Return what was executed under the delivery's id or operation; None when nothing was and nothing is.

        It claims as the delivery would, and takes that back: whoever executes it holds what the claim waits for.

        Raises:
            psycopg.errors.LockNotAvailable: it is being executed.
            psycopg.OperationalError: as `transaction`.
        """
        async with self.transaction() as connection, connection.transaction(force_rollback=True):
            return None if await self._insert(connection, claim, _LOOK_LOCK_MS) else await self.find(connection, claim)

    async def _insert(self, connection: psycopg.AsyncConnection, claim: Claim, lock_timeout_ms: str) -> bool:
        await connection.execute(SET_LOCK_TIMEOUT, (lock_timeout_ms,))
        identity = claim.identity
        cursor = await connection.execute(
            self._sql(CLAIM),
            {
                **_key(claim),
                "operation_id": identity.operation_id,
                "command_type": claim.command_type,
                "aggregate": claim.aggregate,
                "body_digest": identity.body_digest,
                "operation_digest": identity.operation_digest,
                "received_at": claim.received_at,
                "expires_at": claim.expires_at,
            },
        )
        return cursor.rowcount == 1

    async def find(self, connection: psycopg.AsyncConnection, claim: Claim) -> Stored | None:
        """Return what was executed under the delivery's id or operation, or None."""
        values = {**_key(claim), "operation_id": claim.identity.operation_id}
        row = await (await connection.execute(self._sql(FIND), values)).fetchone()
        if row is None:
            return None
        delivery_id, operation_id, body_digest, what, receipt = row
        if receipt is None:
            raise InvariantBroken(f"delivery {delivery_id} was recorded without a receipt")
        return Stored(
            identity=Identity(
                delivery_id=delivery_id,
                operation_id=operation_id,
                body_digest=bytes(body_digest),
                operation_digest=bytes(what),
            ),
            receipt=receipt.encode(),
        )

    async def complete(
        self, connection: psycopg.AsyncConnection, claim: Claim, receipt: bytes, executed_at: datetime
    ) -> None:
        """Give the claimed record its receipt."""
        values = {**_key(claim), "receipt": receipt.decode(), "executed_at": executed_at}
        cursor = await connection.execute(self._sql(COMPLETE), values)
        if cursor.rowcount != 1:
            raise InvariantBroken(f"the record of delivery {claim.identity.delivery_id} is gone before its receipt")

    async def purge(self, now: datetime) -> int:
        """Drop records behind the retention whose commands have expired; return how many."""
        async with self.transaction() as connection:
            cursor = await connection.execute(self._sql(PURGE), {"before": now - self._retention, "now": now})
            return cursor.rowcount

    def _sql(self, query: sql.SQL) -> sql.Composed:
        return query.format(schema=sql.Identifier(self._schema))


def _key(claim: Claim) -> dict[str, Any]:
    return {"tenant": claim.tenant, "destination": claim.destination, "delivery_id": claim.identity.delivery_id}
