"""An aggregate that stands still while a decision about it is judged: nothing new of it starts, and rows alone count.

What is under way ends first: an attempt, a question, a look-up, a write, a load, a gap resolution. What is in memory becomes rows.
Afterwards the lane begins anew from its rows, whatever became of them.
"""

import asyncio
from typing import Final

from waybill.delivery.core.holding import has_memory, release, stop_loading
from waybill.delivery.core.lanes import HALTING, Held, Lane
from waybill.delivery.core.records import Event
from waybill.delivery.decisions.statements import Standing
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.settler import untried

__all__ = ["LOOK_S", "Standstill", "is_busy"]

#: How often it is looked whether something has ended.
LOOK_S: Final = 0.02


class Standstill:
    """Brings held lanes of one partition to rest and lets them go on; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler

    async def into_rows(self, lane: Lane) -> None:
        """Wait until nothing of a held lane is under way and everything of it is in rows."""
        await self.still(lane)
        while has_memory(lane) and not self._owner.is_closing:
            self._settler.store(lane, self._owner.lanes.to_rows(lane))
            await self.still(lane)

    async def still(self, lane: Lane) -> None:
        """Wait until nothing of a held lane is under way, written or loaded."""
        while not self._owner.is_closing and is_busy(self._desk, self._settler, lane):
            if self._settler.rows.is_idle:
                stop_loading(self._owner.lanes, lane)
            await asyncio.sleep(LOOK_S)

    def end(self, lane: Lane, rows: int) -> None:
        """Let a lane at rest go on; so many rows block it."""
        if lane.head is not None and lane.head.held is Held.REPEAT:
            now = self._desk.tools.clock.now()
            self._settler.audit(lane.head, Event("repeat", lane.head.state, False, untried(now), None))
        lanes = self._owner.lanes
        writes = release(lanes, lane, rows)
        if writes:
            self._settler.store(lanes.lanes[lane.aggregate], writes)
        self._owner.pump()

    def is_doubtful(self, lane: Lane, standing: Standing | None) -> bool:
        """Whether memory knows what the row does not: that a former owner may have sent it."""
        if standing is None:
            return False
        place = (standing.feed.sequence, standing.feed.record_offset)
        loaded = [*((lane.head,) if lane.head is not None else ()), *lane.feed]
        return any(one.sent and (one.sequence, one.offset) == place for one in loaded)


def is_busy(desk: Desk, settler: KnowingSettler, lane: Lane) -> bool:
    """Whether something of a lane is under way, written or loaded."""
    is_asked = lane.head is not None and lane.head.state in HALTING
    is_written = lane.writing > 0 or settler.rows.is_touching(lane.aggregate)
    is_known = not settler.lookups.is_touching(lane.aggregate)
    is_waiting = is_asked or is_written or lane.loading or lane.unsaid
    return is_waiting or not is_known or desk.is_under_way(lane)
