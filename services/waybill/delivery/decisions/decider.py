"""Decisions about one partition's deliveries, judged one after the other by its owner.

A decision waits until nothing of its aggregate is under way, while nothing new of it starts: then the rows alone say
where the delivery stands. What is in memory becomes rows first. The verdict is written in the transaction that moves
the row; only then is the decision behind us (`position`, which travels beside the committed offset).

A decision about what is not here is kept as *early*, and judged when its record is read.
"""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final

from waybill.contracts.decision import CANCELLABLE, Decision, DecisionKind, decision_id
from waybill.contracts.names import decisions_topic
from waybill.delivery.core.decisions import Judged
from waybill.delivery.core.holding import has_memory, hold
from waybill.delivery.core.keeping import COMMANDS_KEPT
from waybill.delivery.core.lanes import Item
from waybill.delivery.decisions.ruling import Ruling
from waybill.delivery.decisions.standstill import LOOK_S, Standstill
from waybill.delivery.decisions.statements import DecisionStore
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.kernel.errors import FencedError, TransientError
from waybill.kernel.ids import Aggregate, CommandId, delivery_id

__all__ = ["Decider"]

#: A decision about what never came is forgotten when its command cannot come any more.
_EARLY_KEPT: Final = COMMANDS_KEPT + timedelta(days=1)


class Decider:
    """The decisions of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler
        self._store = DecisionStore(desk.tools.store)
        self._standstill = Standstill(desk, owner, settler)
        self._ruling = Ruling(desk, owner, settler, self._store)
        self._place = (decisions_topic(desk.tenant), owner.partition)
        #: Decisions below it are judged.
        self.position = 0
        #: The offset after the last decision that was read.
        self.read_to = 0
        #: Offset and decision; without an offset it did not come from the topic.
        self._queue: deque[tuple[int | None, Decision]] = deque()
        self._early: dict[str, list[Decision]] = {}
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    @property
    def is_idle(self) -> bool:
        """Whether no decision is being carried out."""
        return self._task is None

    # The owner's life

    async def load(self, position: int) -> None:
        """Stand where the former owner stood, and know what was early."""
        self.position = self.read_to = position
        since = self._desk.tools.clock.now() - _EARLY_KEPT
        for decision in await self._store.early(self._owner.owned, since):
            self._expect(decision)

    def begin(self) -> None:
        """Read decisions from here on."""
        self._desk.feeds.decisions.watch(self._place, self)

    def end(self) -> None:
        """Read no more; what was not judged is read again by the next owner."""
        self._desk.feeds.decisions.forget(self._place, self)
        self._queue.clear()

    # What arrives

    def take(self, offset: int, decision: Decision | None) -> None:
        """Take what one record of the topic says, ours or not."""
        name = self._desk.target.name
        if decision is not None and decision.destination == name and decision.tenant == self._desk.tenant:
            self._queue.append((offset, decision))
            self._kick()
        elif not self._queue:
            self.position = offset + 1

    def met(self, item: Item) -> None:
        """Look at a record that is about to enter its lane: is something decided about it, or by it?"""
        if self._early:
            self._settler.identify(item)
            for decision in self._early.pop(item.delivery_id or "", ()):
                self._stand_still(decision)
        lane = self._owner.lanes.lanes.get(item.aggregate)
        if lane is None or not any(name == "ce_replaces" for name, _ in item.headers):
            return
        self._settler.identify(item)
        if item.command is not None and item.command.replaces is not None:
            self._stand_still(self._superseding(item, item.command.replaces))

    def _superseding(self, item: Item, replaced: CommandId) -> Decision:
        about = delivery_id(replaced, self._desk.target.name)
        return Decision(
            decision_id=decision_id(about, DecisionKind.SUPERSEDE, None),
            tenant=self._desk.tenant,
            destination=self._desk.target.name,
            aggregate=Aggregate(item.aggregate),
            kind=DecisionKind.SUPERSEDE,
            delivery_id=about,
            sequence=None,
            version=None,
            states=CANCELLABLE,
            decided_by=f"urn:waybill:worker:{self._owner.owned.tenant}:{self._owner.owned.destination}",
            reason=f"replaced by command {item.command_id}",
            decided_at=self._desk.tools.clock.now(),
        )

    def _stand_still(self, decision: Decision) -> None:
        """Judge a decision before the record that brought it up can be sent, or its offset can be passed."""
        hold(self._owner.lanes, decision.aggregate)
        self._queue.appendleft((None, decision))
        self._kick()

    def _expect(self, decision: Decision) -> None:
        if decision.delivery_id is not None:
            self._early.setdefault(str(decision.delivery_id), []).append(decision)

    # One after the other

    def _kick(self) -> None:
        if self._task is None and not self._owner.gone:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)

    async def _run(self) -> None:
        patience = Patience()
        try:
            while self._queue and not self._owner.is_closing:
                offset, decision = self._queue[0]
                try:
                    if not await self._settle(decision):
                        break
                except TransientError as error:
                    if patience.failures == 0:
                        self._log.warning("decisions.waiting", reason=str(error))
                    await patience.wait()
                    continue
                patience.worked()
                self._done(offset, decision)
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None

    def _done(self, offset: int | None, decision: Decision) -> None:
        if self._owner.gone:
            return
        self._queue.remove((offset, decision))
        if offset is not None:
            waiting = [at for at, _ in self._queue if at is not None]
            self.position = min(waiting, default=self.read_to)
            self._desk.committer.carry(self._owner)

    async def _settle(self, decision: Decision) -> bool:
        """Judge one decision and carry it out; False when the partition is given back before."""
        owner, lane = self._owner, hold(self._owner.lanes, decision.aggregate)
        judged = await self._store.judged(owner.owned, decision.decision_id)
        while judged in {Judged.OPEN, Judged.EARLY}:
            await self._standstill.into_rows(lane)
            if owner.is_closing:
                return False
            standing = await self._store.standing(owner.owned, decision)
            if has_memory(lane) or (standing is not None and standing.is_unsaid):
                await asyncio.sleep(LOOK_S)
                continue
            judged = await self._ruling.rule(decision, standing, sent=self._standstill.is_doubtful(lane, standing))
            if judged is Judged.EARLY and not has_memory(lane):
                self._expect(decision)
                break
        await self._standstill.into_rows(lane)  # also when it was judged long ago: `end` begins anew from rows alone
        rows = await self._store.blocking(owner.owned, decision.aggregate)
        if owner.is_closing:
            return False
        if not any(
            at is None and other is not decision and other.aggregate == lane.aggregate for at, other in self._queue
        ):
            self._standstill.end(lane, rows)
        return True
