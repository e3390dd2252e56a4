"""Records of some topics for all who watch their partitions: one consumer by assignment, never paused, on its own strand.

Watchers stand at different offsets of the same partition, since each remembers its own beside its committed offset: the
consumer goes back for who is behind, and nobody gets a record twice. A record that cannot be read is passed over and
told; while the registry does not answer, the reading waits.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from waybill.infra.log import get_logger
from waybill.infra.strand import Strand
from waybill.infra.topic_reader import PlacedRecord, TopicReader
from waybill.kernel.errors import ContractError, UnavailableError

__all__ = ["TopicFeed", "Watcher"]

_POLL_S: Final = 0.2
_REGISTRY_S: Final = 1.0

Said = TypeVar("Said")
Said_contra = TypeVar("Said_contra", contravariant=True)
Place = tuple[str, int]


class Watcher(Protocol[Said_contra]):
    """Who is told what the records of one partition say."""

    #: The offset after the last record it was given.
    read_to: int

    def take(self, offset: int, said: Said_contra | None) -> None:
        """Take what one record says; None where it says nothing."""
        ...


class TopicFeed(Generic[Said]):
    """What is said in all partitions that are watched; lives on the loop, reads on its strand."""

    def __init__(
        self,
        make: Callable[[], TopicReader],
        decode: Callable[[PlacedRecord], Said],
        strand: Strand[None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        """Take what it needs.

        Args:
            make: connects; called on the strand.
            decode: reads a record that has a value; called on the strand, may block.
            strand: to read on.
            on_broken: called on the loop when the strand ends by an error.
        """
        self._make, self._decode, self._strand, self._on_broken = make, decode, strand, on_broken
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[Place, list[Watcher[Said]]] = {}
        #: Those whose partition is not watched from their offset yet.
        self._joining: dict[Place, list[Watcher[Said]]] = {}
        self._errands: deque[Callable[[TopicReader], None]] = deque()
        self._stop = threading.Event()
        self._is_started = False
        self._log = get_logger("topics")

    def watch(self, place: Place, watcher: Watcher[Said]) -> None:
        """Give a watcher every record of a partition from where it stands on."""
        offset = watcher.read_to
        self._joining.setdefault(place, []).append(watcher)

        def errand(reader: TopicReader) -> None:
            reader.watch(*place, offset)
            # After whatever was read before it: else a later record would hide the ones before.
            self._loop.call_soon_threadsafe(self._join, place, watcher)

        self._errands.append(errand)
        if not self._is_started:
            self._is_started = True
            self._strand.start(self._work())

    def forget(self, place: Place, watcher: Watcher[Said]) -> None:
        """Give it nothing more."""
        for listed in (self._watchers, self._joining):
            if watcher in listed.get(place, ()):
                listed[place].remove(watcher)
        if not self._watchers.get(place) and not self._joining.get(place):
            self._errands.append(lambda reader: reader.forget(*place))

    def _join(self, place: Place, watcher: Watcher[Said]) -> None:
        if watcher in self._joining.get(place, ()):
            self._joining[place].remove(watcher)
            self._watchers.setdefault(place, []).append(watcher)

    async def close(self) -> None:
        """End the strand."""
        self._stop.set()
        while self._strand.is_alive:  # noqa: ASYNC110 - a thread has no event to await
            await asyncio.sleep(0.01)

    def _take(self, found: Sequence[tuple[PlacedRecord, Said | None]]) -> None:
        for record, said in found:
            for watcher in tuple(self._watchers.get((record.topic, record.partition), ())):
                if record.offset >= watcher.read_to:
                    watcher.read_to = record.offset + 1
                    watcher.take(record.offset, said)

    # On the strand

    async def _work(self) -> None:
        try:
            await self._serve()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._on_broken, error)
            raise

    async def _serve(self) -> None:
        reader = await self._strand.call(self._make)
        try:
            while not self._stop.is_set():
                while self._errands:
                    self._errands.popleft()(reader)
                records = await self._strand.call(reader.poll, _POLL_S)
                if records and not self._stop.is_set():
                    found = [(record, await self._read(record)) for record in records]
                    self._loop.call_soon_threadsafe(self._take, found)
        finally:
            await self._strand.call(reader.close)

    async def _read(self, record: PlacedRecord) -> Said | None:
        while record.value is not None and not self._stop.is_set():
            try:
                return await self._strand.call(self._decode, record)
            except ContractError as error:
                place: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
                self._log.error("record.unreadable", reason=str(error), **place)
                return None
            except UnavailableError as error:
                self._log.warning("topics.waiting", reason=str(error))
                await self._strand.wait(self._stop, _REGISTRY_S)
        return None
