"""Recognising connections and refusing autocommit, with stand-ins named like the real classes."""

from typing import Any

import pytest

from waybill.kernel.errors import ConfigError
from waybill.outbox.adapters import open_async_door, open_door


class _Driver:
    def __init__(self, autocommit: bool) -> None:
        self.autocommit = autocommit


class _Raw:
    def __init__(self, driver: _Driver) -> None:
        self.driver_connection = driver


def _of_sqlalchemy(name: str, **members: Any) -> Any:
    """Return an instance of a class that looks as if it came from SQLAlchemy."""
    return type(name, (), {"__module__": "sqlalchemy.ext.asyncio.session", **members})()


def _async_connection(autocommit: bool) -> Any:
    async def get_raw_connection(self: Any) -> _Raw:
        return _Raw(_Driver(autocommit))

    async def execute(self: Any, statement: Any, parameters: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
        return [(str(statement), parameters)]

    return _of_sqlalchemy("AsyncConnection", get_raw_connection=get_raw_connection, execute=execute)


def _async_session(autocommit: bool) -> Any:
    async def connection(self: Any) -> Any:
        return _async_connection(autocommit)

    return _of_sqlalchemy("AsyncSession", connection=connection)


@pytest.mark.parametrize("make", [_async_connection, _async_session])
async def test_asynchronous_sqlalchemy_in_autocommit_is_refused(make: Any):
    await open_async_door(make(autocommit=False)).check_transaction()
    with pytest.raises(ConfigError, match="autocommit"):
        await open_async_door(make(autocommit=True)).check_transaction()


async def test_asynchronous_sqlalchemy_runs_the_statement_with_named_parameters():
    door = open_async_door(_async_connection(autocommit=False))

    rows = await door.run("SELECT :tenant, :commands", "acme", "[]")

    assert rows == [("SELECT :tenant, :commands", {"tenant": "acme", "commands": "[]"})]


def test_an_asynchronous_session_is_sent_to_the_asynchronous_outbox():
    with pytest.raises(ConfigError, match="AsyncOutbox"):
        open_door(_async_session(autocommit=False))


def test_a_connection_nobody_knows_is_named():
    with pytest.raises(ConfigError, match="object"):
        open_door(object())
    with pytest.raises(ConfigError, match="object"):
        open_async_door(object())
