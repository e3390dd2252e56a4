"""The open transaction as a handler without `async` sees it.

The handler runs in a thread of its own; every call is carried to the event loop that owns the connection and waits
there. When the delivery is over, for whatever reason, the object is dead: a thread that outlived its request cannot
write into the next one's transaction.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, LiteralString, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import Params

from waybill.kernel.errors import InvariantBroken

__all__ = ["BlockingCursor", "BlockingTransaction"]

T = TypeVar("T")
#: As psycopg: text that is no literal must be composed, so that no value slips into it.
Query: TypeAlias = LiteralString | bytes | sql.SQL | sql.Composed


class BlockingTransaction:
    """`execute` as psycopg's connection has it, from a thread."""

    def __init__(self, connection: psycopg.AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._is_over = False

    def execute(self, query: Query, params: Params | None = None) -> "BlockingCursor":
        """Run one statement in the delivery's transaction and return its cursor."""
        return BlockingCursor(self, self.wait_for(self._execute(query, params)))

    async def _execute(self, query: Query, params: Params | None) -> psycopg.AsyncCursor:
        if self._is_over:
            raise InvariantBroken("the delivery of this handler is over: its transaction takes no more statements")
        return await self._connection.execute(query, params)

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the connection's loop, wait here."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def end(self) -> None:
        """Called on the loop when the delivery is over."""
        self._is_over = True


class BlockingCursor:
    """The result of one statement."""

    def __init__(self, transaction: BlockingTransaction, cursor: psycopg.AsyncCursor) -> None:
        self._transaction = transaction
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """Rows affected or returned."""
        return self._cursor.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._transaction.wait_for(self._cursor.fetchone())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self._transaction.wait_for(self._cursor.fetchall())
