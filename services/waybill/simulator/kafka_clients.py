"""Consumer and transactional producer of a simulated process, under the names the worker calls.

What blocks in the real ones is something to wait for here. Call backs of a rebalance run inside `poll`, as the real
client's do.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from waybill.infra.kafka import (
    Listener,
    OffsetMove,
    OffsetRefusedError,
    Outgoing,
    ProducerLostError,
    Record,
    TransactionError,
)
from waybill.infra.topic_reader import PlacedRecord
from waybill.kernel.errors import TransientError
from waybill.simulator.broker import Broker, Committed, Stamp
from waybill.simulator.groups import Membership, Notice
from waybill.simulator.network import Network
from waybill.simulator.process import SimProcess

__all__ = ["SimDecisions", "SimProducer", "SimReader", "Wire"]

#: A frozen process asks again after so long.
_REJOIN_S: Final = 0.2
_FENCED: Final = "producer unusable: another one has its name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What ties clients to brokers."""

    broker: Broker
    network: Network
    #: Records a poll returns at most.
    most: int
    #: How much longer than asked an idle poll waits: a simulated second need not cost twenty of them.
    patience: float
    #: Told what positions owners to be were given.
    on_position: Callable[[SimProcess, Membership, int, Committed], None]


@dataclass(slots=True, eq=False)
class _Assigned:
    """One assigned partition."""

    is_paused: bool = True
    position: int | None = None


class SimReader:
    """One member of one group."""

    def __init__(self, process: SimProcess, wire: Wire, group: str, listener: Listener) -> None:
        self.process = process
        self._wire, self._broker, self._group, self._listener = wire, wire.broker, group, listener
        self._assigned: dict[int, _Assigned] = {}
        self._membership = Membership(group, "", -1)
        self._inbox: deque[Notice] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._is_open = True

    def notice(self, notice: Notice) -> None:
        """Take what the coordinator says; the next poll acts on it."""
        self._inbox.append(notice)
        self._wake()

    def subscribe(self) -> None:
        """Join the group."""
        self._broker.on_records(self._wake)
        self._join_soon()

    async def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Return what is there, or run the call backs of a rebalance."""
        await self.process.checkpoint()
        timeline = self.process.timeline
        end = timeline.now + timeout_s * self._wire.patience
        while True:
            if self._inbox:
                await self._heed(self._inbox.popleft())
                return []
            records = self._fetch(min(most, self._wire.most))
            if records or timeline.now >= end:
                return records
            self._waiting = self.process.loop.create_future()
            timer = self.process.loop.call_at(end, self._wake)
            await self._waiting
            timer.cancel()

    def resume(self, partition: int, start: int) -> None:
        """Read on, the first time from `start`."""
        found = self._assigned.get(partition)
        if found is not None:
            found.is_paused = False
            found.position = start if found.position is None else found.position

    def pause(self, partition: int) -> None:
        """Stop reading."""
        found = self._assigned.get(partition)
        if found is not None:
            found.is_paused = True

    async def stable_end(self, topic: str, partition: int, timeout_s: float) -> int:
        """Return how many records of a partition are decided.

        Raises:
            TransientError: not in time.
        """
        end: int = await self._wire.network.brokers(
            self.process, lambda answer: answer(self._broker.end(topic, partition))
        )
        return end

    async def committed(self, partition: int, timeout_s: float) -> Committed:
        """Return offset and note once they are stable.

        Raises:
            TransientError: not in time.
        """
        end, membership = self.process.timeline.now + timeout_s, self._membership

        def serve(answer: Callable[[Any], None]) -> None:
            def told(found: Committed | None) -> None:
                if found is not None:
                    self._wire.on_position(self.process, membership, partition, found)
                answer((found,))

            self._broker.when_stable(self._group, partition, end, told)

        (found,) = await self._wire.network.brokers(self.process, serve)
        if found is None:
            raise TransientError("the committed offset is not stable")
        result: Committed = found
        return result

    def group_metadata(self) -> Membership:
        """Return the membership as the client knows it."""
        return self._membership

    def rewind(self, partition: int) -> None:
        """Read a partition no more until its next owner says from where."""
        self._assigned[partition] = _Assigned()

    async def close(self) -> None:
        """Give everything back and leave."""
        await self.process.checkpoint()
        self._is_open = False
        self._broker.forget(self._wake)
        if self._assigned:
            self._listener.revoked(tuple(self._assigned))
            await self._driven()
            self._assigned.clear()
        self._soon(self._broker.groups.leave, self._group, self)

    # Private

    async def _heed(self, notice: Notice) -> None:
        partitions = [p for p in notice.partitions if p in self._assigned]
        if notice.kind == "assign":
            self._membership = notice.membership
            for partition in notice.partitions:
                self._assigned[partition] = _Assigned()
                self._listener.assigned(partition, notice.membership)
        elif notice.kind == "revoke":
            if partitions:
                self._listener.revoked(partitions)
                await self._driven()
            for partition in partitions:
                self._assigned.pop(partition, None)
            self._soon(self._broker.groups.gave_back, self._group, notice.membership.member, partitions)
        elif notice.membership.member == self._membership.member or not self._membership.member:
            self._listener.lost(tuple(self._assigned))
            self._assigned.clear()
            self._membership = Membership(self._group, "", -1)
            self._join_soon()

    def _fetch(self, most: int) -> list[Record]:
        for partition, found in self._assigned.items():
            if not found.is_paused and found.position is not None:
                records, found.position = self._broker.commands[partition].read(found.position, most)
                if records:
                    self._assigned[partition] = self._assigned.pop(partition)  # the others first next time
                    return records
        return []

    async def _driven(self) -> None:
        await self.process.driven.popleft()

    def _join_soon(self) -> None:
        life = self.process.life

        def join() -> None:
            if self._is_open and self.process.is_running and self.process.life == life:
                self._broker.groups.join(self._group, self)
            elif self._is_open and self.process.is_alive and self.process.life == life:
                self.process.timeline.after(_REJOIN_S, join)

        self._soon(join)

    def _soon(self, act: Callable[..., object], *arguments: Any) -> None:
        self.process.timeline.after(self._wire.network.broker_s(), act, *arguments)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done() and not self.process.loop.is_dead:
            self._waiting.set_result(None)


class SimDecisions:
    """A consumer by assignment of what people decided."""

    def __init__(self, process: SimProcess, wire: Wire) -> None:
        self._process, self._wire = process, wire
        self._positions: dict[tuple[str, int], int] = {}

    def watch(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition from an offset on; in topics of results nobody ever says anything."""
        if ".results." not in topic:
            self._positions[topic, partition] = offset

    def forget(self, topic: str, partition: int) -> None:
        """Read it no more."""
        self._positions.pop((topic, partition), None)

    async def poll(self, timeout_s: float) -> list[PlacedRecord]:
        """Return what is there, after a while."""
        await self._process.checkpoint()
        await asyncio.sleep(timeout_s)
        await self._process.checkpoint()
        found: list[PlacedRecord] = []
        for (topic, partition), position in list(self._positions.items()):
            records, self._positions[topic, partition] = self._wire.broker.decisions[partition].read(position, 10)
            found.extend(PlacedRecord(topic, partition, record.offset, record.value) for record in records)
        return found

    def close(self) -> None:
        """Close nothing."""


class SimProducer:
    """A transactional producer; `connect` makes one."""

    def __init__(self, process: SimProcess, wire: Wire, name: str, at_step: Callable[[str], None]) -> None:
        self._process, self._wire, self._name, self._at_step = process, wire, name, at_step
        self._epoch = 0

    @classmethod
    async def connect(cls, process: SimProcess, wire: Wire, name: str, at_step: Callable[[str], None]) -> "SimProducer":
        """Fence whoever had this name and go on in its place."""
        producer = cls(process, wire, name, at_step)
        producer._epoch = await producer._ask(lambda: wire.broker.begin(name))
        return producer

    async def commit(self, records: Iterable[Outgoing], offsets: Sequence[OffsetMove]) -> None:
        """Write all of it or nothing, in the steps of the real one.

        Raises:
            OffsetRefusedError: one partition is not ours; nothing was written.
            TransactionError: nothing was written.
            ProducerLostError: it is not known whether it was written.
        """
        broker, name, epoch = self._wire.broker, self._name, self._epoch
        listed, stamp = list(records), Stamp(self._process.who, self._process.timeline.now)
        self._at_step("produced")
        if listed:
            await self._step(lambda: broker.write(name, epoch, stamp, listed))
        self._at_step("flushed")
        for index, move in enumerate(offsets):
            taken = await self._step(lambda move=move: broker.send_offset(name, epoch, stamp, move))  # type: ignore[misc] # of this round
            if not taken:
                await self._ask(lambda: broker.abort(name, epoch))
                raise OffsetRefusedError(f"[{move.partition}] is not ours any more", index=index)
        self._at_step("offsets_sent")
        if not await self._ask(lambda: broker.commit(name, epoch)):
            raise ProducerLostError(_FENCED)
        self._at_step("committed")

    def close(self) -> None:
        """Forget it."""

    async def _step(self, serve: Callable[[], bool | None]) -> bool:
        """Do one step before the commit: it may fail so that the transaction is aborted."""
        if self._wire.network.fails_transaction():
            if not await self._ask(lambda: self._wire.broker.abort(self._name, self._epoch)):
                raise ProducerLostError(_FENCED)
            raise TransactionError("transaction aborted: by chance")
        taken: bool | None = await self._ask(serve)
        if taken is None:
            raise ProducerLostError(_FENCED)
        return taken

    async def _ask(self, serve: Callable[[], Any]) -> Any:
        """Ask the brokers; a lost request or a lost answer leaves us not knowing."""
        fate = self._wire.network.fate_of_transaction()

        def arrive(answer: Callable[[Any], None]) -> None:
            result = None if fate == "request_lost" else serve()
            answer(ProducerLostError("no answer of the brokers") if fate else (result,))

        (result,) = await self._wire.network.brokers(self._process, arrive)
        return result
