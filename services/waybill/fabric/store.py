"""Applied configuration in PostgreSQL: versions, objects as they were, and the outbox that announces changes.

A version is one transaction: its row, its changed objects and one control-outbox row for each of them, so that the
compacted `config` topic can never say something the tables do not. Rows are only ever added.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from waybill.contracts.fabric import FabricConfig
from waybill.fabric.core.objects import Body, ObjectKey, ObjectKind, canonical, digest, from_objects, to_objects
from waybill.fabric.core.plan import Change
from waybill.kernel.errors import UnavailableError

__all__ = ["Applied", "FabricStore", "announce", "load_applied", "newest_version"]

#: How long announced rows are kept beside the topic they went to.
ANNOUNCED_FOR: Final = timedelta(days=30)
LOCK_WAIT_S: Final = 60.0

LOCK: Final = "SELECT pg_advisory_lock(hashtextextended('waybill.fabric.apply', 0))"
UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('waybill.fabric.apply', 0))"
NEWEST_VERSION: Final = "SELECT coalesce(max(version), 0) FROM fabric.config_version"
#: Each object at its newest version, retired ones left out.
NEWEST_OBJECTS: Final = """
SELECT kind, tenant, name, body
FROM (SELECT DISTINCT ON (kind, tenant, name) kind, tenant, name, body
      FROM fabric.object ORDER BY kind, tenant, name, version DESC) AS newest
WHERE body IS NOT NULL
"""
TENANT_VERSIONS: Final = "SELECT tenant, max(version) FROM fabric.object GROUP BY tenant"
ADD_VERSION: Final = """
INSERT INTO fabric.config_version (version, applied_at, applied_by, digest, comment) VALUES (%s, %s, %s, %s, %s)
"""
ADD_OBJECT: Final = "INSERT INTO fabric.object (kind, tenant, name, version, body) VALUES (%s, %s, %s, %s, %s)"
ADD_ROUTE: Final = "INSERT INTO fabric.control_route (route) VALUES (%s) ON CONFLICT DO NOTHING"
ANNOUNCE: Final = "INSERT INTO fabric.control_outbox (route, key, payload) VALUES (%s, %s, %s)"
FORGET_ANNOUNCED: Final = "DELETE FROM fabric.control_outbox WHERE created_day < %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Who applies, when, and why."""

    at: datetime
    by: str
    comment: str = ""


def newest_version(connection: psycopg.Connection) -> int:
    """Return the newest applied version, 0 when there is none."""
    row = connection.execute(NEWEST_VERSION).fetchone()
    return int(row[0]) if row else 0


def load_applied(connection: psycopg.Connection) -> FabricConfig:
    """Read the newest configuration, version and objects from one snapshot.

    Raises:
        ConfigError: a newer waybill stored what this one cannot read.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        version = newest_version(connection)
        objects: dict[ObjectKey, Body] = {
            ObjectKey(tenant=tenant, kind=ObjectKind(kind), name=name): body
            for kind, tenant, name, body in connection.execute(NEWEST_OBJECTS)
        }
    return from_objects(version, objects)


class FabricStore:
    """The applier's side of the tables; the connection is in autocommit and belongs to the caller."""

    def __init__(self, connection: psycopg.Connection[Any], *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._connection = connection
        self._lock_wait_s = lock_wait_s

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the one lock of all applies; it goes with the connection, so a killed apply leaves none behind.

        Raises:
            UnavailableError: another apply held it too long.
        """
        try:
            with self._connection.transaction():
                limit_ms = f"{round(self._lock_wait_s * 1000)}ms"
                self._connection.execute("SELECT set_config('lock_timeout', %s, true)", (limit_ms,))
                self._connection.execute(LOCK)
        except psycopg.errors.LockNotAvailable as error:
            message = f"another apply has been running for {self._lock_wait_s:g} s: wait for it, then repeat"
            raise UnavailableError(message) from error
        try:
            yield
        finally:
            with suppress(psycopg.OperationalError):  # a connection that is gone has let go of it
                self._connection.execute(UNLOCK)

    def current(self) -> FabricConfig:
        """Return what is applied; version 0 and no tenants before the first apply."""
        return load_applied(self._connection)

    def tenant_versions(self) -> dict[str, int]:
        """Return the version in which each tenant last changed: what its outboxes stamp on commands."""
        return {tenant: int(version) for tenant, version in self._connection.execute(TENANT_VERSIONS)}

    def open_routes(self, tenants: Iterable[str]) -> None:
        """Let decisions, anchors of audit chains and requests into the control outbox, once tenants' topics are there."""
        for tenant in tenants:
            for topic in ("decisions", "audit", "requests"):
                self._connection.execute(ADD_ROUTE, (f"{tenant}.{topic}",))

    def record(self, whole: FabricConfig, changes: Sequence[Change], applied: Applied) -> int:
        """Store the changed objects as the next version and announce each; return the version.

        With nothing to change it writes nothing and returns the newest version.

        Args:
            whole: everything that is applied afterwards, for the digest.
            changes: what differs from what is applied now.
            applied: who, when, why.
        """
        if not changes:
            return newest_version(self._connection)
        with self._connection.transaction():
            version = newest_version(self._connection) + 1
            mark = digest(to_objects(whole))
            self._connection.execute(ADD_VERSION, (version, applied.at, applied.by, mark, applied.comment))
            for change in changes:
                self._add(change, version)
            self._connection.execute(FORGET_ANNOUNCED, ((applied.at - ANNOUNCED_FOR).date(),))
        return version

    def _add(self, change: Change, version: int) -> None:
        key = change.key
        stored = Jsonb(change.body) if change.body is not None else None
        self._connection.execute(ADD_OBJECT, (key.kind, key.tenant, key.name, version, stored))
        route = f"{key.tenant}.config"
        self._connection.execute(ADD_ROUTE, (route,))
        self._connection.execute(ANNOUNCE, (route, key.topic_key, announcement(key, version, change.body)))


def announce(connection: psycopg.Connection[Any], route: str, key: str, payload: bytes) -> None:
    """Send a record on its way with the transaction that is open; the route says to which topic."""
    connection.execute(ANNOUNCE, (route, key, payload))


def announcement(key: ObjectKey, version: int, body: Body | None) -> bytes | None:
    """Return the record value for one object on the config topic; None, a tombstone, once it is retired."""
    if body is None:
        return None
    return canonical({"kind": key.kind, "tenant": key.tenant, "name": key.name, "version": version, "body": body})
