"""The owner of one partition of one destination: takes it, works its lanes, gives it back.

Everything here runs on the loop, so a lane is never seen half changed. What it may do at an instant: attempt only
while its lease holds; move a row only under its epoch; say anything to Kafka only with its offset. What it must
not do: let an offset pass a record that is neither settled, stored nor another's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Held, Item, Lane, PartitionLanes
from waybill.delivery.core.position import Position
from waybill.delivery.core.records import Place, Try
from waybill.delivery.desk import Desk, Given
from waybill.delivery.rows import item_of
from waybill.delivery.settler import Settler, Topics
from waybill.delivery.store import Owned
from waybill.infra.kafka import OffsetMove, Record
from waybill.infra.log import get_logger
from waybill.kernel.errors import TransientError, UnavailableError
from waybill.kernel.ids import DestinationName

__all__ = ["LEASE_S", "Claimed", "NotTakenError", "PartitionActor"]

#: An attempt starts only within this many boot-time seconds of the start of the last transaction that carried its
#: partition's offset; a new owner waits as long.
LEASE_S: Final = 3.0
#: A lease this old is renewed while there is work.
_RENEW_AFTER_S: Final = 1.0
_CHUNK: Final = 500
_SWEEP_S: Final = 5.0
_GHOST_WAIT: Final = timedelta(milliseconds=50)
_CONFIG_WAIT: Final = timedelta(milliseconds=200)

#: A record of ours with the aggregate and sequence it takes here, and all its sequences.
Claimed = tuple[Record, str, int, Mapping[DestinationName, int]]


class NotTakenError(UnavailableError):
    """The partition cannot be taken until people act; the message says how."""

    code = "not_taken"


class PartitionActor:
    """One assignment of one partition."""

    def __init__(self, desk: Desk, given: Given) -> None:
        self._desk, self._given = desk, given
        self._topics = Topics.of(desk)
        self.partition = given.partition
        self.owned = Owned(
            tenant=desk.tenant, destination=desk.target.name, partition=given.partition, epoch=given.epoch
        )
        self.place = Place(self._topics.commands, given.partition, str(given.epoch))
        self.lanes = PartitionLanes(0, desk.limits)
        self.settler = Settler(desk, self, self._topics)
        self.is_taken = False
        #: Nothing of it is dispatched any more.
        self.is_closing = False
        #: Somebody else's, or nobody's: results are dropped.
        self.gone = False
        self.inflight = 0
        #: Reading is paused because the bound is reached.
        self.is_held = False
        self._released = False
        self._known: set[int] = set()
        self._lease_start = -LEASE_S
        self._stalled: list[Lane] = []
        self._committed = 0
        self._moved_at = 0.0
        self._swept_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=given.partition
        )

    # Fenced: what the committer asks and tells

    def offset_move(self) -> OffsetMove:
        """Return the offset to commit, with the proof of ownership."""
        note = Position(epoch=self.owned.epoch, released=self._released).encode()
        return OffsetMove(self._given.group_metadata, self._topics.commands, self.partition, self.lanes.base(), note)

    def carried(self, started: float, move: OffsetMove) -> None:
        """Renew the lease and let go on what waited for it."""
        self._lease_start = started
        self._committed = move.offset
        if self._stalled and not self.gone:
            stalled, self._stalled = self._stalled, []
            for lane in stalled:
                self._desk.offer(self, lane)

    def refused(self) -> None:
        """Give up what somebody else owns."""
        if not self.gone:
            self._log.warning("partition.refused", epoch=str(self.owned.epoch))
            self.drop()
            self._desk.lost(self)

    # Taking and giving back

    async def take(self) -> None:
        """Become the owner; returns when records may be read.

        Raises:
            NotTakenError: people must act first.
            ContractError: the committed offset carries a note of an unknown form.
            TransientError: not now; the same call may work later.
        """
        desk, store = self._desk, self._desk.tools.store
        found = await desk.committed(self.partition)
        if found is None:
            raise NotTakenError(
                f"no committed offset on {self._topics.commands}[{self.partition}]: run `waybill apply` to set its start"
            )
        offset, metadata = found
        note = Position.decode(metadata)
        await store.take(self.owned, owner=desk.worker, now=desk.tools.clock.now())
        self._known = {_hash(str(key)) for key in await store.known(self.owned)}
        blocked = await store.lanes(self.owned)
        self.lanes = PartitionLanes(offset, desk.limits)
        self._committed = offset
        await self._publish_left_over()
        if not note.released:
            wait = self._given.assigned_at + LEASE_S - desk.tools.clock.monotonic()
            await asyncio.sleep(max(wait, 0.0))
        self.settler.rows.begin(self.lanes)
        self.is_taken = True
        for aggregate, rows in blocked:
            self.lanes.adopt(aggregate, rows)
        self.pump()
        self._log.info(
            "partition.taken", offset=offset, rows=len(self._known), lanes=len(blocked), released=note.released
        )

    async def _publish_left_over(self) -> None:
        """Say what a former owner decided and perhaps did not say."""
        committer, store = self._desk.committer, self._desk.tools.store
        while left := await store.unpublished(self.owned, _CHUNK):
            for item in left:
                pending = (item.outcome, item.state, item.dead_letter)
                committer.add(self, self.settler.outgoing(item.aggregate, item.delivery_id, pending))
            if not await committer.carried(self, 10.0):
                raise TransientError("what a former owner decided cannot be published now")
            await store.published(self.owned, [(item.delivery_id, item.version) for item in left])

    async def give_back(self, budget_s: float) -> None:
        """Stop, drain within the budget, say how far it got, let go."""
        self.is_closing = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget_s
        while not self._is_drained() and not self.gone and loop.time() < deadline:  # noqa: ASYNC110 - facts without an event
            await asyncio.sleep(0.01)
        if self.is_taken and not self.gone:
            self._released = self._is_drained()
            accepted = await self._desk.committer.carried(self, 3.0)
            self._log.info("partition.given_back", offset=self.lanes.base(), drained=self._released, accepted=accepted)
        self.drop()

    def _is_drained(self) -> bool:
        return self.inflight == 0 and self.settler.rows.is_idle

    def drop(self) -> None:
        """Forget everything without a word to Kafka; attempts in flight are waited for by their aggregates."""
        self.gone = True
        self.is_closing = True
        ghosts = self._desk.ghosts
        if self.inflight:
            for lane in self.lanes.lanes.values():
                if lane.head is not None and lane.head.started is not None:
                    ghosts[lane.aggregate] = ghosts.get(lane.aggregate, 0) + 1

    # Records

    def accept(self, batch: Sequence[Claimed], position: int) -> None:
        """Take our records of one poll, in offset order, and the offset after all that were read."""
        if self.gone or not self.is_taken:
            return
        lanes, known = self.lanes, self._known
        admit = lanes.admit
        for record, aggregate, sequence, sequences in batch:
            item = Item(record[1], aggregate, sequence, (record[2], record[3], record[4]))
            item.sequences = sequences
            is_known = False
            if known:
                self.settler.identify(item)
                is_known = _hash(item.delivery_id or "") in known
            writes = admit(item, is_known=is_known)
            if writes:
                self.settler.store(lanes.lanes[aggregate], writes)
        lanes.position = position
        self.pump()
        if lanes.is_over and not self.is_held:
            self.is_held = True
            self._desk.hold_reading(self, hold=True)

    def remember(self, delivery_id: str) -> None:
        """Know from now on that a row of this delivery exists."""
        self._known.add(_hash(delivery_id))

    def pump(self) -> None:
        """Pass on what the lanes made ready or want to read."""
        lanes = self.lanes
        ready = lanes.ready
        while ready:
            self._desk.offer(self, ready.popleft())
        if lanes.loads:
            self.settler.rows.kick()
        if self.is_held and lanes.has_room and not self.gone:
            self.is_held = False
            self._desk.hold_reading(self, hold=False)

    # Attempts

    def next(self, lane: Lane) -> Item | None:
        """Return the lane's head when it may be attempted now; otherwise see to it that it will be."""
        item = lane.head
        if item is None or self.is_closing or not self._has_lease(lane):
            return None
        now = self._desk.tools.clock.now()
        due = self._not_before(lane, item, now)
        if due is not None:
            self._desk.later(due, self, lane)
            return None
        if item.command is None or item.poison is not None:
            self.settler.poisoned(lane, item)
            return None
        if item.command.expires_at <= now:
            self.settler.expire(lane, item, now)
            return None
        return item

    def finished(self, lane: Lane, item: Item, verdict: Verdict, attempt: Try) -> None:
        """Record what an attempt came to and move on."""
        self.settler.finished(lane, item, verdict, attempt)

    def poisoned(self, lane: Lane, item: Item) -> None:
        """End a delivery that can never be sent."""
        self.settler.poisoned(lane, item)

    def _has_lease(self, lane: Lane) -> bool:
        age = self._desk.tools.clock.monotonic() - self._lease_start
        if age >= LEASE_S:
            self._stalled.append(lane)
            self._desk.committer.carry(self, at_once=True)
            return False
        if age >= _RENEW_AFTER_S:
            self._desk.committer.carry(self)
        return True

    def _not_before(self, lane: Lane, item: Item, now: datetime) -> datetime | None:
        """Return when to look again at a head that must wait; looks into its record."""
        if item.next_due is not None and item.next_due > now:
            return item.next_due
        if self._desk.ghosts and lane.aggregate in self._desk.ghosts:
            return now + _GHOST_WAIT
        if item.delivery_id is None:
            self.settler.identify(item)
        command = item.command
        if command is not None and command.config_version > self._desk.target.recorder.config_version:
            return now + _CONFIG_WAIT
        return None

    # Time

    def tick(self, mono: float) -> None:
        """Do what time asks for; called a few times a second."""
        if self.is_closing or not self.is_taken:
            return
        if self.lanes.base() == self._committed:
            self._moved_at = mono
        elif mono - self._moved_at >= 1.0:
            self._moved_at = mono
            self._desk.committer.carry(self)
        if mono - self._swept_at >= _SWEEP_S and self._sweeping is None and self.settler.rows.is_idle:
            self._swept_at = mono
            halted = [lane.aggregate for lane in self.lanes.lanes.values() if lane.halted]
            if halted:
                self._sweeping = asyncio.get_running_loop().create_task(self._sweep(halted))

    async def _sweep(self, aggregates: Sequence[str]) -> None:
        """End what expired behind a halted head: it is visible to its owner at once, not when people decide."""
        now = self._desk.tools.clock.now()
        try:
            overdue = await self._desk.tools.store.overdue(self.owned, aggregates, now, _CHUNK)
        except TransientError:
            return
        finally:
            self._sweeping = None
        for feed in overdue:
            lane = self.lanes.lanes.get(feed.aggregate)
            if self.gone or lane is None or not lane.halted:
                continue
            item = item_of(feed)
            self.settler.identify(item)
            self.settler.expire(None, item, now)

    def slow(self, lane: Lane, item: Item, deadline: datetime) -> None:
        """Give an attempt that takes long its row while it is in flight, so that the offset can move on."""
        if not self.gone and item.held is Held.MEMORY:
            item.next_due = deadline
            self.settler.store(lane, self.lanes.to_rows(lane))


def _hash(delivery_id: str) -> int:
    """Return 64 bits of an id; a false hit costs one insert that conflicts with nothing."""
    return int(delivery_id[19:23] + delivery_id[24:], 16)
