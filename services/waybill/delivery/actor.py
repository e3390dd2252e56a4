"""The owner of one partition of one destination: takes it, works its lanes, gives it back.

Everything here runs on the loop, so a lane is never seen half changed. What it may do at an instant: attempt only
while its lease holds; move a row only under its epoch; say anything to Kafka only with its offset. What it must
not do: let an offset pass a record that is neither settled, stored nor another's.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from waybill.delivery.core.lanes import Held, Item, Lane, PartitionLanes
from waybill.delivery.core.position import Position
from waybill.delivery.core.records import Place
from waybill.delivery.decisions.decider import Decider
from waybill.delivery.desk import Desk, Given
from waybill.delivery.gate import LEASE_S, Gate
from waybill.delivery.intents.attempts import Intents
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.results.hearing import Results
from waybill.delivery.settler import Topics
from waybill.delivery.store import Owned
from waybill.delivery.takeover import LeftOver, Sweeper, find_position, publish_left_over, read_rows
from waybill.infra.kafka import OffsetMove
from waybill.infra.log import get_logger
from waybill.kernel.errors import TransientError

__all__ = ["PartitionActor"]

#: How long the brokers may take to say whose a partition is.
_CONFIRM_S: Final = 5.0


class PartitionActor:
    """One assignment of one partition."""

    def __init__(self, desk: Desk, given: Given) -> None:
        self._desk, self._given = desk, given
        self._topics = Topics.of(desk)
        self.partition, name = given.partition, desk.target.name
        self.owned = Owned(tenant=desk.tenant, destination=name, partition=given.partition, epoch=given.epoch)
        self.place = Place(self._topics.commands, given.partition, str(given.epoch))
        self.lanes = PartitionLanes(0, desk.limits)
        self.settler = KnowingSettler(desk, self, self._topics)
        #: Records may be read; reading is paused because the bound is reached.
        self.is_taken = self.is_held = False
        #: Nothing of it is dispatched any more.
        self.is_closing = False
        #: Somebody else's, or nobody's: results are dropped.
        self.gone = False
        self.inflight = 0
        #: Why nothing of it is done until people act, in words for them; None while all is well.
        self.problem: str | None = None
        self._is_taking = self._released = False
        self._known: set[int] = set()
        self.results = Results(desk, self, self.settler)
        self._gate = Gate(desk, self, self.settler, self.results)
        self.intents = Intents(desk, self, self.settler, self._gate)
        self.decider = Decider(desk, self, self.settler)
        self._moved_at = 0.0
        self._sweeper = Sweeper(desk, self, self.settler)
        self._log = get_logger("delivery").bind(tenant=desk.tenant, destination=name, partition=given.partition)

    # Fenced: what the committer asks and tells

    @property
    def is_dropped(self) -> bool:
        """Whether nothing of it may be said any more."""
        return self.gone

    def offset_move(self) -> OffsetMove:
        """Return the offset to commit, with the proof of ownership."""
        decided_to, heard_to = self.decider.position, self.results.position
        note = self._gate.note(self.owned, self.lanes, decided_to, heard_to, is_released=self._released)
        return OffsetMove(self._given.group_metadata, self._topics.commands, self.partition, self.lanes.base(), note)

    def carried(self, started: float, move: OffsetMove) -> None:
        """Renew the lease and let go on what waited for it."""
        self.owned.beacons.carried(move.offset)
        self._gate.renewed(started)

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
            NotTakenError, RewoundError: people must act first.
            ContractError: the committed offset carries a note of an unknown form.
            TransientError: not now; the same call may work later.
        """
        self._is_taking = True
        try:
            found = await self._find()
        finally:
            self._is_taking = False
        if found is None:
            return
        (offset, note), left = found
        if not note.released:
            wait = self._given.assigned_at + LEASE_S - self._desk.tools.clock.monotonic()
            await asyncio.sleep(max(wait, 0.0))
        if self.is_closing:
            return
        self.settler.rows.begin(self.lanes)
        self.is_taken = True
        in_doubt = not note.released and not self._desk.target.is_told_by_rows
        for aggregate, rows, due in left.blocked:
            self._gate.adopt(aggregate, rows, due, in_doubt=in_doubt)
        self.decider.begin()
        self.pump()
        self._log.info("partition.taken", offset=offset, rows=len(left.known), lanes=len(left.blocked))

    async def _find(self) -> tuple[tuple[int, Position], LeftOver] | None:
        """Shut former owners out and finish what they left; None when it is let go meanwhile.

        One that is let go must not go on: its epoch would shut out the next owner.
        """
        desk = self._desk
        if self._given.is_doubted:  # what the owner before left on its way moves the offset
            await desk.committer.settled()
        position = await find_position(desk, self._topics.commands, self.owned)
        self.lanes = PartitionLanes(position[0], desk.limits)
        self._gate.take(position[1])
        if self._given.is_doubted and not await desk.committer.carried(self, _CONFIRM_S):
            raise TransientError("the brokers do not say that it is ours")
        left = None if self.is_closing else await read_rows(desk, self.owned)
        if left is None or self.is_closing:
            return None
        self._known = {_hash(str(key)) for key in left.known}
        await publish_left_over(desk, self, self.settler)
        await self.decider.load(position[1].decided_to)
        await self.results.load(position[1].heard_to)
        return position, left

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
        is_fresh = self._desk.tools.clock.now() >= self.settler.fresh_from  # the next owner signs in another second
        return is_fresh and self.inflight == 0 and self.settler.is_idle and self.decider.is_idle and not self._is_taking

    def drop(self) -> None:
        """Forget everything without a word to Kafka; attempts in flight are waited for by their aggregates."""
        if self.gone:  # refused, then lost: its attempts end once
            return
        self.gone = True
        self.is_closing = True
        self.decider.end()
        self.results.end()
        _leave_ghosts(self._desk.ghosts, self.lanes)

    # Records

    def accept(self, batch: Sequence[Item], position: int) -> None:
        """Take our records of one poll, in offset order, and the offset after all that were read."""
        if self.gone or not self.is_taken:
            return
        lanes, known = self.lanes, self._known
        for item in self._gate.fresh(batch, lanes.position):
            is_known = False
            self.decider.met(item)
            if known:
                is_known = _hash(item.delivery_id or "") in known
            writes = lanes.admit(item, is_known=is_known)
            if writes:
                self.settler.store(lanes.lanes[item.aggregate], writes)
        lanes.position = max(position, lanes.position)
        self.pump()
        for lane in lanes.crowding():
            self.settler.store(lane, lanes.to_rows(lane))
        if lanes.memory.is_over and not self.is_held:
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
        if self.is_held and lanes.memory.has_room and not self.gone:
            self.is_held = False
            self._desk.hold_reading(self, hold=False)

    # Attempts

    def next(self, lane: Lane) -> Item | None:
        """Return the lane's head when it may be attempted now; otherwise see to it that it will be."""
        return None if self.is_closing else self._gate.next(lane)

    # Time

    def tick(self, mono: float) -> None:
        """Do what time asks for; called a few times a second."""
        if self.is_closing or not self.is_taken:
            return
        if self.lanes.base() == self.owned.beacons.committed:
            self._moved_at = mono
        elif mono - self._moved_at >= 1.0:
            self._moved_at = mono
            self._desk.committer.carry(self)
        self._sweeper.tick(mono)
        self.results.tick()

    def slow(self, lane: Lane, item: Item, deadline: datetime) -> None:
        """Give an attempt that takes long its row while it is in flight, so that the offset can move on."""
        if not self.gone and item.held is Held.MEMORY:
            item.next_due = deadline
            item.sent = item.may_have_acted = True  # who reads the row after a crash knows no more
            self.settler.store(lane, self.lanes.to_rows(lane))


def _leave_ghosts(ghosts: dict[str, int], lanes: PartitionLanes) -> None:
    """Count the aggregates whose attempt is under way: nothing of them starts before it has ended."""
    for lane in lanes.lanes.values():
        if lane.head is not None and lane.head.started is not None:
            ghosts[lane.aggregate] = ghosts.get(lane.aggregate, 0) + 1


def _hash(delivery_id: str) -> int:
    """Return 64 bits of an id; a false hit costs one insert that conflicts with nothing."""
    return int(delivery_id[19:23] + delivery_id[24:], 16)
