"""Reports of workers in PostgreSQL: a row per worker, replaced whole; and what people are shown beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from waybill.delivery.controls.statements import Run
from waybill.delivery.core.controls.reports import Report

__all__ = ["ReportLog", "ReportStore", "Rows", "Said"]

# Replace what a worker said, and forget those that are long gone: a killed worker cannot take its row back.
WRITE: Final = """
WITH gone AS (
    DELETE FROM delivery.worker_report
    WHERE worker <> %(worker)s AND reported_at < clock_timestamp() - interval '10 minutes')
INSERT INTO delivery.worker_report (worker, reported_at, destinations)
VALUES (%(worker)s, clock_timestamp(), %(destinations)s)
ON CONFLICT (worker) DO UPDATE SET reported_at = excluded.reported_at, destinations = excluded.destinations
"""
REMOVE: Final = "DELETE FROM delivery.worker_report WHERE worker = %(worker)s"

SAID: Final = """
SELECT worker, clock_timestamp() - reported_at, destinations FROM delivery.worker_report ORDER BY worker
"""
PARTITIONS: Final = """
SELECT tenant, destination, owner, count(*)::integer FROM delivery.partition_owner
GROUP BY tenant, destination, owner
"""
# What will be attempted by itself, and when first; what a result is awaited of, and how much of that nobody read yet.
ROWS: Final = """
SELECT tenant, destination, count(*) FILTER (WHERE state <> 'delivered')::integer,
    min(next_due) FILTER (WHERE state <> 'delivered'), count(*) FILTER (WHERE state = 'delivered')::integer,
    count(handed_to)::integer
FROM delivery.open_task
WHERE blocks AND state IN ('queued', 'retrying', 'delivered') AND kind = 'delivery'
GROUP BY tenant, destination
"""

Place = tuple[str, str]


class ReportStore:
    """A worker's side. Both methods may raise TransientError."""

    def __init__(self, run: Run) -> None:
        """Take what runs one statement."""
        self._run = run

    async def write(self, worker: str, reports: Sequence[Report]) -> None:
        """Put these in the place of what the worker said before."""
        destinations = Jsonb([report.document() for report in reports])
        await self._run(WRITE, {"worker": worker, "destinations": destinations})

    async def remove(self, worker: str) -> None:
        """Forget what the worker said."""
        await self._run(REMOVE, {"worker": worker})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one worker said last."""

    worker: str
    age: timedelta
    #: A document for each destination that is not plain.
    documents: Mapping[Place, Mapping[str, Any]]


class Rows(NamedTuple):
    """Deliveries of a destination that wait as open rows."""

    #: Those that will be attempted by themselves.
    waiting: int
    #: When the first of them may be; None while none has a time.
    oldest_due: datetime | None
    #: Those that were accepted or handed over, and of which a result is owed.
    awaited: int
    #: Those of them that lie in Kafka and were not seen to be read past.
    unread: int


class ReportLog:
    """The operators' side, on a connection of the caller's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def said(self) -> list[Said]:
        """Return what every worker said last, also those that went silent since."""
        found = self._connection.execute(SAID.encode()).fetchall()
        return [Said(worker=worker, age=age, documents=_by_place(documents)) for worker, age, documents in found]

    def partitions(self) -> dict[Place, dict[str, int]]:
        """Return how many partitions of each destination which worker took last."""
        owned: dict[Place, dict[str, int]] = {}
        for tenant, destination, owner, count in self._connection.execute(PARTITIONS.encode()):
            owned.setdefault((tenant, destination), {})[owner] = count
        return owned

    def rows(self) -> dict[Place, Rows]:
        """Return what waits as open rows."""
        found = self._connection.execute(ROWS.encode())
        return {(tenant, destination): Rows(*counted) for tenant, destination, *counted in found}


def _by_place(documents: Sequence[Mapping[str, Any]]) -> dict[Place, Mapping[str, Any]]:
    return {(document["tenant"], document["destination"]): document for document in documents}
