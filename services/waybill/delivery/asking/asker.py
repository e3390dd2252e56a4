"""Asks for one owner about its ambiguous deliveries, a few at a time, and does what follows from the answers.

A delivery that is asked about is the head of its lane while it is, so nobody else decides about it meanwhile. Its
answer is noted in its row before anything follows; what follows goes the way of every row: row first, Kafka second.
What is not settled by the answer goes back to where it halts its lane.

What breaks otherwise: a "not done" that is believed while the attempt is still on its way makes a second effect.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.fabric import StatusSource
from waybill.contracts.states import Move
from waybill.delivery.asking.question import Answered, ask
from waybill.delivery.asking.statements import AskingStore, Due
from waybill.delivery.core.asking import Close, Doubt, Heard, Later, Resend, Terms, first_due, follow
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Item, Lane, put_back, revive
from waybill.delivery.core.records import Try, millis
from waybill.delivery.core.retry import End
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.gate import LEASE_S
from waybill.delivery.intents.attempts import MARGIN
from waybill.delivery.rows import item_of, surface
from waybill.delivery.settler import Settler
from waybill.infra.log import get_logger
from waybill.kernel.errors import ContractError, FencedError, TransientError

__all__ = ["Asker"]

_LOOK_S: Final = 1.0
#: Questions under way for one partition.
_MOST: Final = 16


class Asker:
    """Status queries of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: Settler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler
        self._store = AskingStore(desk.tools.store)
        self._looked_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    def tick(self, mono: float) -> None:
        """Look once a second whether something is to be asked."""
        source = self._desk.target.config.status_query
        if source is None or self._task is not None or mono - self._looked_at < _LOOK_S:
            return
        self._looked_at = mono
        if any(lane.halted for lane in self._owner.lanes.lanes.values()):
            self._task = asyncio.get_running_loop().create_task(self._ask_all(source))
            self._task.add_done_callback(surface)

    async def _ask_all(self, source: StatusSource) -> None:
        try:
            due = await self._find()
            await asyncio.gather(*(self._ask(source, one, lane, item) for one, lane, item in self._heads(due)))
        except TransientError:
            return
        finally:
            self._task = None

    async def _find(self) -> Sequence[Due]:
        now = self._desk.tools.clock.now()
        wait = first_due(self._desk.target.config.retry, now) - now
        return await self._store.due(self._owner.owned, since=now - wait, now=now, limit=_MOST)

    def _heads(self, due: Sequence[Due]) -> list[tuple[Due, Lane, Item]]:
        """Make those that halt their lanes the heads again."""
        found = []
        for one in due:
            lane = self._owner.lanes.lanes.get(one.feed.aggregate)
            if self._owner.gone or self._owner.is_closing or lane is None:
                continue
            item = item_of(one.feed)
            self._settler.identify(item)
            if item.command is not None and revive(self._owner.lanes, lane, item):
                found.append((one, lane, item))
        return found

    async def _ask(self, source: StatusSource, due: Due, lane: Lane, item: Item) -> None:
        learnt: tuple[Close | Resend, Answered] | None = None
        try:
            learnt = await self._learn(source, due, item)
        except (TransientError, ContractError) as error:
            self._log.info("delivery.not_asked", delivery_id=item.delivery_id, reason=str(error))
        except FencedError:
            self._owner.refused()
        if self._owner.gone:
            return
        if learnt is not None:
            self._move(lane, item, *learnt)
        else:
            put_back(self._owner.lanes, lane, item)
        self._owner.pump()

    async def _learn(self, source: StatusSource, due: Due, item: Item) -> tuple[Close | Resend, Answered] | None:
        """Ask, keep the answer, and return what follows; None when nobody knows yet."""
        desk = self._desk
        answered = await ask(desk.target, source, item, desk.tools.clock, desk.worker)
        follows = await self._decide(source, due, item, answered)
        if self._owner.gone or not await self._note(item, answered, follows) or isinstance(follows, Later):
            return None
        if isinstance(follows, Resend) and desk.target.rule.needs_intent:
            await self._owner.intents.disprove(item, _verdict(answered.heard, is_done=False), _try(item, answered))
        return follows, answered

    async def _decide(self, source: StatusSource, due: Due, item: Item, answered: Answered) -> Close | Resend | Later:
        config, now = self._desk.target.config, self._desk.tools.clock.now()
        terms = Terms(
            rule=self._desk.target.rule,
            policy=config.retry,
            settle_after=timedelta(seconds=source.settle_after_s),
            grace=timedelta(seconds=LEASE_S + config.timeouts.total_s) + MARGIN,
        )
        sends, first_sent_at = await self._owner.intents.sends(item) if terms.rule.needs_intent else (0, None)
        doubt = Doubt(
            delivery_id=item.delivery_id or "",
            since=due.since,
            expires_at=item.expires_at or now,
            sends=sends,
            first_sent_at=first_sent_at,
        )
        return follow(terms, doubt, answered.heard, answered.asked.asked_at, now)

    async def _note(self, item: Item, answered: Answered, follows: Close | Resend | Later) -> bool:
        """Keep the answer before anything follows from it; False when the row stands elsewhere by now."""
        asked, owned = answered.asked, self._owner.owned
        self._log.info(
            "delivery.asked",
            delivery_id=item.delivery_id,
            query_id=asked.query_id,
            said=asked.detail,
            http_status=asked.http_status,
            follows=type(follows).__name__.lower(),
        )
        due = follows.due if isinstance(follows, Later) else asked.answered_at
        return await self._store.note(owned, item.delivery_id or "", item.version, asked, due)

    def _move(self, lane: Lane, item: Item, follows: Close | Resend, answered: Answered) -> None:
        verdict = _verdict(answered.heard, is_done=isinstance(follows, Close))
        if isinstance(follows, Resend):
            item.may_have_acted = False
            item.next_due = self._desk.tools.clock.now()
        move = Move.ACKNOWLEDGE if isinstance(follows, Close) else Move.RETRY
        end = End(move=move, code=verdict.code, detail=verdict.detail)
        self._settler.end(lane, item, end, _try(item, answered)._replace(number=0, body_sha256=""), verdict)


def _try(item: Item, answered: Answered) -> Try:
    asked = answered.asked
    return Try(item.attempts, millis(asked.asked_at), millis(asked.answered_at), asked.body_sha256)


def _verdict(heard: Heard, *, is_done: bool) -> Verdict:
    """Return what an answer says of the attempts it is about."""
    return Verdict(
        code=None if is_done else ErrorCode.TRANSIENT_NETWORK,
        phase=Phase.AFTER_SENDING,
        detail=f"status_{heard.detail}",
        http_status=heard.http_status,
        proven=heard.proven,
    )
