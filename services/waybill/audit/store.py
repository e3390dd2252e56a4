"""The chains in the control database: reading them, and putting anchors beside them and on their way to the topic."""

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg.rows import class_row

from waybill.audit.core.chain import Anchor, Entry
from waybill.audit.core.lines import read_anchor, write_line
from waybill.fabric.store import announce
from waybill.kernel.errors import ConfigError, InvariantBroken

__all__ = ["AuditStore"]

_BATCH: Final = 1_000
ENTRIES: Final = """
SELECT tenant, partition, number, body, hash FROM audit.entry WHERE tenant = %s ORDER BY partition, number
"""
NEWEST: Final = """
SELECT tenant, partition, number, body, hash FROM audit.entry
WHERE tenant = %(tenant)s AND (%(act)s::text IS NULL OR starts_with(body::jsonb ->> 'act', %(act)s))
ORDER BY body::jsonb ->> 'at' DESC, partition, number DESC LIMIT %(limit)s
"""
HEADS: Final = """
SELECT DISTINCT ON (partition) tenant, partition, number, body, hash FROM audit.entry
WHERE tenant = %s ORDER BY partition, number DESC
"""
ANCHORS: Final = "SELECT statement FROM audit.anchor WHERE tenant = %s ORDER BY position"
ADD_ANCHOR: Final = "INSERT INTO audit.anchor (tenant, statement) VALUES (%s, %s)"


class AuditStore:
    """One tenant's chains, over the caller's connection in autocommit."""

    def __init__(self, connection: psycopg.Connection[Any], tenant: str) -> None:
        self._connection, self._tenant = connection, tenant

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, chain after chain, from one snapshot, without holding them all in memory."""
        with (
            self._connection.transaction(),
            self._connection.cursor("audit_entries", row_factory=class_row(Entry)) as cursor,
        ):
            cursor.itersize = _BATCH
            yield from cursor.execute(ENTRIES, (self._tenant,))

    def newest(self, limit: int, act: str | None = None) -> list[Entry]:
        """Return the newest entries, of acts that begin with a text if one is named."""
        with self._connection.cursor(row_factory=class_row(Entry)) as cursor:
            return cursor.execute(NEWEST, {"tenant": self._tenant, "act": act, "limit": limit}).fetchall()

    def heads(self) -> list[Entry]:
        """Return the last entry of each chain."""
        with self._connection.cursor(row_factory=class_row(Entry)) as cursor:
            return cursor.execute(HEADS, (self._tenant,)).fetchall()

    def anchors(self) -> list[Anchor]:
        """Return the anchors kept here; those on the topic are the ones that a change here does not reach."""
        found = []
        for (line,) in self._connection.execute(ANCHORS, (self._tenant,)):
            anchor = read_anchor(line)
            if anchor is None:
                raise InvariantBroken(f"an anchor of {self._tenant} in the control database cannot be read")
            found.append(anchor)
        return found

    def add_anchor(self, anchor: Anchor) -> None:
        """Keep an anchor and send it on its way to the topic, in one transaction.

        Raises:
            ConfigError: the tenant has no topic for anchors yet.
        """
        line = write_line(anchor)
        try:
            with self._connection.transaction():
                self._connection.execute(ADD_ANCHOR, (self._tenant, line))
                announce(self._connection, f"{self._tenant}.audit", str(anchor.partition), line.encode())
        except psycopg.errors.ForeignKeyViolation as error:
            raise ConfigError(
                f"tenant {self._tenant} has no topic for anchors: run `waybill apply` with its fabric.yaml"
            ) from error
