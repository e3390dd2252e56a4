"""The one place where Kafka learns anything: outcomes, states and offsets, one transaction per micro-batch.

The loop collects what is to be written; a thread of its own runs the transactions, one at a time. Every
transaction that writes anything for a partition also carries that partition's offset under the group metadata of
its assignment, moved or not: that is the fence. A refused offset condemns its own partition only; the others are
tried again without it, then it alone. The lease of a partition counts from the *start* of the last transaction
that succeeded with its offset.

A batch of many partitions goes in several transactions, and each tells its own when it has ended.

What breaks otherwise: a transaction held open over an HTTP call hides everybody's results; one `send_offsets` for
all partitions throws away the progress of those kept; one transaction for hundreds of partitions lasts longer than
the lease it grants, and nothing is attempted ever again.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from waybill.infra.kafka import (
    OffsetMove,
    OffsetRefusedError,
    Outgoing,
    ProducerLostError,
    TransactionalProducer,
    TransactionError,
)
from waybill.infra.log import get_logger
from waybill.infra.strand import Strand
from waybill.kernel.clock import Clock
from waybill.kernel.errors import InvariantBroken

__all__ = ["Committer", "Fenced", "Pace"]

#: Waits after a failed transaction, seconds; the last repeats.
_WAITS: Final = (0.02, 0.1, 0.5, 1.0)


class Fenced(Protocol):
    """One assigned partition, as the committer sees it."""

    @property
    def is_dropped(self) -> bool:
        """Whether nothing of it may be said any more: what was collected and not begun is left out."""
        ...

    def offset_move(self) -> OffsetMove:
        """Return the offset everything below which is settled, stored or not ours, with its proof of ownership."""
        ...

    def carried(self, started: float, move: OffsetMove) -> None:
        """Learn that a transaction that began at `started` carried it."""
        ...

    def refused(self) -> None:
        """Learn that the partition is not ours any more."""
        ...


class Entry(NamedTuple):
    """Records of one partition that belong together."""

    owner: Fenced
    records: tuple[Outgoing, ...]
    done: Callable[[], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How results are gathered into transactions."""

    interval_s: float = 0.1
    max_records: int = 2000
    #: In one transaction: each costs a round trip to the brokers, all of them much less than a lease together.
    max_partitions: int = 64


@dataclass(slots=True)
class _Part:
    """One partition's share of a batch."""

    owner: Fenced
    move: OffsetMove
    records: list[Outgoing] = field(default_factory=list)
    done: list[Callable[[], None]] = field(default_factory=list)
    #: Who waits for exactly this batch.
    waiters: list[asyncio.Future[bool]] = field(default_factory=list)
    started: float | None = None

    def tell(self) -> None:
        """Tell the partition whether its share was accepted, and who waits for it."""
        if self.started is None:
            self.owner.refused()
        else:
            self.owner.carried(self.started, self.move)
            for done in self.done:
                done()
        self.answer(accepted=self.started is not None)

    def answer(self, *, accepted: bool) -> None:
        """Tell who waits."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(accepted)


class Committer:
    """Collects on the loop, commits on its strand."""

    def __init__(
        self,
        make_producer: Callable[[], TransactionalProducer],
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        strand: Strand[list[_Part] | None],
        pace: Pace | None = None,
    ) -> None:
        """Take what it needs; `on_broken` is called on the loop when the strand ends by an error of ours."""
        self._make_producer, self._clock, self._pace = make_producer, clock, pace or Pace()
        self._strand = strand
        self._on_broken = on_broken
        self._log = get_logger("delivery")
        self._loop = asyncio.get_running_loop()
        self._entries: list[Entry] = []
        self._count = 0
        self._touched: dict[Fenced, None] = {}
        self._waiters: dict[Fenced, list[asyncio.Future[bool]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._busy = self._urgent = False
        self._batch = 0
        self._closed = threading.Event()
        #: Counts for metrics: transactions, records, seconds in transactions, failures.
        self.transactions = self.records = self.failures = 0
        self.seconds, self.is_connected = 0.0, False

    def start(self) -> None:
        """Start the strand; it connects at once, and again whenever it lost its producer."""
        self._strand.start(self._work())

    async def close(self) -> None:
        """End the strand after the batch under way; what was collected since is dropped."""
        self._closed.set()
        self._strand.give(None)
        while self._strand.is_alive:  # noqa: ASYNC110 - a thread has no event to await
            await asyncio.sleep(0.01)

    # On the loop

    def add(self, owner: Fenced, records: tuple[Outgoing, ...], done: Callable[[], None] | None = None) -> None:
        """Write records of a partition with the next transaction; `done` is called once Kafka has them."""
        self._entries.append(Entry(owner, records, done))
        self._count += len(records)
        if not self._busy and (self._timer is None or self._count >= self._pace.max_records):
            self._arm()

    def carry(self, owner: Fenced, *, at_once: bool = False) -> None:
        """Carry a partition's offset with the next transaction although nothing is written for it."""
        self._touched[owner] = None
        self._urgent = self._urgent or at_once
        if not self._busy:
            self._arm()

    async def carried(self, owner: Fenced, timeout_s: float) -> bool:
        """Carry a partition's offset in a transaction of its own time; return whether that was accepted in time."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiters.setdefault(owner, []).append(future)
        self.carry(owner, at_once=True)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False

    async def settled(self) -> None:
        """Wait until the batch under way has ended, however it ends."""
        batch = self._batch
        while self._busy and self._batch == batch:  # noqa: ASYNC110 - a fact without an event
            await asyncio.sleep(0.01)

    def _arm(self) -> None:
        if self._urgent or self._count >= self._pace.max_records:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._pace.interval_s, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy or self._closed.is_set() or not (self._entries or self._touched):
            return
        parts = self._gather()
        if parts:
            self._busy = True
            self._strand.give(parts)

    def _gather(self) -> list[_Part]:
        """Turn what was collected into shares of partitions; what was dropped meanwhile is left out."""
        parts: dict[Fenced, _Part] = {}
        for owner, records, done in self._entries:
            part = parts.get(owner)
            if part is None:
                part = parts[owner] = _Part(owner, owner.offset_move())
            part.records.extend(records)
            if done is not None:
                part.done.append(done)
        for owner in self._touched:
            if owner not in parts:
                parts[owner] = _Part(owner, owner.offset_move())
        self._entries, self._count, self._urgent = [], 0, False
        self._touched = {}
        kept = []
        for owner, part in parts.items():
            part.waiters = self._waiters.pop(owner, [])
            if owner.is_dropped:
                part.answer(accepted=False)
            else:
                kept.append(part)
        return kept

    def _tell(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            part.tell()

    def _finish(self) -> None:
        self._busy = False
        self._batch += 1
        if self._entries or self._touched:
            self._arm()

    # On the strand

    async def _work(self) -> None:
        try:
            await self._serve()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._on_broken, error)
            raise

    async def _serve(self) -> None:
        producer = await self._first()
        while (parts := await self._strand.take()) is not None:
            producer = await self._commit_all(producer, parts)
            if self._closed.is_set():
                break
            self._loop.call_soon_threadsafe(self._finish)
        if producer is not None:
            producer.close()

    async def _first(self) -> TransactionalProducer | None:
        """Connect before there is anything to write: a worker without traffic is ready, and finds out what keeps it from it."""
        while not self._closed.is_set():
            try:
                return await self._connect()
            except ProducerLostError as error:
                await self._failed(error, len(_WAITS))
        return None

    async def _failed(self, error: TransactionError | ProducerLostError, failures: int, partitions: int = 0) -> None:
        """Count and tell a failure, then wait the longer the more there were."""
        self.failures += 1
        self._log.warning("transaction.failed", reason=str(error), error_code=error.fault.value, partitions=partitions)
        await self._strand.wait(self._closed, _WAITS[min(failures, len(_WAITS) - 1)])

    async def _commit_all(
        self, producer: TransactionalProducer | None, parts: list[_Part]
    ) -> TransactionalProducer | None:
        """Commit every part that is still ours and tell all of them, each share when its transaction has ended."""
        size = self._pace.max_partitions
        groups = [parts[first : first + size] for first in range(0, len(parts), size)]
        failures = 0
        while groups and not self._closed.is_set():
            group = groups.pop(0)
            ours = [part for part in group if not part.owner.is_dropped]
            try:
                producer = producer or await self._connect()
                if ours:
                    await self._commit(producer, ours)
            except OffsetRefusedError as refused:
                if len(ours) > 1:  # the others first, then the refused one alone
                    alone = ours[refused.index]
                    groups[0:0] = [[part for part in group if part is not alone], [alone]]
                    continue
            except (TransactionError, ProducerLostError) as error:
                if isinstance(error, ProducerLostError):
                    self.is_connected, producer = False, None
                await self._failed(error, failures, len(group))
                failures += 1
                groups.insert(0, group)
                continue
            self._loop.call_soon_threadsafe(self._tell, group)
        return producer

    async def _connect(self) -> TransactionalProducer:
        producer = await self._strand.call(self._make_producer)
        self.is_connected = True
        return producer

    async def _commit(self, producer: TransactionalProducer, group: Sequence[_Part]) -> None:
        started = self._clock.monotonic()
        records = [record for part in group for record in part.records]
        await self._strand.call(producer.commit, records, [part.move for part in group])
        for part in group:
            if part.started is not None:
                raise InvariantBroken("a partition was carried twice by one batch")
            part.started = started
        self.transactions += 1
        self.records += len(records)
        self.seconds += self._clock.monotonic() - started
