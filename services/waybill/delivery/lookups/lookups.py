"""Looks deliveries up before their first move that is no acknowledgement, for one partition, many at a time.

An acknowledged delivery of the happy path leaves no row. When the relay offers it again, it is sent again and answered
from the listener's store; but if that fails, or its time is over, the failure would be told of a delivery that was
acknowledged. So the read model is asked first, once it has folded everything that stood in the partition's states
after our last transaction: acknowledged there is a repeat, which is audited and moves nothing.

While it is asked the delivery stays its lane's head. A read model that does not follow is waited for a while and then
not at all: what fails must not hold up what does not. Nothing is lost by that but this one certainty.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from waybill.contracts.names import state_topic
from waybill.delivery.core.lanes import Held, Item
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.kernel.errors import TransientError

__all__ = ["Lookups"]

_MAX_BATCH: Final = 500
_CARRY_S: Final = 3.0
_END_S: Final = 0.5
#: How often a read model that is behind is asked, and how long it is not waited for after that: ten seconds, a minute.
_TRIES: Final = 50
_AGAIN_S: Final = 0.2
_BLIND_S: Final = 60.0

#: What goes on once it is known: with True for what was acknowledged before.
Then = Callable[[bool], None]


class Lookups:
    """Deliveries of one owner that wait to be known; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner) -> None:
        self._desk, self._owner = desk, owner
        self._waiting: list[tuple[Item, Then]] = []
        #: Those that are asked about now.
        self._asked: list[tuple[Item, Then]] = []
        self._task: asyncio.Task[None] | None = None
        self._blind_until = 0.0
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    def concern(self, item: Item) -> bool:
        """Whether an item must be looked up before it moves: nothing else says whether it was acknowledged before.

        Its own moves do, rows and intents that are written first do, and a gap resolution has no earlier record.
        """
        is_first = item.version == 0 and item.held is not Held.REPEAT and not item.is_resolution
        return is_first and self._desk.tools.standing is not None and not self._desk.target.is_told_by_rows

    def ask(self, item: Item, then: Then) -> None:
        """Look an item up and go on."""
        self._waiting.append((item, then))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be known."""
        return self._task is None

    def is_touching(self, aggregate: str) -> bool:
        """Whether something of an aggregate waits to be known."""
        return any(item.aggregate == aggregate for item, _ in (*self._waiting, *self._asked))

    async def _run(self) -> None:
        try:
            while self._waiting and not self._owner.gone:
                self._asked, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                known = await self._acknowledged([item.delivery_id or "" for item, _ in self._asked])
                asked, self._asked = self._asked, []
                for item, then in asked:
                    if not self._owner.gone:
                        then(item.delivery_id in known)
                self._owner.pump()
        finally:
            self._task = None

    async def _acknowledged(self, delivery_ids: Collection[str]) -> Collection[str]:
        clock = self._desk.tools.clock
        for _ in range(_TRIES if clock.monotonic() >= self._blind_until else 1):
            try:
                found = await self._once(delivery_ids)
            except TransientError:
                found = None
            if found is not None or self._owner.gone:
                return found or ()
            await asyncio.sleep(_AGAIN_S)
        self._blind_until = clock.monotonic() + _BLIND_S
        self._log.warning("deliveries.not_looked_up", count=len(delivery_ids))
        return ()

    async def _once(self, delivery_ids: Collection[str]) -> Collection[str] | None:
        """Return what was acknowledged; None when nobody knows yet."""
        desk, owner = self._desk, self._owner
        if desk.tools.standing is None or not await desk.committer.carried(owner, _CARRY_S):
            return None
        topic = state_topic(desk.tenant)
        end = await desk.ask(lambda reader: reader.stable_end(topic, owner.partition, _END_S))
        return await desk.tools.standing.acknowledged(desk.tenant, owner.partition, end, delivery_ids)
