"""Listens for one owner to what its destination says later, and ends the waits in which nothing was said.

What arrives is verified, written down, and only then behind us (`position`, which travels beside the committed offset).
What is believed is weighed where the delivery comes up (`weighing`). A wait ends only after everything that had arrived
when its time was over was written down (RS-4).
"""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import Final

from waybill.contracts.names import results_topic
from waybill.contracts.states import State
from waybill.crypto.verifying import VerificationKeys
from waybill.delivery.core.keeping import drop_before
from waybill.delivery.core.lanes import Item, Lane
from waybill.delivery.core.results.believing import Arrived, Entry, Heard, Refused, hear, signature_of, tell_apart
from waybill.delivery.core.results.weighing import NO_RESULT
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.handover.waits import Waits
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.results.statements import ResultStore
from waybill.delivery.results.weighing import MAX_WAITING, Weighing, tell
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.infra.topic_reader import PlacedRecord
from waybill.kernel.errors import FencedError, TransientError

__all__ = ["Results", "arrived"]

#: Verified at one time: a tenth of a millisecond each, on the loop.
_MOST: Final = 100
_LOOK_S: Final = 0.02
_END_S: Final = 0.5
_DROP_S: Final = 300.0
_DROP_MOST: Final = 500


def arrived(record: PlacedRecord) -> Arrived:
    """Return a record as it came."""
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    return Arrived(offset=record.offset, signed=signature_of(record.headers), body=record.value or b"", at=at)


class Results:
    """The results of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler
        self._store = ResultStore(desk.tools.store)
        self._weighing = Weighing(desk, owner, settler, self._store)
        self._waits = Waits(desk, owner, settler)
        self._place = (results_topic(desk.tenant, desk.target.name), owner.partition)
        #: Results below it are written down.
        self.position = 0
        #: The offset after the last result that was read.
        self.read_to = 0
        self._queue: deque[Arrived] = deque()
        #: Waits that are over, and up to where results must be written down before they end; None: not asked yet.
        self._over: dict[Item, tuple[Lane, int | None]] = {}
        self._keys: tuple[tuple[str, ...], VerificationKeys] = ((), VerificationKeys())
        self._is_watching = False
        self._dropped_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    # The owner's life

    async def load(self, position: int) -> None:
        """Stand where the former owner stood, and know what waits."""
        self.position = self.read_to = position
        if self._desk.target.config.results is None:
            return
        for offset, heard in await self._store.waiting(self._owner.owned, MAX_WAITING):
            self._weighing.add(offset, heard)

    def tick(self) -> None:
        """Listen once the destination declares results; drop now and then what nobody needs."""
        if self._desk.target.config.results is None:
            return
        if not self._is_watching:
            self._is_watching = True
            self._desk.feeds.results.watch(self._place, self)
        self._waits.tick()
        if self._has_work():
            self._kick()

    def end(self) -> None:
        """Listen no more; what is not written down is read again by the next owner."""
        if self._is_watching:
            self._desk.feeds.results.forget(self._place, self)
        self._queue.clear()

    # What arrives, what comes up

    def take(self, offset: int, said: Arrived | None) -> None:
        """Take what one record of the topic says."""
        if said is not None:
            self._queue.append(said)
            self._kick()
        elif not self._queue:
            self.position = offset + 1

    def meet(self, lane: Lane, item: Item) -> bool:
        """Whether a head that is about to be attempted is not: a result moved it, or its wait is over and ends."""
        if self._weighing.heard and self._weighing.meet(lane, item):
            self._kick()
            return True
        now = self._desk.tools.clock.now()
        if item.state is not State.DELIVERED or (item.next_due is not None and item.next_due > now):
            return False
        if item.delivery_id is None:  # a wait that was let go of and read again
            self._settler.identify(item)
        self._over.setdefault(item, (lane, None))
        self._kick()
        return True

    # One after the other

    def _has_work(self) -> bool:
        weighing = self._weighing
        return bool(self._queue or weighing.looking or weighing.weighed or self._over)

    def _kick(self) -> None:
        if self._task is None and not self._owner.is_closing and not self._owner.gone:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)

    async def _run(self) -> None:
        patience = Patience()
        try:
            while self._has_work() and not self._owner.is_closing:
                try:
                    await self._round()
                except TransientError as error:
                    if patience.failures == 0:
                        self._log.warning("results.waiting", reason=str(error))
                    await patience.wait()
                    continue
                patience.worked()
                if not self._queue:
                    await asyncio.sleep(_LOOK_S)
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None

    async def _round(self) -> None:
        if self._queue:
            await self._write_down()
        await self._weighing.look()
        weighed = self._weighing.weighed[:]
        if weighed:
            await self._store.weigh(self._owner.owned, weighed, self._desk.tools.clock.now())
            del self._weighing.weighed[: len(weighed)]
        if self._over:
            await self._end_waits()
        mono = self._desk.tools.clock.monotonic()
        if mono - self._dropped_at >= _DROP_S:
            self._dropped_at = mono
            await self._store.drop(self._owner.owned, drop_before(self._desk.tools.clock.now()), _DROP_MOST)

    async def _write_down(self) -> None:
        batch = [self._queue[index] for index in range(min(_MOST, len(self._queue)))]
        keys, desk, owned = self._current_keys(), self._desk, self._owner.owned
        taken = [(one, hear(one, keys, desk.tenant, desk.target.name)) for one in batch]
        said = await self._store.said(owned, [one.result_id for _, one in taken if isinstance(one, Heard)])
        entries = tell_apart(taken, said, owned.partition)
        await self._store.record(owned, entries)
        if self._owner.gone or self._owner.is_closing:
            return
        for _ in batch:
            self._queue.popleft()
        for entry in entries:
            self._note(entry, is_new=not _is_known(entry, said, owned.partition))
        self.position = self._queue[0].offset if self._queue else self.read_to
        desk.committer.carry(self._owner)

    def _current_keys(self) -> VerificationKeys:
        source = self._desk.target.config.results
        texts = () if source is None else source.keys
        if self._keys[0] != texts:
            self._keys = (texts, VerificationKeys.from_text(*texts))
        return self._keys[1]

    def _note(self, entry: Entry, *, is_new: bool) -> None:
        offset = entry.arrived.offset
        if isinstance(entry.taken, Refused):
            self._desk.results["refused"] += 1
            self._log.warning("result.refused", offset=offset, reason=entry.taken.reason)
            return
        if entry.taken.is_quarantined:
            skew_s = entry.taken.skew.total_seconds()
            self._log.warning("result.clock_is_wrong", offset=offset, skew_s=skew_s, key_id=entry.taken.key_id)
        if is_new:
            self._weighing.add(offset, entry.taken)

    async def _end_waits(self) -> None:
        """End the waits before which everything that had arrived was read."""
        if any(end is None for _, end in self._over.values()):
            now_end = await self._end_of_topic()
            self._over = {item: (lane, now_end if end is None else end) for item, (lane, end) in self._over.items()}
        for item, (lane, until) in tuple(self._over.items()):
            if self._owner.gone or self._owner.is_closing:
                return
            is_here = lane.head is item and not lane.held and item.state is State.DELIVERED
            if is_here and (until is None or self.position < until or item.delivery_id in self._weighing.looking):
                continue
            del self._over[item]
            if is_here:
                self._log.info("result.not_heard", delivery_id=item.delivery_id)
                tell(self._desk, self._settler, lane, item, NO_RESULT)

    async def _end_of_topic(self) -> int:
        topic, partition = self._place
        return await self._desk.ask(lambda reader: reader.stable_end(topic, partition, _END_S))


def _is_known(entry: Entry, said: dict[str, tuple[int, int]], partition: int) -> bool:
    """Whether the very record was written down before: it was read again after a crash."""
    return isinstance(entry.taken, Heard) and said.get(entry.taken.result_id) == (partition, entry.arrived.offset)
