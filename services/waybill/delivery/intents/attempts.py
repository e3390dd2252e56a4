"""Attempts at a destination that cannot bear every repeat: written down, made, answered, in this order.

What an attempt may do is decided from the intent as it is found. An attempt that was answered is never made again:
its answer is told. One that was not is judged by the destination's profile (`core.repeats`). Intents of one
partition are written in batches by one task; while the database is away nothing is sent and nobody goes on.

What breaks otherwise: a worker that dies between the last byte and the answer would do twice what must not be.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.states import Move, State
from waybill.delivery.core.answered import as_document, read_document
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Held, Item, Lane
from waybill.delivery.core.records import Event, Try, millis
from waybill.delivery.core.repeats import BOUND_PASSED, Asks, Lost, Outcome, Over, Prior, Tried, resume
from waybill.delivery.core.retry import End
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.gate import LEASE_S, Gate
from waybill.delivery.intents.statements import Answer, Intent, IntentStore, Opened, Opening
from waybill.delivery.rows import surface
from waybill.delivery.settler import Settler, untried
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.kernel.errors import FencedError, TransientError

__all__ = ["MARGIN", "Intents"]

_MAX_BATCH: Final = 500
_WAITS: Final = (0.05, 0.2, 0.5, 1.0)
#: Times an answer is offered to a database that is away once the partition is somebody else's.
_LAST_WORDS: Final = 5
#: Clocks of two machines differ, and the last byte of an attempt may still be on its way when its time is over.
MARGIN: Final = timedelta(seconds=2)
_AGAIN: Final = timedelta(milliseconds=500)
#: The end of an attempt that was written down and then not made: the lease was over, or its destination remembers it
#: no longer.
_NOT_MADE: Final = Verdict(
    code=ErrorCode.TRANSIENT_NETWORK, phase=Phase.BEFORE_SENDING, detail="not_made", may_have_acted=False
)


class Intents:
    """The intents of one partition; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, settler: Settler, gate: Gate) -> None:
        self._desk, self._owner, self._settler, self._gate = desk, owner, settler, gate
        self._store = IntentStore(desk.tools.store)
        self._openings: list[tuple[Opening, asyncio.Future[Opened | Intent | None]]] = []
        self._looks: list[tuple[str, asyncio.Future[Intent | None]]] = []
        self._answers: list[tuple[Answer, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery")

    async def attempt(self, item: Item) -> Outcome | None:
        """Make an attempt, or say why none is made; None when the partition is somebody else's.

        Raises:
            ContractError: it can never be sent; nothing was written.
        """
        body = self._desk.target.body_of(item)
        now = self._desk.tools.clock.now()
        is_expired = item.expires_at is not None and item.expires_at <= now
        number = item.attempts + 1
        found = await (self._look(item) if is_expired else self._open(item, number, None))
        if isinstance(found, Opened):
            return await self._make(item, found, number, body)
        if self._owner.gone:
            return None
        if found is None or (found.answer is not None and found.attempts <= item.attempts):
            return Over() if is_expired else await self._after(item, found, body)
        return await self._resume(item, found, body, is_expired=is_expired)

    async def may_have_sent(self, item: Item) -> bool:
        """Whether a byte of a delivery may have left: an intent that was opened and not answered as never sent."""
        if not self._desk.target.rule_for(item).needs_intent:
            return False
        found = await self._look(item)
        return found is not None and (found.sends > 0 or _was_sent(found.answer))

    def conclude(self, lane: Lane, item: Item, outcome: Outcome | None) -> None:
        """Go on after an attempt, or after none."""
        now = self._desk.tools.clock.now()
        match outcome:
            case Tried(verdict, _, True) if verdict.is_proven and item.held is Held.MEMORY:
                self._repeated(lane, item, verdict)
            case Tried(verdict, attempt):
                self._settler.finished(lane, item, verdict, attempt)
            case Asks(due):
                self._desk.later(due, self._owner, lane)
            case Lost(detail):
                end = End(move=Move.LOSE_TRACK, code=ErrorCode.AMBIGUOUS_RESULT, detail=detail)
                self._settler.end(lane, item, end, untried(now), None)
            case Over():
                self._settler.expire(lane, item, now)
            case None:
                self._desk.offer(self._owner, lane)

    def _repeated(self, lane: Lane, item: Item, verdict: Verdict) -> None:
        """Note that an earlier record of the same delivery was acknowledged: nothing is sent, nothing moves (AT-2)."""
        item.state, item.version = State.ACKNOWLEDGED, 1
        event = Event("repeat", item.state, False, untried(self._desk.tools.clock.now()), verdict)
        self._settler.audit(item, event)
        self._owner.lanes.settle(lane, item)
        self._owner.pump()

    async def sends(self, item: Item) -> tuple[int, datetime | None]:
        """Return how many attempts of a delivery may have left a byte, and the first of them."""
        found = await self._look(item)
        return (0, None) if found is None else (found.sends, found.first_sent_at)

    async def disprove(self, item: Item, verdict: Verdict, attempt: Try) -> None:
        """Answer the last attempt, if nobody did, by what the destination said of it: it was not done."""
        document = as_document(verdict, attempt)
        await self._tell(Answer(delivery_id=item.delivery_id or "", number=attempt.number, unsent=0, answer=document))

    # Decisions

    async def _resume(self, item: Item, found: Intent, body: bytes, *, is_expired: bool) -> Outcome | None:
        """Go on after an attempt that this owner did not make."""
        target, now = self._desk.target, self._desk.tools.clock.now()
        item.sends, item.first_sent_at = found.sends, found.first_sent_at
        if found.answer is not None:
            verdict, attempt = read_document(found.answer, found.epoch)
            return Tried(verdict, attempt, found.record_offset != item.offset)
        prior = Prior(sends=found.sends, first_sent_at=found.first_sent_at, last_sent_at=found.last_sent_at)
        grace = timedelta(seconds=LEASE_S + target.config.timeouts.total_s) + MARGIN
        step = resume(target.rule, prior, now, grace, is_expired=is_expired)
        if isinstance(step, Asks):
            return step
        item.attempts = max(item.attempts, found.attempts)
        if isinstance(step, Lost):
            item.sent = item.may_have_acted = True
            return step
        return await self._after(item, found, body)

    async def _after(self, item: Item, found: Intent | None, body: bytes) -> Outcome | None:
        """Make the attempt that follows the one that was found."""
        if found is None:
            return Asks(self._desk.tools.clock.now() + _AGAIN)
        number = item.attempts + 1
        opened = await self._open(item, number, found.attempts)
        if isinstance(opened, Opened):
            return await self._make(item, opened, number, body)
        return None if self._owner.gone else Asks(self._desk.tools.clock.now() + _AGAIN)

    async def _make(self, item: Item, opened: Opened, number: int, body: bytes) -> Outcome | None:
        clock, target = self._desk.tools.clock, self._desk.target
        now = clock.now()
        is_borne = target.rule.bears(opened.sends - 1, opened.first_sent_at, now)
        if is_borne and self._gate.is_open:
            item.started = clock.monotonic()
            verdict, attempt = await target.attempt(item, body)
        else:
            verdict, attempt = _NOT_MADE, Try(number, millis(now), millis(now), "")
        # What was refused unseen by 429 leaves nothing to be remembered: it is no send either.
        unsent = verdict.phase is Phase.BEFORE_SENDING or verdict.code is ErrorCode.RATE_LIMIT
        item.sends = opened.sends - unsent
        item.first_sent_at = opened.first_sent_at if item.sends else None
        document = as_document(verdict, attempt)
        answer = Answer(delivery_id=opened.delivery_id, number=number, unsent=int(unsent), answer=document)
        self._desk.tools.failpoints("before_answer")
        await self._tell(answer)
        self._desk.tools.failpoints("after_answer")
        if not is_borne:
            item.attempts, item.sent, item.may_have_acted = number, True, True
            return Lost(BOUND_PASSED)
        return Tried(verdict, attempt)

    # Batches

    async def _open(self, item: Item, number: int, after: int | None) -> Opened | Intent | None:
        opening = Opening(delivery_id=item.delivery_id or "", record_offset=item.offset, number=number, found=after)
        found: Opened | Intent | None = await self._wait(self._openings, opening)
        if isinstance(found, Intent) and self._is_ours(found, number):
            return Opened(found.delivery_id, found.sends, found.first_sent_at or found.last_sent_at)
        return found

    def _is_ours(self, found: Intent, number: int) -> bool:
        """Whether we opened it by a statement whose end we did not learn: what we made, we answered before this."""
        is_open = found.answer is None and found.attempts == number
        return is_open and found.epoch == str(self._owner.owned.epoch)

    async def _look(self, item: Item) -> Intent | None:
        found: Intent | None = await self._wait(self._looks, item.delivery_id or "")
        return found

    async def _tell(self, answer: Answer) -> None:
        await self._wait(self._answers, answer)

    async def _wait(self, queue: list[tuple[Any, asyncio.Future[Any]]], entry: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        queue.append((entry, future))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)
        return await future

    async def _run(self) -> None:
        patience = Patience(_WAITS)
        try:
            while self._answers or self._looks or self._openings:
                try:
                    await self._round()
                    patience.worked()
                except TransientError as error:
                    if patience.failures == 0:
                        self._log.warning("intents.waiting", partition=self._owner.partition, reason=str(error))
                    if self._owner.gone and patience.failures >= _LAST_WORDS:
                        self._give_up(self._answers)
                    await patience.wait()
                except FencedError:
                    self._owner.refused()
                if self._owner.gone:
                    self._give_up(self._openings)
                    self._give_up(self._looks)
        finally:
            self._task = None

    async def _round(self) -> None:
        owned = self._owner.owned
        if self._answers:
            answers = self._answers[:_MAX_BATCH]
            await self._store.answer(owned, [answer for answer, _ in answers])
            self._settle(self._answers, len(answers), _nothing)
        if self._openings:
            openings = [opening for opening, _ in self._openings[:_MAX_BATCH]]
            self._desk.tools.failpoints("before_intent")
            found = await self._store.begin(owned, openings, self._desk.tools.clock.now())
            self._desk.tools.failpoints("after_intent")
            self._settle(self._openings, len(openings), lambda opening: found.get(opening.delivery_id))
        if self._looks:
            looks = [delivery_id for delivery_id, _ in self._looks[:_MAX_BATCH]]
            seen = await self._store.look(owned, looks)
            self._settle(self._looks, len(looks), seen.get)

    def _settle(self, queue: list[tuple[Any, asyncio.Future[Any]]], count: int, result: Callable[[Any], Any]) -> None:
        done, queue[:count] = queue[:count], []
        for entry, future in done:
            if not future.done():
                future.set_result(result(entry))

    def _give_up(self, queue: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        self._settle(queue, len(queue), _nothing)


def _was_sent(answer: dict[str, Any] | None) -> bool:
    """Whether an answered attempt left: what was refused unseen by 429 did, though it is no send to be remembered."""
    return answer is not None and answer["phase"] != Phase.BEFORE_SENDING


def _nothing(entry: object) -> None:
    """Answer nobody anything."""
