"""Numbered SQL migrations, one folder and one database schema per component.

A migration is a file `NNNN_name.sql` beside its component, applied once, in order, and recorded with its digest in
`<schema>.migration`. Placeholders like `{schema}` are replaced as text, which is why every value must be a plain
identifier. `script` prints exactly what `migrate` runs, so that a team with Flyway, Alembic or Django applies the
same bytes and a later `migrate` finds them applied.

Invariants: one transaction for everything that is pending, under an advisory lock, so that two deployments at once
end with one schema and never half of one; an applied file never changes (a different digest is refused, because a
database that ran other text than the one on disk cannot be reasoned about).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

import psycopg
from psycopg import sql

from waybill.infra.postgres import identifier
from waybill.kernel.errors import ConfigError, InvariantBroken

__all__ = ["Migration", "applied", "load", "migrate", "script"]

FILE_NAME: Final = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")

PREAMBLE: Final = """\
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered file, as text with its placeholders still in it."""

    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text before placeholders are replaced, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def load(package: str) -> tuple[Migration, ...]:
    """Read the migrations that lie in a package, in order.

    Raises:
        InvariantBroken: a file is misnamed or the numbers are not 1, 2, 3, …
    """
    found = []
    for entry in resources.files(package).iterdir():
        if not entry.name.endswith(".sql"):
            continue
        match = FILE_NAME.match(entry.name)
        if match is None:
            raise InvariantBroken(f"{package}/{entry.name} is not named NNNN_name.sql")
        found.append(Migration(number=int(match[1]), name=match[2], text=entry.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise InvariantBroken(f"the migrations of {package} are not numbered 0001, 0002, … without holes")
    return tuple(found)


def script(*, schema: str, package: str, substitutions: Mapping[str, str] | None = None) -> str:
    """Return all migrations of a component as one SQL text, records of their application included.

    It opens and commits no transaction: the tool that runs it does.
    """
    values = _values(schema, substitutions)
    parts = [_fill(PREAMBLE, values, "preamble")]
    for migration in load(package):
        parts.append(f"-- {migration.number:04d}_{migration.name}")
        parts.append(_fill(migration.text, values, migration.name))
        parts.append(_record(schema, migration))
    return "\n".join(parts)


def migrate(
    connection: psycopg.Connection, *, schema: str, package: str, substitutions: Mapping[str, str] | None = None
) -> list[Migration]:
    """Apply what is not applied yet, in one transaction, and return it (empty when all was there).

    Joins the caller's transaction when one is open, else commits its own.

    Raises:
        ConfigError: an applied migration differs from the file of that number, or the database has migrations
            this version does not know.
    """
    values = _values(schema, substitutions)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"waybill.migrate.{schema}",))
        if not _recorded(connection, schema):
            _run(connection, _fill(PREAMBLE, values, "preamble"))
        known = load(package)
        done = applied(connection, schema)
        _compare(schema, known, done)
        pending = [migration for migration in known if migration.number not in done]
        for migration in pending:
            _run(connection, _fill(migration.text, values, migration.name))
            _run(connection, _record(schema, migration))
    return pending


def applied(connection: psycopg.Connection, schema: str) -> dict[int, str]:
    """Return number → digest of what a database schema has; empty when it was never migrated."""
    if not _recorded(connection, schema):
        return {}
    query = sql.SQL("SELECT number, digest FROM {}.migration ORDER BY number").format(sql.Identifier(schema))
    return {int(number): str(digest) for number, digest in connection.execute(query)}


def _recorded(connection: psycopg.Connection, schema: str) -> bool:
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{identifier(schema)}.migration",)).fetchone()
    return found is not None and bool(found[0])


def _compare(schema: str, known: tuple[Migration, ...], done: Mapping[int, str]) -> None:
    digests = {migration.number: migration.digest for migration in known}
    for number, digest in done.items():
        if number not in digests:
            raise ConfigError(
                f"schema {schema} has migration {number:04d}, which this version does not know: use the newer waybill"
            )
        if digests[number] != digest:
            raise ConfigError(
                f"migration {number:04d} of schema {schema} was applied with other text than this one has"
            )


def _values(schema: str, substitutions: Mapping[str, str] | None) -> dict[str, str]:
    values = {"schema": identifier(schema)}
    for key, value in (substitutions or {}).items():
        values[key] = identifier(value, what=key.replace("_", " "))
    return values


def _fill(text: str, values: Mapping[str, str], name: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InvariantBroken(f"{name} has a placeholder {{{match[1]}}} that nobody gives a value")
        return values[match[1]]

    return PLACEHOLDER.sub(replace, text)


def _record(schema: str, migration: Migration) -> str:
    return (
        f"INSERT INTO {schema}.migration (number, name, digest) "  # noqa: S608 - checked identifiers, our file names
        f"VALUES ({migration.number}, '{migration.name}', '{migration.digest}');"
    )


def _run(connection: psycopg.Connection, text: str) -> None:
    """Run a script of several statements; without parameters psycopg sends it whole."""
    connection.execute(text.encode())
