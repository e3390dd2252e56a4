"""The senders of one destination: one queue of lanes, a fixed number of coroutines that attempt their heads.

A slow aggregate occupies one sender, never the queue. How many there are follows the configuration.
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
from waybill.delivery.sender import Target
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError

__all__ = ["SLOW_S", "Senders"]

#: An attempt older than this gets its row while it is in flight.
SLOW_S: Final = 2.0


class HasTarget(Protocol):
    """Who knows where to send to now, and what came of it."""

    target: Target
    counts: Counter[str]


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
        self._idle: deque[asyncio.Future[None]] = deque()
        self._inflight: dict[Item, tuple[Owner, Lane]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Senders that go on after what they do now.
        self._count = 0

    @property
    def ready(self) -> int:
        """How many lanes wait for a sender."""
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

    def resize(self) -> None:
        """Follow the configured concurrency; those too many end after their attempt."""
        loop = asyncio.get_running_loop()
        while self._count < self._destination.target.config.concurrency:
            task = loop.create_task(self._send())
            self._count += 1
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        for _ in range(self._count - self._destination.target.config.concurrency):
            self._wake()

    async def stop(self) -> None:
        """End all of them at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def offer(self, owner: Owner, lane: Lane) -> None:
        """Queue a lane and wake a sender."""
        self._ready.append((owner, lane))
        self._wake()

    def wake(self, most: int) -> None:
        """Begin up to so many attempts of what is ready, as far as senders are idle."""
        for _ in range(min(most, len(self._ready))):
            self._wake()

    def _wake(self) -> None:
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

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

    async def _send(self) -> None:
        ready, valve, loop = self._ready, self.valve, asyncio.get_running_loop()
        while self._count <= self._destination.target.config.concurrency:
            if not ready or valve.is_shut:
                waiting = loop.create_future()
                self._idle.append(waiting)
                await waiting
                continue
            owner, lane = ready.popleft()
            item = owner.next(lane)
            if item is None:
                continue
            if valve.is_limited:
                valve.spend()
            await self._attempt(owner, lane, item)
            if valve.is_limited:
                valve.ended()
        self._count -= 1
        if ready:  # this one may have been woken for it
            self._wake()

    async def _attempt(self, owner: Owner, lane: Lane, item: Item) -> None:
        target = self._destination.target
        owner.inflight += 1
        self._inflight[item] = (owner, lane)
        tried: Outcome | None = None
        try:
            if target.rule_for(item).needs_intent:
                tried = await owner.intents.attempt(item)
            else:
                body = target.body_of(item)
                item.started = self._clock.monotonic()
                verdict, attempt = await target.attempt(item, body)
                self.signed.note(item.delivery_id or "", attempt.started_ms)
        except ContractError as error:
            item.poison = str(error)
        finally:
            item.started = None
            owner.inflight -= 1
            del self._inflight[item]
        if owner.gone:
            self._lay(lane.aggregate)
        elif item.poison is not None:
            owner.settler.poisoned(lane, item)
        elif target.rule_for(item).needs_intent:
            owner.intents.conclude(lane, item, tried)
        else:
            owner.settler.finished(lane, item, verdict, attempt)

    def _lay(self, aggregate: str) -> None:
        """Let an aggregate go on whose former owner's attempt has ended."""
        left = self.ghosts.get(aggregate, 0) - 1
        if left > 0:
            self.ghosts[aggregate] = left
        else:
            self.ghosts.pop(aggregate, None)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a sender ended", "exception": error, "task": task})


def _is_slow(item: Item, mono: float) -> bool:
    return item.started is not None and mono - item.started >= SLOW_S
