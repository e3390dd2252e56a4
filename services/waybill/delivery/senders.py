"""The attempts of one destination: a queue of lanes, a bound on how many are under way, and rounds.

A *round* concludes every attempt that has ended since the one before, then begins what is ready, as far as there is
room: each step for all of them before the next step. A step that runs twenty times in a row takes half the time of
one that takes turns with everything else, since its code and data are still at hand.

A slow aggregate occupies one place, never the queue. How many places there are follows the configuration.
"""

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from waybill.delivery.controls.valve import Valve
from waybill.delivery.core.freshness import Signed
from waybill.delivery.core.lanes import Held, Item, Lane
from waybill.delivery.core.repeats import Outcome
from waybill.delivery.desk import Owner
from waybill.delivery.sender import Posting, Target
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError

__all__ = ["SLOW_S", "Senders"]

#: An attempt older than this gets its row while it is in flight.
SLOW_S: Final = 2.0
#: Attempts begun in one round: the loop has others to serve.
_ROUND: Final = 64


class HasTarget(Protocol):
    """Who knows where to send to now, and what came of it."""

    target: Target
    counts: Counter[str]


class _Attempt:
    """A head that is being attempted."""

    __slots__ = ("body", "item", "lane", "owner", "posting", "target", "tried")

    def __init__(self, owner: Owner, lane: Lane, item: Item, target: Target) -> None:
        self.owner, self.lane, self.item, self.target = owner, lane, item, target
        self.body = b""
        #: What is sent, and what comes of it; None where the attempt is written down first, or never left.
        self.posting: Posting | None = None
        #: What an attempt came to that was written down first.
        self.tried: Outcome | None = None


class Senders:
    """Queue, timers and attempts of one destination; lives on the loop."""

    def __init__(self, destination: HasTarget, clock: Clock) -> None:
        self._destination, self._clock = destination, clock
        #: Aggregates with an attempt of a former owner in this process.
        self.ghosts: dict[str, int] = {}
        self.signed = Signed()
        self.valve = Valve(destination, self, clock)
        self._ready: deque[tuple[Owner, Lane]] = deque()
        self._timers: list[tuple[datetime, int, Owner, Lane]] = []
        self._serial = itertools.count()
        self._inflight: dict[Item, tuple[Owner, Lane]] = {}
        #: Those that have ended and are not concluded.
        self._ended: list[_Attempt] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: Where those of them that wait for no answer are told the next attempt.
        self._idle: list[asyncio.Future[_Attempt]] = []
        self._is_planned = self._has_stopped = False

    @property
    def ready(self) -> int:
        """How many lanes wait for a place."""
        return len(self._ready)

    @property
    def inflight(self) -> int:
        """How many attempts are under way."""
        return len(self._inflight)

    @property
    def is_quiet(self) -> bool:
        """Whether a tick has nothing to do: nothing is under way, due at a time or restricted."""
        return not (self._inflight or self._timers or self.valve.is_limited)

    def is_under_way(self, lane: Lane) -> bool:
        """Whether an attempt of a lane's head is under way."""
        return any(found is lane for _, found in self._inflight.values())

    def under_way(self) -> Callable[[], bool]:
        """Return a question: is an attempt that uses the client of now still under way?"""
        now = {item: item.started for item in self._inflight if item.started is not None}
        return lambda: any(item in self._inflight and item.started == started for item, started in now.items())

    async def stop(self) -> None:
        """End all of them at once; nothing begins any more."""
        self._has_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def offer(self, owner: Owner, lane: Lane) -> None:
        """Queue a lane."""
        self._ready.append((owner, lane))
        self._plan()

    def wake(self, most: int) -> None:
        """Begin what is ready if there is room for anything; what restricts the destination counts along."""
        if most > 0:
            self._plan()

    def later(self, due: datetime, owner: Owner, lane: Lane) -> None:
        """Queue a lane at an instant."""
        heapq.heappush(self._timers, (due, next(self._serial), owner, lane))

    def forget(self, owners: Sequence[Owner]) -> None:
        """Drop what owners that let go wanted to be attempted, or reminded of: it may be days away."""
        gone = {id(owner) for owner in owners}
        ready = [entry for entry in self._ready if id(entry[0]) not in gone]
        self._ready.clear()  # in place: the senders hold on to it
        self._ready.extend(ready)
        self._timers = [timer for timer in self._timers if id(timer[2]) not in gone]
        heapq.heapify(self._timers)

    def tick(self, now: datetime, mono: float) -> None:
        """Queue what is due; give slow attempts their rows; look at what restricts the destination."""
        while self._timers and self._timers[0][0] <= now:
            _, _, owner, lane = heapq.heappop(self._timers)
            if not owner.gone:
                self.offer(owner, lane)
        deadline = now + timedelta(seconds=self._destination.target.config.timeouts.total_s)
        slow = [entry for entry in self._inflight.items() if _is_slow(entry[0], mono)]
        for item, (owner, lane) in slow:
            if item.held is Held.MEMORY:
                owner.slow(lane, item, deadline)
        self.valve.tick()

    # Rounds

    def _plan(self) -> None:
        """See to it that a round follows soon."""
        if not self._is_planned and not self._has_stopped:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        if self._has_stopped:
            return
        self._is_planned = False
        ended, self._ended = self._ended, []
        for attempt in ended:
            self._conclude(attempt)
        begun = self._pick()
        for attempt in begun:
            self._prepare(attempt)
        for attempt in begun:
            self._start(attempt)
        if begun and self._ready:
            self._plan()

    def _pick(self) -> list[_Attempt]:
        """Take heads that may be attempted now out of the queue, as far as there is room."""
        ready, valve, inflight, target = self._ready, self.valve, self._inflight, self._destination.target
        begun: list[_Attempt] = []
        room = min(target.config.concurrency - len(inflight), _ROUND)
        while ready and not valve.is_shut and len(begun) < room:
            owner, lane = ready.popleft()
            item = owner.next(lane)
            if item is None:
                continue
            if valve.is_limited:
                valve.spend()
            owner.inflight += 1
            inflight[item] = (owner, lane)
            begun.append(_Attempt(owner, lane, item, target))
        return begun

    def _prepare(self, attempt: _Attempt) -> None:
        """Render what is sent as it is."""
        if not attempt.target.rule_for(attempt.item).needs_intent:
            try:
                attempt.body = attempt.target.body_of(attempt.item)
            except ContractError as error:
                attempt.item.poison = str(error)

    def _start(self, attempt: _Attempt) -> None:
        item, target = attempt.item, attempt.target
        if item.poison is not None:
            self._over(attempt)
            return
        if not target.rule_for(item).needs_intent:
            item.started = self._clock.monotonic()
            attempt.posting = target.begin(item, attempt.body)
        if self._idle:
            self._idle.pop().set_result(attempt)
        else:
            task = asyncio.get_running_loop().create_task(self._send(attempt))
            self._tasks.add(task)
            task.add_done_callback(self._stopped)

    async def _send(self, attempt: _Attempt) -> None:
        """Wait for the answers of one attempt after the other: a task for each would cost more than the waiting."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if attempt.posting is not None:
                    await attempt.target.post(attempt.posting)
                else:
                    attempt.tried = await attempt.owner.intents.attempt(attempt.item)
            except ContractError as error:
                attempt.item.poison = str(error)
            finally:
                self._over(attempt)
            waiting: asyncio.Future[_Attempt] = loop.create_future()
            self._idle.append(waiting)
            attempt = await waiting

    def _over(self, attempt: _Attempt) -> None:
        """Let the next round conclude it."""
        self._ended.append(attempt)
        self._plan()

    def _conclude(self, attempt: _Attempt) -> None:
        owner, lane, item, posting = attempt.owner, attempt.lane, attempt.item, attempt.posting
        item.started = None
        owner.inflight -= 1
        del self._inflight[item]
        if posting is not None:
            self.signed.note(item.delivery_id or "", posting.started_ms)
        if owner.gone:
            self._lay(lane.aggregate)
        elif item.poison is not None:
            owner.settler.poisoned(lane, item)
        elif posting is None:
            owner.intents.conclude(lane, item, attempt.tried)
        elif posting.has_ended:
            owner.settler.finished(lane, item, *attempt.target.judge(item, posting))
        if self.valve.is_limited:
            self.valve.ended()

    def _lay(self, aggregate: str) -> None:
        """Let an aggregate go on whose former owner's attempt has ended."""
        left = self.ghosts.get(aggregate, 0) - 1
        if left > 0:
            self.ghosts[aggregate] = left
        else:
            self.ghosts.pop(aggregate, None)

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a sender ended", "exception": error, "task": task})


def _is_slow(item: Item, mono: float) -> bool:
    return item.started is not None and mono - item.started >= SLOW_S
