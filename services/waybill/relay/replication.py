"""A new slot with the snapshot of exactly its starting point.

`CREATE_REPLICATION_SLOT … EXPORT_SNAPSHOT` gives both at once: a transaction that committed before the point is
visible in the snapshot, one that commits later is sent by the slot; no row is in both and none in neither. The
snapshot lives as long as the replication connection stays silent, so it is a context manager.
"""

import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import pq

from waybill.infra.postgres import connect
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError

__all__ = ["ExactPoint", "slot_with_snapshot"]

_WITHIN_S: Final = 60.0

_OLDEST: Final = """
    SELECT pid, coalesce(nullif(application_name, ''), 'no name'), usename, state,
        extract(epoch FROM clock_timestamp() - xact_start)::int
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    ORDER BY xact_start LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPoint:
    """Where a new slot starts, and the name of the snapshot that shows everything before."""

    lsn: str
    snapshot: str


@contextmanager
def slot_with_snapshot(dsn: str, slot: str, clock: Clock) -> Iterator[ExactPoint]:
    """Make a logical slot and hold the snapshot of its starting point.

    Args:
        dsn: of the outbox's database, with a role that may replicate.
        slot: its name; must not exist.
        clock: measures the patience.

    Raises:
        UnavailableError: the slot cannot be made; where a long transaction stands in the way, which one it is.
    """
    connection = _replication_connection(dsn)
    with closing(connection):
        yield _create(connection, dsn, slot, clock)


def _replication_connection(dsn: str) -> psycopg.Connection:
    try:
        return psycopg.connect(dsn, autocommit=True, replication="database", application_name="waybill-recover")
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"no replication connection: {error}. The role needs REPLICATION, and pg_hba.conf an entry for it"
        ) from error


def _create(connection: psycopg.Connection, dsn: str, slot: str, clock: Clock) -> ExactPoint:
    options = "(SNAPSHOT 'export', FAILOVER true)" if connection.info.server_version >= 170000 else "EXPORT_SNAPSHOT"
    raw = connection.pgconn
    raw.send_query(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput {options}'.encode())
    deadline = clock.monotonic() + _WITHIN_S
    while raw.is_busy():
        if not select.select([raw.socket], [], [], 0.2)[0] and clock.monotonic() > deadline:
            connection.cancel()
            raise UnavailableError(
                f"slot {slot} cannot start while older transactions run: {_oldest(dsn)}. End it and run again"
            )
        raw.consume_input()
    result = raw.get_result()
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        said = result.error_message.decode(errors="replace").strip() if result else "no answer"
        raise UnavailableError(f"slot {slot} cannot be made: {said}")
    point = ExactPoint(lsn=_text(result, 1), snapshot=_text(result, 2))
    while raw.get_result() is not None:  # the end of the answer; the snapshot outlives it
        pass
    return point


def _text(result: pq.abc.PGresult, column: int) -> str:
    value = result.get_value(0, column)
    assert value is not None
    return value.decode()


def _oldest(dsn: str) -> str:
    with closing(connect(dsn, application_name="waybill-recover", autocommit=True)) as connection:
        row = connection.execute(_OLDEST).fetchone()
    if row is None:
        return "none is visible to this role"
    return f"pid {row[0]} ({row[1]}, role {row[2]}, {row[3]}) is open for {row[4]} s"
