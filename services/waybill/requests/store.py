"""The fold's side of PostgreSQL: facts, standings, turns, their outbox rows and positions in one transaction.

A request is weighed under the lock of its row, so that two processes never weigh one at a time; should two ever read
one topic, positions are moved by compare and set and one of them writes nothing. What is told is told by an insert
that a second one of the same number would break.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import psycopg

from waybill.fabric.store import announce
from waybill.infra.log import get_logger
from waybill.infra.postgres import connect
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, FencedError, TransientError
from waybill.readmodel.core.records import Rows
from waybill.readmodel.ports import Bounds, Positions, TopicPartition
from waybill.requests import statements
from waybill.requests.core.completion import turn
from waybill.requests.core.standing import standing
from waybill.requests.facts import Case, Key, Told, load_cases

__all__ = ["RequestStore"]

log = get_logger("requests")


class RequestStore:
    """Facts and positions of every tenant, over one connection that is reopened when it broke.

    Every method may raise TransientError when the database went away and UnavailableError when it cannot be reached.
    """

    def __init__(self, dsn: str, clock: Clock, encode: Callable[[Told], bytes]) -> None:
        """Connect later.

        Args:
            dsn: of the control database.
            clock: tells whether an exception still counts.
            encode: makes the record of what is told; may raise UnavailableError.
        """
        self._dsn, self._clock, self._encode = dsn, clock, encode
        self._connection: psycopg.Connection | None = None
        self._claimed: set[str] = set()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._claimed = set()

    def claim(self, tenants: Collection[str]) -> frozenset[str]:
        """Return those of the tenants that this process may fold; one whose topic of requests is not there waits."""
        with self._transaction() as connection:
            asked = [tenant for tenant in tenants if tenant not in self._claimed]
            self._claimed |= {tenant for (tenant,) in connection.execute(statements.CLAIM, (asked,))}
        return frozenset(self._claimed.intersection(tenants))

    def positions(
        self, partitions: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        """Return where to read from: the first offset there is where nothing is known, or where the known one is gone."""
        asked = list(partitions)
        with self._transaction() as connection:
            firsts = [bounds[place].first for place in asked]
            topics, numbers = [topic for topic, _ in asked], [number for _, number in asked]
            connection.execute(statements.OPEN_POSITION, (topics, numbers, firsts))
            known = {(topic, number): at for topic, number, at in connection.execute(statements.POSITIONS)}
            positions = {place: known[place] for place in asked}
            for place in asked:
                if not bounds[place].first <= positions[place] <= bounds[place].end:
                    log.warning("requests.skipped", topic=place[0], partition=place[1], position=positions[place])
                    positions[place] = bounds[place].first
                    connection.execute(statements.SET_POSITION, (positions[place], *place))
        return positions

    def apply(self, rows: Rows, before: Positions, after: Positions, newest: Mapping[TopicPartition, datetime]) -> None:
        """Write facts, weigh the requests they are about, and move positions, in one transaction.

        Raises:
            FencedError: the positions are not what this process thinks. Nothing was written.
        """
        moved = [place for place, offset in after.items() if before[place] != offset]
        deliveries = [row for row in rows.deliveries if row.request_id is not None]
        states = [row for row in rows.states if row.request_id is not None]
        if not moved:
            return
        with self._transaction() as connection:
            topics, numbers = [topic for topic, _ in moved], [number for _, number in moved]
            offsets = [before[place] for place in moved], [after[place] for place in moved]
            if connection.execute(statements.MOVE_POSITIONS, (topics, numbers, *offsets)).rowcount != len(moved):
                raise FencedError("another process folds these requests")
            if deliveries:
                connection.execute(statements.ADD_DELIVERIES, _columns(deliveries, _DELIVERY))
            if states:
                connection.execute(statements.RAISE_OUTCOMES, _columns(states, _OUTCOME))
            changed = {(row.tenant, row.delivery_id) for row in deliveries}
            changed |= {(row.tenant, row.delivery_id) for row in states}
            self._weigh(connection, _requests_of(connection, changed))

    def pass_time(self) -> None:
        """Weigh requests whose exceptions were approved, taken back or ran out since this was asked last."""
        asked = {"now": self._clock.now(), "tenants": sorted(self._claimed)}
        with self._transaction() as connection:
            changed = connection.execute(statements.SYNC_EXCUSES, asked).fetchall()
            self._weigh(connection, _requests_of(connection, changed))

    def _weigh(self, connection: psycopg.Connection, keys: set[Key]) -> None:
        """Say of each request what it has come to now, and tell what changed."""
        if not keys:
            return
        names = [tenant for tenant, _ in keys], [request for _, request in keys]
        connection.execute(statements.OPEN_REQUESTS, (self._clock.now(), *names))
        cases = load_cases(connection, *names)
        # asked after the lock, so that of two processes the later one has the later instant
        now = self._clock.now()
        with connection.pipeline():
            for case in cases:
                self._write(connection, case, now)

    def _write(self, connection: psycopg.Connection, case: Case, now: datetime) -> None:
        tenant, request_id = case.key
        found = standing(case.deliveries, case.outcomes, case.exceptions, now)
        chapter, what = turn(case.chapter, is_complete=found.is_complete)
        connection.execute(
            statements.WRITE_REQUEST,
            {**asdict(found), **asdict(chapter), "tenant": tenant, "request_id": request_id, "now": now},
        )
        if what is None:
            return
        number = chapter.completions
        connection.execute(statements.ADD_TURN, (tenant, request_id, number, what, now))
        record = Told(tenant=tenant, request_id=request_id, turn=what, number=number, standing=found, at=now)
        announce(connection, f"{tenant}.requests", request_id, self._encode(record))

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        if self._connection is None or self._connection.closed:
            self._claimed = set()
            self._connection = connect(self._dsn, application_name="waybill-requests", autocommit=True)
        try:
            with self._connection.transaction():
                yield self._connection
        except psycopg.errors.UndefinedTable as error:
            raise ConfigError("the control database lacks tables of requests: run `waybill migrate`") from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise TransientError("the control database went away") from error


_DELIVERY: Final = (
    "tenant", "delivery_id", "request_id", "command_id", "destination", "required", "replaces", "request_size",
)  # fmt: skip
_OUTCOME: Final = ("tenant", "delivery_id", "version", "state", "error_code", "detail", "updated_at")


def _columns(rows: Collection[Any], names: tuple[str, ...]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in names]


def _requests_of(connection: psycopg.Connection, deliveries: Collection[tuple[str, Any]]) -> set[Key]:
    """Return the requests of deliveries whose command was read."""
    if not deliveries:
        return set()
    names = [tenant for tenant, _ in deliveries], [delivery for _, delivery in deliveries]
    return set(connection.execute(statements.REQUESTS_OF, names).fetchall())
