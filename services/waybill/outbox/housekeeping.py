"""One round of housekeeping: days ahead, finished days closed, days past retention dropped behind the relay.

The decisions are SQL functions, so that a database's own scheduler can call them; each runs in its own short
transaction, and none waits longer than a second for a lock that writers need. A round that meets a long
transaction reports `busy` and the next one does the work: run it at least daily, better hourly.
"""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from waybill.infra.postgres import identifier

__all__ = ["Action", "Housekeeping", "Step", "housekeep"]


class Action(StrEnum):
    """What happened to a partition."""

    #: Made ahead of its day.
    MADE = "made"
    #: The default partition held rows; it became a partition of their days.
    ADOPTED = "adopted"
    #: Nobody writes into it any more; the WAL position is noted.
    CLOSED = "closed"
    #: Past retention, read by the relay, gone.
    DROPPED = "dropped"
    #: Past retention and kept, because the relay has not confirmed it.
    KEPT = "kept"
    #: A transaction held a lock; the next round does it.
    BUSY = "busy"
    #: People must look: rows lie in the default partition around days that have partitions.
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing done, or not done and why."""

    action: Action
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Housekeeping:
    """How far ahead and how long; days are UTC."""

    ahead_days: int = 7
    keep_days: int = 7
    #: The relay's slot; None = every logical slot of this database must have passed.
    slot: str | None = None


def housekeep(
    connection: psycopg.Connection[Any], schema: str, wanted: Housekeeping, *, today: date | None = None
) -> list[Step]:
    """Run one round as the outbox's owner; three transactions of its own, safe to run anywhere at any time.

    Args:
        connection: outside a transaction.
        schema: of the outbox.
        wanted: how many days.
        today: in place of the database's UTC day.
    """
    place = sql.Identifier(identifier(schema))
    day = sql.Literal(today) if today is not None else sql.SQL("(clock_timestamp() AT TIME ZONE 'UTC')::date")
    calls: list[tuple[sql.Composed, tuple[object, ...]]] = [
        (sql.SQL("SELECT * FROM {}.make_partitions(%s, {})").format(place, day), (wanted.ahead_days,)),
        (sql.SQL("SELECT * FROM {}.close_partitions({})").format(place, day), ()),
        (sql.SQL("SELECT * FROM {}.drop_partitions(%s, %s, {})").format(place, day), (wanted.keep_days, wanted.slot)),
    ]
    steps: list[Step] = []
    for query, parameters in calls:
        with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
            for action, partition, reason in cursor.execute(query, parameters):
                steps.append(Step(action=Action(action), partition=partition, reason=reason))
    return steps
