"""The verdict on one decision, and what follows from it: a move, going on behind an end, or nothing.

The verdict is written in the transaction that moves the row (`statements`); then both are said to Kafka, as every move
is: a crash between leaves a move that the next owner says.
"""

from collections.abc import Awaitable, Callable
from typing import assert_never

from waybill.contracts.decision import Decision, DecisionKind
from waybill.contracts.states import Move
from waybill.delivery.core.decisions import Judged, SkipIt, Void, judge
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.records import Event
from waybill.delivery.core.retry import End, moved
from waybill.delivery.decisions.statements import DecisionStore, Standing
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.lookups.settling import KnowingSettler
from waybill.delivery.rows import item_of, move_of
from waybill.delivery.settler import untried
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.kernel.errors import TransientError

__all__ = ["Ruling"]


class Ruling:
    """Judges decisions of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: KnowingSettler, store: DecisionStore) -> None:
        self._desk, self._owner, self._settler, self._store = desk, owner, settler, store
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    async def rule(self, decision: Decision, standing: Standing | None, *, sent: bool) -> Judged:
        """Give the verdict and do what it asks for.

        Args:
            decision: about a delivery that stands still.
            standing: its row; None where it has none.
            sent: memory knows that a byte of it may have left.
        """
        now = self._desk.tools.clock.now()
        if standing is None:
            return await self._nothing_known(decision)
        item = item_of(standing.feed)
        self._settler.identify(item)
        sent = sent or item.sent or await self._owner.intents.may_have_sent(item)
        match judge(decision, item, sent=sent, now=now):
            case Void(why):
                await self._insist(self._store.record, decision, Judged.VOID, why, now)
                self._audit(item, decision, f"decision_void:{why}")
                return self._tell(decision, Judged.VOID, why)
            case SkipIt():
                await self._skip(decision, item, blocks=standing.blocks)
            case End() as end:
                if end.move is Move.ACKNOWLEDGE and standing.blocks:
                    await self._pass_over(item, end)
                await self._move(decision, item, end)
            case other:
                assert_never(other)
        return self._tell(decision, Judged.APPLIED, None)

    async def _nothing_known(self, decision: Decision) -> Judged:
        """Keep a decision for a delivery that has no row: settled without one, or not come yet."""
        if decision.kind is DecisionKind.SUPERSEDE:
            return Judged.VOID  # what a newer command replaces came before it: it was settled
        judged, why = (Judged.EARLY, None) if decision.delivery_id is not None else await self._hole(decision)
        await self._insist(self._store.record, decision, judged, why, self._desk.tools.clock.now())
        return self._tell(decision, judged, why)

    async def _hole(self, decision: Decision) -> tuple[Judged, str | None]:
        """Go on behind a number without a delivery, if others wait behind it: their records came, its own is lost."""
        sequence = decision.sequence
        if sequence is None or decision.kind is not DecisionKind.SKIP:
            return Judged.VOID, "no_such_delivery"
        if not await self._store.behind(self._owner.owned, decision.aggregate, sequence):
            return Judged.VOID, "nothing_waits_behind"
        await self._settler.resolver.tell_hole(decision.aggregate, sequence)
        return Judged.APPLIED, None

    async def _skip(self, decision: Decision, item: Item, *, blocks: bool) -> None:
        now = self._desk.tools.clock.now()
        if blocks and item.is_resolution:
            await self._insist(self._store.unblock, decision, item.delivery_id or "", now)
        else:
            if blocks:
                await self._settler.resolver.resolve([item])
            await self._insist(self._store.record, decision, Judged.APPLIED, None, now)
        self._audit(item, decision, "skipped")

    async def _pass_over(self, item: Item, end: End) -> None:
        """Tell the listener that nothing comes under this number any more, before what waits behind it.

        A crash before the move leaves a row that holds nothing, and a decision that is judged again.
        """
        item.detail = end.detail
        await self._settler.resolver.resolve([item])

    async def _move(self, decision: Decision, item: Item, end: End) -> None:
        """Move the row and write the verdict, then say both to Kafka."""
        owner, recorder, now = self._owner, self._desk.target.recorder, self._desk.tools.clock.now()
        before, attempt = item.state, untried(now)
        item.state, item.code, item.detail, item.next_due = moved(before, end.move), end.code, end.detail, None
        item.version += 1
        event = Event("transition", before, True, attempt, None, _urn(decision), decision.evidence_digest)
        outcome, state = recorder.outcome(item, owner.place, event), recorder.state(item, owner.place, attempt.ended_ms)
        item.pending = (outcome, state, None)
        move = move_of(item)
        await self._insist(self._store.carry_out, decision, move, now)
        if owner.gone:
            return
        delivery_id, version, rows = move.delivery_id, move.version, self._settler.rows
        records = self._settler.topics.outgoing(owner.partition, item.aggregate, delivery_id, item.pending)
        self._desk.committer.add(owner, records, lambda: rows.published(delivery_id, version))

    async def _insist(self, write: Callable[..., Awaitable[None]], *values: object) -> None:
        """Write until the database says that it is written: only then does anybody learn of it.

        A write whose answer was lost is there; the same write again finds it, and what follows it is done once.

        Raises:
            TransientError: the partition is given back; the next owner says what is written and not said.
            FencedError: it is somebody else's.
        """
        patience = Patience()
        while True:
            try:
                return await write(self._owner.owned, *values)
            except TransientError:
                if self._owner.is_closing:
                    raise
            await patience.wait()

    def _audit(self, item: Item, decision: Decision, detail: str) -> None:
        """Record in the outcomes what became of a decision that moved nothing."""
        if self._owner.gone:
            return
        item.detail, item.code = detail, None
        now = self._desk.tools.clock.now()
        self._settler.audit(item, Event("transition", item.state, False, untried(now), None, _urn(decision)))

    def _tell(self, decision: Decision, judged: Judged, why: str | None) -> Judged:
        self._log.info(
            "decision.judged",
            decision_id=str(decision.decision_id),
            kind=decision.kind,
            verdict=judged,
            detail=why,
            by=decision.decided_by,
        )
        return judged


def _urn(decision: Decision) -> str:
    return f"urn:waybill:decision:{decision.decision_id}"
