"""Weighing what was heard: against the head of its lane, or against the row of a delivery that no lane works on.

Runs on the loop of one owner. What moves, moves as every row does: row first, Kafka second. Of a lane that waits for
its time another one takes its place, so that whoever would rouse the old one finds it without a head.
"""

from dataclasses import replace
from typing import Final

from waybill.contracts.states import BLOCKING, Move, State
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.freshness import second_after
from waybill.delivery.core.holding import renew
from waybill.delivery.core.lanes import Held, Item, Lane, revive
from waybill.delivery.core.results.believing import Heard
from waybill.delivery.core.results.weighing import Weighed, moves
from waybill.delivery.core.retry import Again, End, decide
from waybill.delivery.decisions.standstill import is_busy
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.results.statements import ResultStore, Row
from waybill.delivery.rows import item_of
from waybill.delivery.settler import history_of, untried
from waybill.infra.log import get_logger

__all__ = ["Weighing", "tell"]

#: As many are remembered for one partition; older ones are only written down.
MAX_WAITING: Final = 10_000


def tell(desk: Desk, settler: KnowingSettler, lane: Lane | None, item: Item, verdict: Verdict) -> None:
    """Move a delivery by what its destination said later, or by that it said nothing."""
    now = desk.tools.clock.now()
    attempt, target = untried(now), desk.target
    history = history_of(item, now, second_after(attempt.started_ms))
    decision = decide(target.config.retry, target.rule_for(item), history, verdict, now)
    item.sent = True
    item.may_have_acted = item.may_have_acted or verdict.may_have_acted
    item.next_due = decision.due if isinstance(decision, Again) else None
    end = decision if isinstance(decision, End) else End(move=Move.RETRY, code=verdict.code, detail=verdict.detail)
    if verdict.code is None:
        end = replace(end, detail=verdict.detail)
    settler.end(lane, item, end, attempt, verdict)


class Weighing:
    """The results of one partition that are believed and not weighed yet."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler, store: ResultStore) -> None:
        self._desk, self._owner, self._settler, self._store = desk, owner, settler, store
        #: By delivery: the offset and what it says.
        self.heard: dict[str, tuple[int, Heard]] = {}
        #: Those to be looked at; the others wait for their delivery to come up.
        self.looking: set[str] = set()
        #: What became of them, not written yet.
        self.weighed: list[tuple[int, Weighed, str | None]] = []
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    def add(self, offset: int, heard: Heard) -> None:
        """Take one that is written down; a proof is not replaced by a failure, nor by another proof."""
        before = self.heard.get(heard.delivery_id)
        if before is not None and before[1].verdict.code is None:
            self._became(offset, heard, Weighed.LATE)
            return
        if before is not None:
            self._became(*before, Weighed.LATE)
        if len(self.heard) >= MAX_WAITING:
            self._log.error("results.too_many", count=len(self.heard))
            forgotten = next(iter(self.heard))
            del self.heard[forgotten]
            self.looking.discard(forgotten)
        self.heard[heard.delivery_id] = (offset, heard)
        self.looking.add(heard.delivery_id)

    def meet(self, lane: Lane, item: Item) -> bool:
        """Weigh what was heard of a head that is about to be attempted; True when it moved it."""
        if item.delivery_id is None:
            self._settler.identify(item)
        if item.delivery_id not in self.heard or is_busy(self._desk, self._settler, lane):
            return False
        return self._weigh_head(lane, item)

    async def look(self) -> None:
        """Look at those whose delivery no attempt leads to."""
        unknown = [delivery_id for delivery_id in tuple(self.looking) if self._glance(delivery_id)]
        if not unknown:
            return
        rows = await self._store.rows(self._owner.owned, unknown)
        if self._owner.gone or self._owner.is_closing:
            return
        for delivery_id in unknown:
            if delivery_id in self.looking and self._glance(delivery_id):
                self._judge(delivery_id, rows.get(delivery_id))
        self._owner.pump()

    def _glance(self, delivery_id: str) -> bool:
        """Weigh one against its lane if that can be; True when its row must be asked for."""
        heard = self.heard[delivery_id][1]
        lanes = self._owner.lanes
        lane = lanes.lanes.get(heard.aggregate)
        if lane is None:
            return True
        if lane.held or is_busy(self._desk, self._settler, lane):
            return False
        if lane.asleep:
            lanes.rouse(renew(lanes, lane))
            self._owner.pump()
            return False
        head = lane.head
        if head is None or head.delivery_id != delivery_id:
            return True
        if head.held in {Held.MEMORY, Held.ROW} and self._can_move(head, heard):
            lane = renew(lanes, lane)
        self._weigh_head(lane, head)
        return False

    def _can_move(self, item: Item, heard: Heard) -> bool:
        return item.aggregate == heard.aggregate and moves(item.state, heard.verdict)

    def _weigh_head(self, lane: Lane, item: Item) -> bool:
        offset, heard = self.heard[item.delivery_id or ""]
        if item.held not in {Held.MEMORY, Held.ROW}:
            return False
        if item.aggregate != heard.aggregate:
            self._became(offset, heard, Weighed.REFUSED, "subject")
            return False
        if not moves(item.state, heard.verdict):
            self._became(offset, heard, Weighed.LATE)
            return False
        self._became(offset, heard, Weighed.SETTLED)
        tell(self._desk, self._settler, lane, item, heard.verdict)
        return True

    def _judge(self, delivery_id: str, row: Row | None) -> None:
        """Weigh one against the row of a delivery that is not the head of its lane."""
        offset, heard = self.heard[delivery_id]
        lane = self._owner.lanes.lanes.get(heard.aggregate)
        if row is None:
            self.looking.discard(delivery_id)  # not here yet, or settled without a row: who meets it weighs it
            return
        state = State(row.feed.state)
        if row.feed.aggregate != heard.aggregate:
            self._became(offset, heard, Weighed.REFUSED, "subject")
        elif row.is_unsaid:
            return
        elif row.blocks and state in BLOCKING:
            if lane is not None:  # behind another one
                self.looking.discard(delivery_id)
        elif not moves(state, heard.verdict):
            self._became(offset, heard, Weighed.LATE)
        else:
            self._settle_ended(lane, row, offset, heard)

    def _settle_ended(self, lane: Lane | None, row: Row, offset: int, heard: Heard) -> None:
        """Move a delivery that had ended without anybody knowing."""
        item = item_of(row.feed)
        self._settler.identify(item)
        if row.blocks and (lane is None or not revive(self._owner.lanes, lane, item)):
            return
        self._became(offset, heard, Weighed.SETTLED)
        tell(self._desk, self._settler, lane if row.blocks else None, item, heard.verdict)

    def _became(self, offset: int, heard: Heard, became: Weighed, reason: str | None = None) -> None:
        known = self.heard.get(heard.delivery_id)
        if known is not None and known[0] == offset:
            del self.heard[heard.delivery_id]
            self.looking.discard(heard.delivery_id)
        self.weighed.append((offset, became, reason))
        self._desk.results[became.value] += 1
        self._log.info(
            "result.weighed",
            result_id=heard.result_id,
            delivery_id=heard.delivery_id,
            became=became,
            code=heard.verdict.code,
            reason=reason,
        )
