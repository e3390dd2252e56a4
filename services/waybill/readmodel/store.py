"""The writer's side of PostgreSQL: rows and positions in one transaction.

`synchronous_commit` is off: a crash of the server takes rows and positions back together, and they are folded
again. Each tenant has one writer at a time, by an advisory lock of its session; should two ever write, positions are
moved by compare and set, so that one of them writes nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final

import psycopg
from psycopg.rows import tuple_row

from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect
from waybill.kernel.errors import FencedError, TransientError
from waybill.readmodel import statements
from waybill.readmodel.core.numbering import Known, Lane, check_numbers, lane_of
from waybill.readmodel.core.records import AnomalyKind, AnomalyRow, DeliveryRow, Rows, Topic
from waybill.readmodel.ports import Bounds, Positions, TopicPartition

__all__ = ["MIGRATIONS", "SCHEMA", "PostgresStore", "prepare"]

SCHEMA: Final = "read"
MIGRATIONS: Final = "waybill.readmodel.migrations"
_TABLES: Final = ("delivery", "attempt", "move", "dead_letter", "numbering", "anomaly", "position")


def prepare(dsn: str) -> None:
    """Bring the schema up to date; does nothing when it is."""
    with connect(dsn, application_name="waybill-read-model") as connection:
        migrate(connection, schema=SCHEMA, package=MIGRATIONS)


class PostgresStore:
    """Rows and positions of every tenant, over one connection that is reopened when it broke.

    Every method may raise TransientError when the database went away and UnavailableError when it cannot be
    reached.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection | None = None
        self._truncated: frozenset[tuple[str, int]] = frozenset()
        #: Tenants whose lock the connection holds.
        self._claimed: set[str] = set()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._claimed = set()

    def claim(self, tenants: Collection[str]) -> frozenset[str]:
        """Return those of the tenants that this process may fold; what is claimed stays so while it is connected."""
        with self._transaction() as connection:
            asked = [tenant for tenant in tenants if tenant not in self._claimed]
            for (tenant,) in connection.execute(statements.CLAIM, (asked,)).fetchall():
                self._claimed.add(tenant)
        return frozenset(self._claimed.intersection(tenants))

    def positions(
        self, partitions: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        """Return where to read from, at the first offset where nothing is known.

        Records that expired before they were folded, or a topic that is shorter than the position (it was made
        again), send the fold to the first offset there is and leave an anomaly.
        """
        asked = list(partitions)
        with self._transaction() as connection:
            connection.execute(
                statements.OPEN_POSITION,
                (
                    [topic for topic, _ in asked],
                    [number for _, number in asked],
                    [partitions[place] for place in asked],
                    [bounds[place].first for place in asked],
                ),
            )
            found = {
                (topic, number): (next_offset, base, newest)
                for topic, number, next_offset, base, newest in connection.execute(
                    "SELECT topic, partition, next, base, newest_at FROM read.position"
                )
            }
            positions = {place: found[place][0] for place in asked}
            for place in asked:
                limits = bounds[place]
                if not limits.first <= positions[place] <= limits.end:
                    _skip(connection, place, partitions[place], positions[place], limits, found[place][2])
                    positions[place] = limits.first
            self._truncated = frozenset(
                (partitions[place], place[1])
                for place in asked
                if found[place][1] > 0 and place[0].endswith(f".{Topic.COMMANDS}")
            )
        return positions

    def apply(self, rows: Rows, before: Positions, after: Positions, newest: Mapping[TopicPartition, datetime]) -> None:
        """Write rows and move positions in one transaction.

        Raises:
            FencedError: the positions are not what this process thinks: another one folds, or a rebuild emptied
                the model. Nothing was written.
        """
        moved = [place for place, offset in after.items() if before[place] != offset]
        if not moved and not rows:
            return
        with self._transaction() as connection:
            changed = connection.execute(
                statements.MOVE_POSITIONS,
                (
                    [topic for topic, _ in moved],
                    [number for _, number in moved],
                    [before[place] for place in moved],
                    [after[place] for place in moved],
                    [newest.get(place) for place in moved],
                ),
            ).rowcount
            if changed != len(moved):
                raise FencedError("the read model was moved by another process, or is being rebuilt")
            self._write(connection, rows)

    def forget(self, tenant: str | None) -> None:
        """Empty the model, or one tenant's part of it; whoever folds begins again."""
        with self._transaction() as connection:
            if tenant is None:
                connection.execute(f"TRUNCATE {', '.join(f'read.{table}' for table in _TABLES)}")
            else:
                for table in reversed(_TABLES):  # positions first: a running fold waits there, then gives up
                    connection.execute(f"DELETE FROM read.{table} WHERE tenant = %s", (tenant,))  # noqa: S608 - our names

    def fingerprint(self, tenant: str | None = None) -> str:
        """Return one hash over all rows except positions: equal after a rebuild."""
        with self._transaction() as connection:
            found = connection.execute(statements.FINGERPRINT, {"tenant": tenant}).fetchone()
        return str(found[0]) if found else ""

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        if self._connection is None or self._connection.closed:
            self._claimed = set()
            self._connection = connect(self._dsn, application_name="waybill-read-model", autocommit=True)
            self._connection.execute("SET synchronous_commit = off")
        try:
            with self._connection.transaction():
                yield self._connection
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise TransientError("the control database went away") from error

    def _write(self, connection: psycopg.Connection, rows: Rows) -> None:
        anomalies = [*rows.anomalies, *self._check(connection, rows.deliveries)]
        for insert, found in (
            (statements.DELIVERY, rows.deliveries),
            (statements.STATE, rows.states),
            (statements.ATTEMPT, rows.attempts),
            (statements.MOVE, rows.moves),
            (statements.DEAD_LETTER, rows.dead_letters),
            (statements.ANOMALY, anomalies),
        ):
            if found:
                connection.execute(insert.statement, insert.arrays(found))

    def _check(self, connection: psycopg.Connection, rows: list[DeliveryRow]) -> list[AnomalyRow]:
        """Verify the numbers of a batch, raise the tops, return what is wrong."""
        if not rows:
            return []
        verdict = check_numbers(_known(connection, rows, self._truncated), rows)
        if verdict.tops:
            lanes = list(verdict.tops)
            connection.execute(statements.RAISE_TOPS, (*_columns(lanes), [verdict.tops[lane] for lane in lanes]))
        return verdict.anomalies


def _columns(lanes: list[Lane]) -> tuple[list[str], list[str], list[str]]:
    return [lane[0] for lane in lanes], [lane[1] for lane in lanes], [lane[2] for lane in lanes]


def _known(connection: psycopg.Connection, rows: list[DeliveryRow], truncated: frozenset[tuple[str, int]]) -> Known:
    """Read what earlier batches left for the lanes of this one; holders and holes only where a number is not new."""
    lanes = list({lane_of(row): None for row in rows})
    tops: dict[Lane, int] = {
        (tenant, aggregate, destination): top
        for tenant, aggregate, destination, top in connection.execute(statements.FIND_TOPS, _columns(lanes))
    }
    old = [row for row in rows if row.sequence <= tops.get(lane_of(row), 0)]
    if not old:
        return Known(tops=tops, holders={}, holes={}, truncated=truncated)
    old_lanes = [lane_of(row) for row in old]
    holders = {
        ((tenant, aggregate, destination), number): delivery
        for tenant, aggregate, destination, number, delivery in connection.execute(
            statements.FIND_HOLDERS, (*_columns(old_lanes), [row.sequence for row in old])
        )
    }
    holes: dict[Lane, tuple[AnomalyRow, ...]] = {}
    cursor = connection.cursor(row_factory=tuple_row)
    for values in cursor.execute(statements.FIND_HOLES, _columns(list(set(old_lanes)))):
        hole = AnomalyRow(**dict(zip(statements.ANOMALY.columns, values, strict=True)))
        hole = replace(hole, kind=AnomalyKind(hole.kind))
        lane = (hole.tenant, hole.aggregate or "", hole.destination)
        holes[lane] = (*holes.get(lane, ()), hole)
    return Known(tops=tops, holders=holders, holes=holes, truncated=truncated)


def _skip(
    connection: psycopg.Connection,
    place: TopicPartition,
    tenant: str,
    position: int,
    limits: Bounds,
    newest: datetime | None,
) -> None:
    """Go to the first offset there is, and leave word of it."""
    connection.execute(
        "UPDATE read.position SET next = %s, base = %s WHERE topic = %s AND partition = %s",
        (limits.first, limits.first, *place),
    )
    if newest is None and position <= limits.end:
        return  # nothing was folded yet: the topic's first records expired before the model existed
    detail = (
        f"offsets {position} to {limits.first - 1} expired before they were folded"
        if position < limits.first
        else f"the topic ends at {limits.end}, before position {position}: it was made again"
    )
    row = AnomalyRow(
        tenant=tenant,
        kind=AnomalyKind.SKIPPED,
        topic=place[0].rpartition(".")[2],
        partition=place[1],
        offset=limits.first,
        detail=detail,
        seen_at=newest or datetime.fromisoformat("1970-01-01T00:00:00+00:00"),
    )
    connection.execute(statements.ANOMALY.statement, statements.ANOMALY.arrays([row]))
