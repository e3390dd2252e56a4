"""Begins for one owner the waits for results of what was handed over: from when its listeners have read past it.

While they are away nothing is given up: what lies in the topic they will still find. What expires there unread ends,
since from then on they refuse it. Both are found by one statement for all deliveries of the partition, now and then.
"""

import asyncio
from datetime import timedelta
from typing import Final

from waybill.contracts.names import deliveries_topic, listener_group
from waybill.delivery.core.holding import renew
from waybill.delivery.core.results.handover import look_every_s
from waybill.delivery.decisions.standstill import is_busy
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.handover.statements import Begun, WaitStore
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.kernel.errors import FencedError, TransientError

__all__ = ["Waits"]

_MOST: Final = 1000


class Waits:
    """The waits of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler
        self._store = WaitStore(desk.tools.store)
        self._looked_at = 0.0
        self._is_asking = False
        #: Those whose lane was busy when their waits began: looked at again.
        self._unseen: list[Begun] = []
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    def tick(self) -> None:
        """Ask now and then how far the listeners have read, while anything is unfinished."""
        config = self._desk.target.config
        if not config.is_handed_over or config.results is None or self._is_asking or self._task is not None:
            return
        mono = self._desk.tools.clock.monotonic()
        if not self._owner.lanes.lanes or mono - self._looked_at < look_every_s(config.results.wait_s):
            return
        self._looked_at, self._is_asking = mono, True
        group = config.listener_group or listener_group(config.tenant, config.name)
        place = (deliveries_topic(config.tenant, config.name), self._owner.partition)
        self._desk.feeds.listeners.ask(group, place, self._told)

    def _told(self, passed: int | None) -> None:
        self._is_asking = False
        if not self._owner.gone and not self._owner.is_closing:
            self._task = asyncio.get_running_loop().create_task(self._begin(passed or 0))
            self._task.add_done_callback(surface)

    async def _begin(self, passed: int) -> None:
        try:
            while await self._some(passed) >= _MOST:
                pass
        except TransientError as error:
            self._log.info("waits.not_begun", reason=str(error))
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None

    async def _some(self, passed: int) -> int:
        source, now = self._desk.target.config.results, self._desk.tools.clock.now()
        wait = timedelta(seconds=source.wait_s if source is not None else 0.0)
        begun = await self._store.begin(self._owner.owned, passed, now, wait, _MOST)
        if self._owner.gone or self._owner.is_closing:
            return 0
        self._unseen = [each for each in (*self._unseen, *begun) if not self._is_noted(each)]
        self._owner.pump()
        return len(begun)

    def _is_noted(self, begun: Begun) -> bool:
        """See to it that the end of a wait comes up; False while its lane is busy, or reads rows as they were before."""
        lanes = self._owner.lanes
        lane = lanes.lanes.get(begun.aggregate)
        if lane is None or lane.held:  # whoever lets it go on reads its rows anew
            return True
        if is_busy(self._desk, self._settler, lane):
            return False
        if lane.asleep:
            # Another one takes its place and reads its row anew: a lane that two rouse would be attempted twice.
            lanes.rouse(renew(lanes, lane))
        elif lane.head is not None and lane.head.delivery_id == begun.delivery_id:
            lane.head.handed_to, lane.head.next_due = None, begun.due  # it is looked at again as it is
        return True
