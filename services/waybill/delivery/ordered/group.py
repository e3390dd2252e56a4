"""A consumer group that goes through the records of each of its partitions in order.

One batch of a partition at a time; others go on meanwhile. What is read ahead is bounded by records and bytes: over
it the partition is paused. A position moves only past records that are settled, and is carried by the committer
together with what was written about them, under the group metadata of its assignment.

What breaks otherwise: a position that ran ahead loses a record at the next crash.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from waybill.delivery.committer import Committer
from waybill.delivery.ordered.partition import CarriedPartition
from waybill.delivery.ports import Clients
from waybill.delivery.reader import ReaderThread
from waybill.infra.kafka import GroupReader, Listener, Record
from waybill.infra.log import get_logger
from waybill.kernel.errors import TransientError
from waybill.kernel.ids import Tenant

__all__ = ["OrderedGroup", "Seat"]

_MAX_WAITING: Final = 2000
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Which group of which topic, and how its clients are made."""

    tenant: Tenant
    group: str
    topic: str
    bootstrap: str
    clients: Clients = field(default_factory=Clients)


class OrderedGroup(ABC):
    """One member of the group, on the loop; its reader has a thread."""

    def __init__(self, seat: Seat, committer: Committer) -> None:
        self.seat = seat
        #: What keeps it from its work, in words.
        self.problem: str | None = None
        self.has_ended = asyncio.Event()
        self.partitions: dict[int, CarriedPartition] = {}
        self._committer = committer
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger("delivery").bind(tenant=seat.tenant, group=seat.group)
        self._reader = ReaderThread(self._make_reader, self, seat.group, seat.clients.strand(f"reader {seat.group}"))

    @abstractmethod
    def select(self, records: Sequence[Record]) -> list[tuple[int, Sequence[Record], int]]:
        """Pick out what is to be settled, on the reader's thread: (partition, records, offset after the last one read)."""

    @abstractmethod
    async def settle(self, owner: CarriedPartition, batch: Sequence[Record]) -> None:
        """Settle records in their order and move `owner.position` behind them; return early when it is gone."""

    def start(self) -> None:
        """Join the group."""
        self._reader.start()

    async def stop(self) -> None:
        """Give everything back and leave the group."""
        await self._reader.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tick(self) -> None:
        """Carry positions that moved; called a few times a second."""
        for partition in self.partitions.values():
            if not partition.gone and partition.position > partition.committed:
                self._committer.carry(partition)

    def _make_reader(self, listener: Listener) -> GroupReader:
        seat = self.seat
        return seat.clients.reader(seat.bootstrap, seat.group, seat.topic, listener)

    # Receiver

    def assign(self, partition: int, group_metadata: object) -> CarriedPartition:
        """Make the owner of a partition, on the reader's thread."""
        return CarriedPartition(self.seat.topic, partition, group_metadata)

    def assigned(self, owner: CarriedPartition) -> None:
        """Find where to begin, then read."""
        self.partitions[owner.partition] = owner
        self._spawn(self._begin(owner))

    def accept(self, batches: list[tuple[CarriedPartition, Sequence[Record], int]]) -> None:
        """Settle what was picked out, one batch of a partition after the other."""
        for owner, records, position in batches:
            if owner.gone:
                continue
            owner.waiting.extend(records)
            owner.waiting_bytes += sum(len(record.value or b"") for record in records)
            owner.after = position
            is_much = len(owner.waiting) > _MAX_WAITING or owner.waiting_bytes > _MAX_WAITING_BYTES
            if is_much and not owner.is_held:
                owner.is_held = True
                self._reader.tell(lambda reader, p=owner.partition: reader.pause(p))  # type: ignore[misc]
            if owner.waiting and not owner.is_working:
                owner.is_working = True
                self._spawn(self._work(owner))
            elif not owner.is_working:
                owner.position = position

    async def give_back(self, owners: Sequence[CarriedPartition]) -> None:
        """Say how far it got and let go."""
        for owner in owners:
            owner.gone = True
            if owner.position >= 0:
                owner.released = True
                await self._committer.carried(owner, 3.0)
            self.partitions.pop(owner.partition, None)

    def dropped(self, owners: Sequence[CarriedPartition]) -> None:
        """Forget partitions."""
        for owner in owners:
            owner.gone = owner.is_dropped = True
            self.partitions.pop(owner.partition, None)

    def ended(self, error: BaseException | None) -> None:
        """Note that the group is left."""
        if error is not None:
            self.problem = str(error)
            self._log.error("group.ended", reason=str(error), error=type(error).__name__)
        self.dropped(list(self.partitions.values()))
        self.has_ended.set()

    async def _begin(self, owner: CarriedPartition) -> None:
        while not owner.gone:
            try:
                found = await self._reader.ask(lambda reader: reader.committed(owner.partition, 0.5))
            except TransientError:
                await asyncio.sleep(0.3)
                continue
            if found is None:
                self.problem = f"no committed offset on {self.seat.topic}[{owner.partition}]: run `waybill apply`"
                self._log.error("partition.not_taken", partition=owner.partition, reason=self.problem)
                self._reader.leave()
                return
            owner.position = owner.committed = found[0]
            self._reader.tell(lambda reader: None if owner.gone else reader.resume(owner.partition, owner.position))
            return

    async def _work(self, owner: CarriedPartition) -> None:
        try:
            while owner.waiting and not owner.gone:
                batch, owner.waiting, owner.waiting_bytes = owner.waiting, [], 0
                await self.settle(owner, batch)
                if owner.is_held and len(owner.waiting) * 2 < _MAX_WAITING:
                    owner.is_held = False
                    self._reader.tell(
                        lambda reader: None if owner.gone else reader.resume(owner.partition, owner.position)
                    )
            if not owner.gone:
                owner.position = owner.after
        finally:
            owner.is_working = False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
