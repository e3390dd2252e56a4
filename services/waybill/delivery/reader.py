"""The thread that owns one consumer: polls, picks out what is ours, hands over one batch at a time.

It waits until the loop has taken a batch before it polls again, so that what is read and not yet counted by the
lanes is one batch at most. Only this thread, the reader's strand, touches the consumer; others leave it errands.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from waybill.infra.kafka import GroupReader, Listener, Record
from waybill.infra.log import get_logger
from waybill.infra.strand import Strand
from waybill.kernel.errors import FabricError

__all__ = ["Owner", "ReaderThread", "Receiver"]

T = TypeVar("T")

_BATCH: Final = 1000
_POLL_S: Final = 0.05
#: How long a look may last at most once nothing was found for a while.
_QUIET_POLL_S: Final = 0.25
#: How long a revocation may take in all; well below `max.poll.interval.ms`.
_GIVE_BACK_S: Final = 12.0


def look_s(found_nothing: int) -> float:
    """Return how long the next look for records lasts after so many that found nothing.

    A record ends a look at once; only an errand waits for its end. So a reader with work looks briefly, and hundreds
    of quiet destinations do not wake their process thousands of times a second.
    """
    return min(_POLL_S * max(1, found_nothing // 10), _QUIET_POLL_S)


class Owner(Protocol):
    """Who owns one assigned partition."""

    partition: int


class Receiver(Protocol):
    """Who is told; `assign` and `select` run on the reader's thread, everything else on the loop."""

    def assign(self, partition: int, group_metadata: object) -> Owner:
        """Make the owner of a partition that was just assigned."""
        ...

    def select(self, records: Sequence[Record]) -> Sequence[tuple[int, Sequence[Any], int]]:
        """Pick out what is ours: (partition, what to hand over, offset after the last record)."""
        ...

    def assigned(self, owner: Any) -> None:
        """Start to take a partition."""
        ...

    def accept(self, batches: list[tuple[Any, Sequence[Any], int]]) -> None:
        """Take what was read."""
        ...

    async def give_back(self, owners: Sequence[Any]) -> None:
        """Finish with partitions; they are let go when this returns."""
        ...

    def dropped(self, owners: Sequence[Any]) -> None:
        """Forget partitions that already belong to somebody else."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """Learn that the thread is over; without an error it was asked to."""
        ...


class ReaderThread(Listener):
    """One group member and its thread."""

    def __init__(
        self, make: Callable[[Listener], GroupReader], receiver: Receiver, name: str, strand: Strand[None]
    ) -> None:
        self._make, self._receiver, self._strand = make, receiver, strand
        self._loop = asyncio.get_running_loop()
        self._errands: deque[Callable[[GroupReader], Awaitable[None]]] = deque()
        self._stop = threading.Event()
        self._taken = threading.Event()
        self._taken.set()
        self._owners: dict[int, Owner] = {}
        self._found_nothing = 0
        self._log = get_logger("delivery").bind(group=name)

    def start(self) -> None:
        """Join the group."""
        self._strand.start(self._work())

    async def stop(self) -> None:
        """Give everything back and leave the group."""
        self._stop.set()
        while self._strand.is_alive:  # noqa: ASYNC110 - a thread has no event to await
            await asyncio.sleep(0.01)

    def leave(self) -> None:
        """Leave the group soon; whoever runs it learns by `ended`. A group without members can be given its start."""
        self._stop.set()

    async def ask(self, errand: Callable[[GroupReader], T]) -> T:
        """Run an errand on the reader's thread and return its answer."""
        answer: Future[T] = Future()

        async def run(reader: GroupReader) -> None:
            try:
                answer.set_result(await self._strand.call(errand, reader))
            except FabricError as error:
                answer.set_exception(error)

        self._errands.append(run)
        return await asyncio.wrap_future(answer)

    def tell(self, errand: Callable[[GroupReader], None]) -> None:
        """Leave an errand without waiting for it."""

        async def run(reader: GroupReader) -> None:
            errand(reader)

        self._errands.append(run)

    # On the thread

    def reassign(self, partition: int, reader: GroupReader) -> None:
        """Start over with a partition that is still assigned: a new owner, with the group metadata of now."""
        if partition in self._owners:
            reader.rewind(partition)
            self.assigned(partition, reader.group_metadata())

    def assigned(self, partition: int, group_metadata: object) -> None:
        """Make the owner and tell the loop."""
        self._found_nothing = 0
        owner = self._receiver.assign(partition, group_metadata)
        self._owners[partition] = owner
        self._loop.call_soon_threadsafe(self._receiver.assigned, owner)

    def revoked(self, partitions: Sequence[int]) -> None:
        """Let the loop finish with partitions; this thread waits, the loop goes on with the others."""
        self._strand.run(self._finish_with(partitions))

    async def _finish_with(self, partitions: Sequence[int]) -> None:
        owners = [self._owners.pop(partition) for partition in partitions if partition in self._owners]
        if owners:
            done = asyncio.run_coroutine_threadsafe(self._give_back(owners), self._loop)
            try:
                await self._strand.result(done, _GIVE_BACK_S)
            except TimeoutError:
                self._log.warning("partitions.given_back_late", partitions=list(partitions))

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions."""
        owners = [self._owners.pop(partition) for partition in partitions if partition in self._owners]
        self._log.warning("partitions.lost", partitions=list(partitions))
        self._loop.call_soon_threadsafe(self._receiver.dropped, owners)

    async def _give_back(self, owners: Sequence[Owner]) -> None:
        await self._receiver.give_back(owners)

    async def _work(self) -> None:
        error: BaseException | None = None
        try:
            await self._serve()
        except BaseException as caught:
            error = caught
        self._loop.call_soon_threadsafe(self._receiver.ended, error)

    async def _serve(self) -> None:
        reader = await self._strand.call(self._make, self)
        try:
            reader.subscribe()
            while not self._stop.is_set():
                while self._errands:
                    self._found_nothing = 0
                    await self._errands.popleft()(reader)
                if await self._strand.wait(self._taken, _POLL_S):
                    records = await self._strand.call(reader.poll, _BATCH, look_s(self._found_nothing))
                    self._found_nothing = 0 if records else self._found_nothing + 1
                    if records:
                        self._hand_over(records)
        finally:
            await self._strand.call(reader.close)

    def _hand_over(self, records: Sequence[Record]) -> None:
        owners = self._owners
        batches = [
            (owners[partition], chosen, position)
            for partition, chosen, position in self._receiver.select(records)
            if partition in owners
        ]
        self._taken.clear()
        self._loop.call_soon_threadsafe(self._take, batches)

    def _take(self, batches: list[tuple[Owner, Sequence[Any], int]]) -> None:
        try:
            self._receiver.accept(batches)
        finally:
            self._taken.set()
