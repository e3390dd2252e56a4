"""The door to PostgreSQL: connections that say where they could not go, and names that are safe to write into SQL.

Invariants: a message never shows a password or a whole connection string; every connection carries an
`application_name`, so that `pg_stat_activity` says which part holds a lock; a schema or role name reaches SQL
text only through `identifier`, because migrations and functions name their schema in plain text and a name that
needed quoting would be two names.
"""

import re
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["connect", "connect_async", "identifier", "where"]

#: What PostgreSQL folds to itself: no quoting, no surprise. 40 characters leave room for what we append.
IDENTIFIER: Final = re.compile(r"^[a-z_][a-z0-9_]{0,39}$")
CONNECT_TIMEOUT_S: Final = 10


def identifier(name: str, *, what: str = "schema") -> str:
    """Return a schema or role name that may be written into SQL unquoted.

    Raises:
        ConfigError: it is not lower case letters, digits and `_`, at most 40 long, or begins with `pg_`.
    """
    if not IDENTIFIER.match(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{name!r} cannot be used as a {what} name: lower case letters, digits and _, at most 40, not pg_…"
        )
    return name


def where(dsn: str) -> str:
    """Describe a connection string without its secrets: `app on 127.0.0.1:5432 as waybill_app`.

    Raises:
        ConfigError: it is not a libpq URI or keyword string.
    """
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            "the connection string cannot be read: use postgresql://user:password@host:port/database"
        ) from error
    host, port = parts.get("host") or "the local socket", parts.get("port") or 5432
    return f"{parts.get('dbname') or 'the default database'} on {host}:{port} as {parts.get('user') or 'this user'}"


def _settings(dsn: str, application_name: str) -> tuple[str, dict[str, Any]]:
    given = conninfo_to_dict(dsn)
    settings: dict[str, Any] = {}
    if "connect_timeout" not in given:
        settings["connect_timeout"] = CONNECT_TIMEOUT_S
    if "application_name" not in given:
        settings["application_name"] = application_name
    return dsn, settings


def connect(dsn: str, *, application_name: str = "waybill", autocommit: bool = False) -> psycopg.Connection:
    """Open a connection; the caller closes it (it is a context manager).

    Raises:
        ConfigError: the connection string cannot be read.
        UnavailableError: nobody answers there, or it refuses us.
    """
    place = where(dsn)
    target, settings = _settings(dsn, application_name)
    try:
        return psycopg.connect(target, autocommit=autocommit, **settings)
    except psycopg.OperationalError as error:
        raise UnavailableError(_refused(place, error)) from error


async def connect_async(
    dsn: str, *, application_name: str = "waybill", autocommit: bool = False
) -> psycopg.AsyncConnection:
    """Open a connection for asyncio; otherwise as `connect`."""
    place = where(dsn)
    target, settings = _settings(dsn, application_name)
    try:
        return await psycopg.AsyncConnection.connect(target, autocommit=autocommit, **settings)
    except psycopg.OperationalError as error:
        raise UnavailableError(_refused(place, error)) from error


def _refused(place: str, error: psycopg.OperationalError) -> str:
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
    return f"cannot connect to {place}: {reason}. Is it running, and may this user log in from here?"
