"""Whether the head of a lane may be attempted now: lease, time, ghosts, a fresh signature, configuration, expiry."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from waybill.delivery.core.lanes import Held, Item, Lane, PartitionLanes
from waybill.delivery.core.position import MAX_UNSETTLED, Position
from waybill.delivery.core.reach import NARROW, WINDOW, Reach
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.results.hearing import Results
from waybill.delivery.settler import Settler
from waybill.delivery.store import Owned

__all__ = ["LEASE_S", "Gate"]

#: An attempt starts only within this many boot-time seconds of the start of the last transaction that carried its
#: partition's offset; a new owner waits as long.
LEASE_S: Final = 3.0
#: A lease this old is renewed while there is work.
_RENEW_AFTER_S: Final = 1.0
_GHOST_WAIT: Final = timedelta(milliseconds=50)
_CONFIG_WAIT: Final = timedelta(milliseconds=200)


class Gate:
    """The last look before a byte leaves, for one owner."""

    def __init__(self, desk: Desk, owner: Owner, settler: Settler, results: Results) -> None:
        self._desk, self._owner, self._settler, self._results = desk, owner, settler, results
        self._lease_start = -LEASE_S
        #: How far attempts may go.
        self.reach = Reach()
        #: Lanes that wait for the lease, or for a transaction that allows their record.
        self._stalled: list[Lane] = []

    def renewed(self, started: float) -> None:
        """Count the lease from the start of a transaction that succeeded."""
        self._lease_start = started
        self.reach.carried()
        if self._stalled and not self._owner.gone:
            stalled, self._stalled = self._stalled, []
            for lane in stalled:
                self._desk.offer(self._owner, lane)

    def take(self, note: Position) -> None:
        """Begin where a former owner ended."""
        window = NARROW if self._desk.target.rule.needs_intent else WINDOW
        self.reach = Reach(note.sent_to, note.settled_to, note.unsettled, window)

    def note(self, owned: Owned, lanes: PartitionLanes, decided_to: int, heard_to: int, *, is_released: bool) -> str:
        """Return what stands beside the next committed offset."""
        unsettled, settled_to = self.reach.settled(*lanes.first_unsettled(MAX_UNSETTLED), lanes.position)
        sent_to = self.reach.promise(lanes.position, is_released=is_released)
        return Position(
            epoch=owned.epoch,
            released=is_released,
            sent_to=sent_to,
            settled_to=settled_to,
            unsettled=unsettled,
            decided_to=decided_to,
            heard_to=heard_to,
            beacon=owned.beacons.promise(),
        ).encode()

    def fresh(self, batch: Iterable[Item], first: int) -> Iterator[Item]:
        """Return what of a poll is to be taken, from an offset on: not what a former owner settled.

        What it may have sent is marked; rows and intents that are written first say it better.
        """
        reach, is_told = self.reach, self._desk.target.is_told_by_rows
        for item in batch:
            offset = item.offset
            if offset < first or reach.is_settled(offset):
                continue
            if reach.is_doubtful(offset) and not is_told:
                item.sent = item.may_have_acted = True
            yield item

    def adopt(self, aggregate: str, rows: int, due: datetime | None, *, in_doubt: bool) -> None:
        """Take over an aggregate with blocking rows, the first of which is due at an instant."""
        is_far = due is not None and self._is_far(due, self._desk.tools.clock.now())
        lane = self._owner.lanes.adopt(aggregate, rows, in_doubt=in_doubt, asleep=is_far)
        if due is not None and is_far:
            self._desk.later(due, self._owner, lane)

    def _is_far(self, due: datetime, now: datetime) -> bool:
        return (due - now).total_seconds() > self._desk.limits.rest_s

    def next(self, lane: Lane) -> Item | None:
        """Return the lane's head when it may be attempted now; otherwise see to it that it will be."""
        item = lane.head
        if lane.asleep:
            self._owner.lanes.rouse(lane)
            self._owner.pump()
        if item is None or lane.held or lane.unsaid or self._results.meet(lane, item):
            return None
        if not self._has_lease(lane, item):
            return None
        now = self._desk.tools.clock.now()
        due = self._not_before(lane, item, now)
        if due is not None:
            self._put_off(lane, item, due, now)
            return None
        if not item.is_readable:
            self._settler.poisoned(lane, item)
            return None
        is_over = item.expires_at is not None and item.expires_at <= now
        if is_over and not self._desk.target.rule_for(item).needs_intent:
            self._settler.expire(lane, item, now)
            return None
        self.reach.note(item.offset)
        return item

    def _put_off(self, lane: Lane, item: Item, due: datetime, now: datetime) -> None:
        """Look again at an instant; a head that is far from it is let go meanwhile."""
        is_far = item.held is Held.ROW and self._is_far(due, now)
        if is_far:
            self._owner.lanes.rest(lane, item)
            self._owner.pump()
        if not is_far or item.handed_to is None:  # else whoever sees its listeners read past it says when
            self._desk.later(due, self._owner, lane)

    @property
    def is_open(self) -> bool:
        """Whether a byte may leave now: the lease holds and nothing is being given back."""
        return not self._owner.is_closing and self._desk.tools.clock.monotonic() - self._lease_start < LEASE_S

    def _has_lease(self, lane: Lane, item: Item) -> bool:
        age = self._desk.tools.clock.monotonic() - self._lease_start
        if age >= LEASE_S or (item.held is Held.MEMORY and not self.reach.allows(item.offset)):
            self._stalled.append(lane)
            self._desk.committer.carry(self._owner, at_once=True)
            return False
        if age >= _RENEW_AFTER_S:
            self._desk.committer.carry(self._owner)
        return True

    def _not_before(self, lane: Lane, item: Item, now: datetime) -> datetime | None:
        """Return when to look again at a head that must wait; looks into its record."""
        if item.next_due is not None and item.next_due > now:
            return item.next_due
        if self._desk.ghosts and lane.aggregate in self._desk.ghosts:
            return now + _GHOST_WAIT
        if item.delivery_id is None:
            self._settler.identify(item)
        fresh_from = self._desk.signed.not_before(item.delivery_id or "", now)
        if fresh_from is not None:
            return fresh_from
        command = item.command
        if command is not None and command.config_version > self._desk.target.recorder.config_version:
            return now + _CONFIG_WAIT
        return None
