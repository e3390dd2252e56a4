"""The producers: several threads, each with its own connection, one business transaction after another.

Each step is what an application does: its own row and a command in one transaction, through the SDK. Some are rolled
back first; they must leave neither row nor command. A serialization failure or a deadlock runs the transaction again.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Final

import psycopg

from waybill.demo.core.script import Step
from waybill.demo.core.verdict import Issued
from waybill.demo.site import Site
from waybill.infra.postgres import connect
from waybill.outbox import CommandDraft, Emitted, Outbox, is_retryable

__all__ = ["Producers"]

WRITERS: Final = 4
#: Between two transactions of one writer: a day's work in some seconds, slow enough to be watched.
PACE_S: Final = 0.03
TRIES: Final = 5

NOTE: Final = "INSERT INTO business_change (run, thing, what) VALUES (%s, %s, %s)"


class _RolledBack(Exception):  # noqa: N818 - a signal, not an error
    """A transaction that was not meant to commit."""


class Producers:
    """Emits the steps of both tenants; `issued` grows as transactions commit and may be read meanwhile."""

    def __init__(self, site: Site, run: str, steps: Iterable[Step]) -> None:
        self._site, self._run = site, run
        self._queues: dict[str, SimpleQueue[Step]] = {}
        for step in steps:
            self._queues.setdefault(step.tenant, SimpleQueue()).put(step)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._issued: list[Issued] = []
        #: Committed commands so far.
        self.commands = 0
        #: Transactions that were rolled back on purpose.
        self.rolled_back = 0
        self._pool = ThreadPoolExecutor(WRITERS * len(self._queues), thread_name_prefix="producer")
        self._futures = [
            self._pool.submit(self._write, tenant, queue)
            for tenant, queue in self._queues.items()
            for _ in range(WRITERS)
        ]

    def check(self) -> bool:
        """Return whether all is emitted; raises what a writer raised."""
        done = [future for future in self._futures if future.done()]
        for future in done:
            future.result()
        return len(done) == len(self._futures)

    def issued(self) -> Sequence[Issued]:
        """Return the deliveries promised so far."""
        with self._lock:
            return list(self._issued)

    def close(self) -> None:
        """Stop after the transactions under way; does nothing when all is emitted."""
        self._stop.set()
        self._pool.shutdown()

    def business_rows(self) -> int:
        """Count the business rows of this run."""
        count = 0
        for tenant in self._queues:
            with closing(connect(self._site.producer_dsn(tenant), application_name="waybill-demo")) as connection:
                row = connection.execute("SELECT count(*) FROM business_change WHERE run = %s", (self._run,)).fetchone()
                count += row[0] if row else 0
        return count

    def _write(self, tenant: str, queue: SimpleQueue[Step]) -> None:
        with closing(connect(self._site.producer_dsn(tenant), application_name="waybill-demo-producer")) as connection:
            while not self._stop.is_set():
                try:
                    step = queue.get_nowait()
                except Empty:
                    return
                if step.is_rolled_back_first:
                    self._roll_back(connection, step)
                self._commit(connection, step)
                self._stop.wait(PACE_S)

    def _roll_back(self, connection: psycopg.Connection, step: Step) -> None:
        try:
            self._transaction(connection, step, commits=False)
        except _RolledBack:
            with self._lock:
                self.rolled_back += 1

    def _commit(self, connection: psycopg.Connection, step: Step) -> None:
        for left in reversed(range(TRIES)):
            try:
                emitted = self._transaction(connection, step, commits=True)
            except psycopg.Error as error:
                if not left or not is_retryable(error):
                    raise
            else:
                self._note(step, emitted)
                return

    def _transaction(self, connection: psycopg.Connection, step: Step, *, commits: bool) -> Emitted:
        draft = CommandDraft(
            aggregate_type=step.aggregate_type,
            aggregate_id=step.aggregate_id,
            command_type=step.command_type,
            data=step.data,
            request_id=step.request_id,
            request_size=step.request_size,
        )
        with connection.transaction(), Outbox(connection, tenant=step.tenant).collect() as box:
            connection.execute(NOTE, (self._run, f"{step.aggregate_type}/{step.aggregate_id}", step.command_type))
            box.emit(draft)
            if not commits:
                raise _RolledBack
        return box.emitted[0]

    def _note(self, step: Step, emitted: Emitted) -> None:
        with self._lock:
            self.commands += 1
            self._issued += [
                Issued(
                    tenant=step.tenant,
                    destination=name,
                    command_id=emitted.command_id,
                    delivery_id=emitted.delivery_ids[name],
                    aggregate=emitted.aggregate,
                    sequence=sequence,
                )
                for name, sequence in emitted.sequences.items()
            ]
