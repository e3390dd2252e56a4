"""The caller's connection, whatever library it comes from: psycopg, SQLAlchemy or Django.

An adapter does three things and knows nothing of commands: says which placeholders its library writes, makes sure
there is a transaction to join, runs one statement. None begins, commits or rolls back: the transaction is the
caller's. Libraries are recognised by the package their classes come from, so that none is imported here.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from waybill.kernel.errors import ConfigError

__all__ = ["AsyncDoor", "Door", "open_async_door", "open_door"]

Rows = list[Sequence[Any]]


class Door(Protocol):
    """One connection as the outbox uses it."""

    #: How this library writes the parameters `tenant` and `commands`.
    placeholders: tuple[str, str]

    def check_transaction(self) -> None:
        """Refuse a connection that would commit the command by itself.

        Raises:
            ConfigError: it is in autocommit mode, with no transaction open.
        """
        ...

    def run(self, statement: str, tenant: str, commands: str) -> Rows:
        """Run one statement in the caller's transaction and return its rows."""
        ...


class AsyncDoor(Protocol):
    """The same for asyncio."""

    placeholders: tuple[str, str]

    async def check_transaction(self) -> None:
        """Refuse a connection that would commit the command by itself."""
        ...

    async def run(self, statement: str, tenant: str, commands: str) -> Rows:
        """Run one statement in the caller's transaction and return its rows."""
        ...


_NO_TRANSACTION = (
    "this connection is in autocommit mode: the command would commit by itself, apart from your change. "
    "Open a transaction around both ({how})"
)
_PERCENT = ("%s", "%s")
_COLON = (":tenant", ":commands")


def _refuse_autocommit(joined: bool, how: str) -> None:
    if not joined:
        raise ConfigError(_NO_TRANSACTION.format(how=how))


def _in_transaction(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> bool:
    return not connection.autocommit or connection.info.transaction_status is not TransactionStatus.IDLE


class _Psycopg:
    placeholders = _PERCENT

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def check_transaction(self) -> None:
        _refuse_autocommit(_in_transaction(self._connection), "with connection.transaction():")

    def run(self, statement: str, tenant: str, commands: str) -> Rows:
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return list(cursor.execute(statement.encode(), (tenant, commands)).fetchall())


class _AsyncPsycopg:
    placeholders = _PERCENT

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection

    async def check_transaction(self) -> None:
        _refuse_autocommit(_in_transaction(self._connection), "async with connection.transaction():")

    async def run(self, statement: str, tenant: str, commands: str) -> Rows:
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.encode(), (tenant, commands))
            return list(await cursor.fetchall())


class _Sqlalchemy:
    """A Session or a Connection; pending objects of a Session are flushed when it commits, as always."""

    placeholders = _COLON

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def check_transaction(self) -> None:
        connection = self._connection
        plain = connection.connection() if _is_a(connection, "Session", "scoped_session") else connection
        driver = plain.connection.driver_connection
        _refuse_autocommit(not getattr(driver, "autocommit", False), "an engine without AUTOCOMMIT, session.begin()")

    def run(self, statement: str, tenant: str, commands: str) -> Rows:
        from sqlalchemy import text

        found = self._connection.execute(text(statement), {"tenant": tenant, "commands": commands})
        return [tuple(row) for row in found]


class _AsyncSqlalchemy:
    placeholders = _COLON

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def check_transaction(self) -> None:
        connection = self._connection
        plain = (
            await connection.connection() if _is_a(connection, "AsyncSession", "async_scoped_session") else connection
        )
        driver = (await plain.get_raw_connection()).driver_connection
        _refuse_autocommit(not getattr(driver, "autocommit", False), "an engine without AUTOCOMMIT, session.begin()")

    async def run(self, statement: str, tenant: str, commands: str) -> Rows:
        from sqlalchemy import text

        found = await self._connection.execute(text(statement), {"tenant": tenant, "commands": commands})
        return [tuple(row) for row in found]


class _Django:
    """`django.db.connection` or one of `connections`; the work happens inside `transaction.atomic()`."""

    placeholders = _PERCENT

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def check_transaction(self) -> None:
        joined = self._connection.in_atomic_block or not self._connection.get_autocommit()
        _refuse_autocommit(joined, "with transaction.atomic():")

    def run(self, statement: str, tenant: str, commands: str) -> Rows:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, [tenant, commands])
            return list(cursor.fetchall())


def _packages(connection: object) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}


def _is_a(connection: object, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(connection).__mro__)


def open_door(connection: Any) -> Door:
    """Return the adapter of a synchronous connection.

    Raises:
        ConfigError: it is asynchronous, or from a library nobody wrote an adapter for.
    """
    if isinstance(connection, psycopg.Connection):
        return _Psycopg(connection)
    if isinstance(connection, psycopg.AsyncConnection) or _is_a(connection, "AsyncSession", "AsyncConnection"):
        raise ConfigError("this connection is asynchronous: use AsyncOutbox")
    packages = _packages(connection)
    if "sqlalchemy" in packages:
        return _Sqlalchemy(connection)
    if "django" in packages:
        # `django.db.connection` is a proxy for the thread's own connection
        return _Django(connection)
    raise ConfigError(f"{type(connection).__name__} is neither a psycopg, SQLAlchemy nor Django connection")


def open_async_door(connection: Any) -> AsyncDoor:
    """Return the adapter of an asynchronous connection.

    Raises:
        ConfigError: it is synchronous, or from a library nobody wrote an adapter for.
    """
    if isinstance(connection, psycopg.AsyncConnection):
        return _AsyncPsycopg(connection)
    if "sqlalchemy" in _packages(connection) and _is_a(
        connection, "AsyncSession", "AsyncConnection", "async_scoped_session"
    ):
        return _AsyncSqlalchemy(connection)
    raise ConfigError(
        f"{type(connection).__name__} is no asynchronous psycopg or SQLAlchemy connection; use Outbox for synchronous ones"
    )
