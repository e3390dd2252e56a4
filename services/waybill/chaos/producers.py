"""The producers: threads that commit commands through the outbox, whatever happens to the database meanwhile.

In the transaction that emits, each also notes what it promises in a table of its own. When the database dies under a
commit nobody knows whether it happened; the notes do, since they commit with the commands or not at all. So what was
promised is read from the notes at the end, never from a producer's memory.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from waybill.chaos.core.draws import draw
from waybill.chaos.town import AGGREGATE_TYPE, TENANT, command_type
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import TransientError, UnavailableError
from waybill.outbox import CommandDraft, Emitted, Outbox

__all__ = ["Load", "Producers", "read_promises"]

WRITERS: Final = 4
#: Commands in one transaction.
BATCH: Final = 8
AGAIN_S: Final = 0.3

NOTE: Final = "INSERT INTO promise (run, delivery_id, destination, aggregate, sequence) VALUES (%s, %s, %s, %s, %s)"
PROMISES: Final = "SELECT delivery_id::text, destination, aggregate, sequence FROM promise WHERE run = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is committed."""

    seed: int
    #: Rounded up to whole transactions.
    commands: int
    aggregates: int
    seconds: float


class Producers:
    """Commits commands, spread evenly over the time given."""

    def __init__(self, dsn: str, run: str, load: Load) -> None:
        self._dsn, self._run, self._load = dsn, run, load
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken = 0
        #: Numbers whose transaction was interrupted: their commands are emitted again, whether or not it committed.
        self._free: list[int] = []
        #: Commands whose commit was confirmed, and transactions that had to be begun again.
        self.committed = self.interrupted = 0
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="producer")
        self._futures = [self._pool.submit(self._write) for _ in range(WRITERS)]

    def are_done(self) -> bool:
        """Whether all is committed; raises what a writer raised that is not the database being away."""
        for future in self._futures:
            if future.done():
                future.result()
        return self.committed >= self._load.commands

    def close(self) -> None:
        """Stop after the transactions under way."""
        self._stop.set()
        self._pool.shutdown()

    def _write(self) -> None:
        while not self._stop.is_set() and not self._is_over():
            with suppress(psycopg.OperationalError, psycopg.InterfaceError, TransientError, UnavailableError):
                self._write_while_it_lasts()
            self._stop.wait(AGAIN_S)

    def _write_while_it_lasts(self) -> None:
        with closing(connect(self._dsn, application_name="waybill-chaos-producer")) as connection:
            while not self._stop.is_set() and not self._is_over():
                first = self._take()
                if first is None:
                    self._stop.wait(0.02)
                    continue
                try:
                    self._transaction(connection, first)
                except psycopg.Error:
                    with self._lock:
                        self.interrupted += 1
                        self._free.append(first)
                    raise
                with self._lock:
                    self.committed += BATCH

    def _take(self) -> int | None:
        """Return the number of the next command that is due; None when none is."""
        load = self._load
        with self._lock:
            if self._free:
                return self._free.pop()
            due = (self._clock.monotonic() - self._began) / load.seconds * load.commands
            if self._taken >= min(due, load.commands):
                return None
            first = self._taken
            self._taken += BATCH
            return first

    def _is_over(self) -> bool:
        with self._lock:
            return not self._free and self.committed >= self._load.commands

    def _transaction(self, connection: psycopg.Connection, first: int) -> None:
        with connection.transaction():
            with Outbox(connection, tenant=TENANT).collect() as box:
                for number in range(first, first + BATCH):
                    box.emit(self._draft(number))
            with connection.cursor() as cursor:
                cursor.executemany(NOTE, [row for emitted in box.emitted for row in self._notes(emitted)])

    def _draft(self, number: int) -> CommandDraft:
        chosen = int(draw(self._load.seed, "aggregate", number) * self._load.aggregates)
        return CommandDraft(
            aggregate_type=AGGREGATE_TYPE,
            aggregate_id=f"{self._run}-{chosen:05d}",
            command_type=command_type(number),
            data={"number": number, "note": "x" * 60},
        )

    def _notes(self, emitted: Emitted) -> list[tuple[Any, ...]]:
        return [
            (self._run, emitted.delivery_ids[name], name, emitted.aggregate, sequence)
            for name, sequence in emitted.sequences.items()
        ]


def read_promises(dsn: str, run: str) -> list[dict[str, Any]]:
    """Return what the producers of a campaign committed, a line of the book each."""
    with closing(connect(dsn, application_name="waybill-chaos")) as connection:
        return [
            {"delivery_id": delivery, "destination": destination, "aggregate": aggregate, "sequence": sequence}
            for delivery, destination, aggregate, sequence in connection.execute(PROMISES, (run,)).fetchall()
        ]
