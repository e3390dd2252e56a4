"""A connection on which several statements make one trip to the server and back.

What a delivery costs is mostly waiting for statements, each of them a message, a wake-up and an answer. Two of a
delivery's statements need nothing that comes back from those before them: the claim behind `BEGIN`, and `COMMIT` behind
the receipt. They travel together in a pipeline of libpq, and the server stops at the first one that fails: a `COMMIT`
behind a receipt that could not be recorded is never executed.

While a connection is lent to a delivery its transaction is the delivery's: whoever works on it cannot end it.
"""

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

__all__ = ["BEGIN", "COMMIT", "Results", "Statement", "TripConnection", "instant"]

Results: TypeAlias = list[pq.abc.PGresult]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with the server's own placeholders, and its values in the server's binary form."""

    text: bytes
    values: Sequence[bytes | None] = ()


_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)

BEGIN: Final = Statement(b"BEGIN")
COMMIT: Final = Statement(b"COMMIT")


class TripConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection in autocommit, whose transactions are begun and ended by trips."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what psycopg gives it."""
        super().__init__(*args, **kwargs)
        #: Whether a delivery works on it.
        self.is_lent = False

    async def trip(self, *statements: Statement) -> Results:
        """Send all of them at once and return their results, one each.

        Raises:
            psycopg.Error: of the first one that failed; those behind it were not executed.
        """
        async with self.lock:
            try:
                results = await self.wait(_there_and_back(self.pgconn, statements))
            finally:
                if self.pgconn.status == pq.ConnStatus.OK and self.pgconn.pipeline_status:
                    self.pgconn.finish()  # what is still to come would be taken for the answer to the next statement
        for result in results:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result, self.info.encoding)
        return results

    async def undo(self) -> None:
        """Roll back what was begun; a connection that cannot is closed by the pool."""
        self.is_lent = False
        with contextlib.suppress(psycopg.Error):
            await self.rollback()

    async def commit(self) -> None:
        """As psycopg's; refuses while a delivery works on it."""
        self._check_free()
        await super().commit()

    async def rollback(self) -> None:
        """As psycopg's; refuses while a delivery works on it."""
        self._check_free()
        await super().rollback()

    def _check_free(self) -> None:
        if self.is_lent:
            raise psycopg.ProgrammingError("the transaction is the delivery's: raise, and it is rolled back")


def instant(moment: datetime) -> bytes:
    """Return a moment as a value of type `timestamptz`."""
    return ((moment - _EPOCH) // _TICK).to_bytes(8, "big", signed=True)


def _there_and_back(pgconn: pq.abc.PGconn, statements: Sequence[Statement]) -> Generator[Wait, Ready | int, Results]:
    pgconn.enter_pipeline_mode()
    for statement in statements:
        formats = [pq.Format.BINARY] * len(statement.values)
        pgconn.send_query_params(statement.text, statement.values, None, formats)
    pgconn.pipeline_sync()
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    results: Results = []
    while True:
        yield Wait.R
        pgconn.consume_input()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:  # between the results of two statements
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                return results
            results.append(result)
