"""Begins for one owner the waits for results of what was handed over: from when its listeners have read past it.

While they are away nothing is given up: what lies in the topic they will still find. What expires there unread ends,
since from then on they refuse it. Both are found by one statement for all deliveries of the partition, now and then.
"""

import asyncio
from datetime import timedelta
from typing import Final

from waybill.contracts.names import deliveries_topic, listener_group
from waybill.delivery.core.results.handover import look_every_s
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.handover.statements import Begun, WaitStore
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.kernel.errors import FencedError, TransientError

__all__ = ["Waits"]

_MOST: Final = 1000


class Waits:
    """The waits of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner) -> None:
        self._desk, self._owner = desk, owner
        self._store = WaitStore(desk.tools.store)
        self._looked_at = 0.0
        self._is_asking = False
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
        for each in begun:
            if self._owner.gone or self._owner.is_closing:
                return 0
            self._note(each)
        return len(begun)

    def _note(self, begun: Begun) -> None:
        """See to it that the end of a wait comes up."""
        lane = self._owner.lanes.lanes.get(begun.aggregate)
        if lane is None:
            return
        if lane.head is not None and lane.head.delivery_id == begun.delivery_id:
            lane.head.handed_to, lane.head.next_due = None, begun.due
        self._desk.later(begun.due, self._owner, lane)
