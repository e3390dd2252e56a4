"""Exceptions in the control database: each move is judged under the lock of its row, and becomes an entry of the audit."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

from waybill.exceptions.core.moves import CLOCK, Draft, ExceptionRecord, ExceptionState, Move, check_draft, judge
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, RefusedError

__all__ = ["ExceptionBook"]

_COLUMNS: Final = """exception_id, tenant, destination, delivery_id, source, reason, permits_closure, opened_by, opened_at,
    reviewer, expires_at, state, moved_by, moved_at, moved_why"""
_OPEN: Final = f"""
INSERT INTO exceptions.exception (exception_id, tenant, destination, delivery_id, source, reason, permits_closure, opened_by,
    opened_at, reviewer, expires_at)
VALUES (%(exception_id)s, %(tenant)s, %(destination)s, %(delivery_id)s, %(source)s, %(reason)s, %(permits_closure)s,
    %(opened_by)s, %(opened_at)s, %(reviewer)s, %(expires_at)s)
RETURNING {_COLUMNS}
"""  # noqa: S608 - constants
_ONE: Final = f"SELECT {_COLUMNS} FROM exceptions.exception WHERE exception_id = %s FOR UPDATE"  # noqa: S608 - the same
_MOVE: Final = f"""
UPDATE exceptions.exception SET state = %s, moved_by = %s, moved_at = %s, moved_why = %s
WHERE exception_id = %s RETURNING {_COLUMNS}
"""  # noqa: S608 - the same
_DUE: Final = """
SELECT exception_id FROM exceptions.exception WHERE state IN ('opened', 'approved') AND expires_at <= %s ORDER BY expires_at
"""
_LIST: Final = f"""
SELECT {_COLUMNS} FROM exceptions.exception
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY opened_at DESC, exception_id LIMIT %(limit)s
"""  # noqa: S608 - the same


class ExceptionBook:
    """All exceptions, over the caller's connection in autocommit."""

    def __init__(self, connection: psycopg.Connection[Any], clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def open(self, draft: Draft) -> ExceptionRecord:
        """Ask for an exception; it permits nothing until its reviewer approved it.

        Raises:
            RefusedError: something is missing, the reviewer opens it, or its delivery has one that is not over.
        """
        now = self._clock.now()
        check_draft(draft, now)
        values = {**asdict(draft), "exception_id": uuid4(), "opened_at": now}
        try:
            return self._one(_OPEN, values)
        except psycopg.errors.UniqueViolation as error:
            raise RefusedError(
                f"delivery {draft.delivery_id} has an exception that is opened or approved: `waybill exceptions list`",
                rule="one-at-a-time",
            ) from error

    def move(self, exception_id: UUID, move: Move, by: str, why: str) -> ExceptionRecord:
        """Approve, reject or expire one.

        Raises:
            ConfigError: there is none of that id.
            RefusedError: it may not be moved so, now, by this person.
        """
        now = self._clock.now()
        with self._connection.transaction():
            record = self._one(_ONE, (exception_id,))
            state = judge(record, move, by, now)
            return self._one(_MOVE, (state.value, by, now, why, exception_id))

    def expire_due(self) -> list[ExceptionRecord]:
        """Move everything whose time is over to its end; each is an entry of the audit."""
        due = self._connection.execute(_DUE, (self._clock.now(),)).fetchall()
        return [self.move(exception_id, Move.EXPIRE, CLOCK, "its time is over") for (exception_id,) in due]

    def list(self, tenant: str | None, state: ExceptionState | None, limit: int) -> Sequence[ExceptionRecord]:
        """Return exceptions, newest first."""
        wanted = {"tenant": tenant, "state": state and state.value, "limit": limit}
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return [_record(row) for row in cursor.execute(_LIST.encode(), wanted)]

    def _one(self, statement: str, values: Any) -> ExceptionRecord:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(statement.encode(), values).fetchone()
        if row is None:
            raise ConfigError("there is no exception of that id: `waybill exceptions list` shows them")
        return _record(row)


def _record(row: dict[str, Any]) -> ExceptionRecord:
    return ExceptionRecord(**{**row, "state": ExceptionState(row["state"])})
