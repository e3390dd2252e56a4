"""One worker process: its loop, its strands, its clock, the real `Worker`; started, frozen, killed, started again.

A killed process is a loop nobody steps any more: no code of ours gets to say good-bye. What it had asked of brokers,
database or listeners is on its way and happens. A frozen process asks nothing while it is frozen.
"""

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from waybill.delivery import Worker
from waybill.simulator.loop import ProcessEnded, SimLoop
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["MemberOf", "SimClock", "SimProcess", "SimStrand"]

T = TypeVar("T")
P = TypeVar("P")

#: How often waiting for a flag looks at it.
_LOOK_S: Final = 0.02


class MemberOf(Protocol):
    """Who must know when a process stops and goes on: the group coordinators."""

    def stopped(self, process: "SimProcess") -> None:
        """No sign of life comes from it any more."""
        ...

    def woke(self, process: "SimProcess") -> None:
        """Signs of life come again."""
        ...


class SimClock:
    """A process's clock: boot time is virtual time, wall time may be set by people."""

    def __init__(self, timeline: Timeline, start: datetime) -> None:
        self._timeline, self._start = timeline, start
        #: What the wall clock was moved by.
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        """Return the wall clock."""
        return self._start + timedelta(seconds=self._timeline.now) + self.ahead

    def monotonic(self) -> float:
        """Return boot-time seconds; they go on while a process is frozen."""
        return self._timeline.now


class SimProcess:
    """A slot in which workers run, one after the other."""

    def __init__(self, name: str, timeline: Timeline, trace: Trace, members: MemberOf) -> None:
        self.name = name
        self.timeline, self._trace, self._members = timeline, trace, members
        self.loop = SimLoop(self._time)
        self.loop.is_dead = True
        #: Counts the starts: two lives of one slot are two processes.
        self.life = 0
        #: Work its clients' call backs began; the client waits for it.
        self.driven: deque[asyncio.Task[None]] = deque()
        self.worker: Worker | None = None
        self.main: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None

    @property
    def who(self) -> str:
        """Name it and its life."""
        return f"{self.name}/{self.life}"

    @property
    def is_alive(self) -> bool:
        """Whether it was started and neither ended nor was killed."""
        return not self.loop.is_dead and self.main is not None and not self.main.done()

    @property
    def is_running(self) -> bool:
        """Whether it is alive and not frozen."""
        return self.is_alive and not self.loop.is_frozen

    def start(self, make: Callable[["SimProcess"], Worker]) -> None:
        """Begin a life; the one before is unwound first, or its last breath would be drawn in this one."""
        _bury(self.loop)
        self.life += 1
        self.loop = SimLoop(self._time)
        self.loop.on_fuse = self.kill
        self.driven.clear()
        self.timeline.loops.append(self.loop)
        self.worker = make(self)
        self._stop = asyncio.Event()
        self.main = self.loop.create_task(self.worker.run(self._stop))
        self._trace(self.name, f"started, life {self.life}")

    def stop(self) -> None:
        """Ask it to drain and end."""
        self._trace(self.name, "asked to stop")
        assert self._stop is not None
        self._stop.set()

    def kill(self) -> None:
        """End it here and now."""
        if self.loop.is_dead:
            return
        self._trace(self.name, "KILLED")
        dead = self.loop
        dead.end()
        self.timeline.loops.remove(dead)
        self._members.stopped(self)
        self.timeline.after(0.0, _bury, dead)

    def freeze(self, seconds: float) -> None:
        """Stop it for a while, as SIGSTOP does."""
        if not self.is_running:
            return
        self._trace(self.name, f"FROZEN for {seconds:.3f} s")
        self.loop.is_frozen = True
        self._members.stopped(self)
        self.timeline.after(seconds, self.thaw, self.life)

    def thaw(self, life: int | None = None) -> None:
        """Let it go on."""
        if self.loop.is_frozen and not self.loop.is_dead and life in {None, self.life}:
            self._trace(self.name, "goes on")
            self.loop.is_frozen = False
            self._members.woke(self)

    def failure(self) -> BaseException | None:
        """Return why its life ended by itself; None when it did not, or ended as it was asked to."""
        if self.main is None or self.loop.is_dead or not self.main.done() or self.main.cancelled():
            return None
        return self.main.exception()

    async def checkpoint(self) -> None:
        """Go no further while frozen; code between two of these is one step."""
        if self.loop.is_dead:
            raise ProcessEnded
        if self.loop.is_frozen:
            await asyncio.sleep(0)

    async def request(self, serve: Callable[[Callable[[Any], None]], None], there_s: float, back_s: float) -> Any:
        """Ask a server and wait for its answer, which it gives by calling what it is called with; errors are raised.

        Args:
            serve: what the server does when the request arrives, whatever has become of who asked.
            there_s: how long the request travels.
            back_s: how long the answer travels.
        """
        await self.checkpoint()
        loop = self.loop
        future: asyncio.Future[Any] = loop.create_future()

        def answer(value: Any) -> None:
            self.timeline.after(back_s, loop.call_soon, _settle, future, value)

        self.timeline.after(there_s, serve, answer)
        return await future

    def _time(self) -> float:
        return self.timeline.now


def _settle(future: "asyncio.Future[Any]", value: Any) -> None:
    if future.done():
        return
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)


def _bury(loop: SimLoop) -> None:
    """Unwind a process that ended; once is enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # work that was made and never begun
        loop.abandon()


class SimStrand(Generic[P]):
    """A strand whose blocking calls take virtual time on the loop of their process."""

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._parcels: deque[P] = deque()
        self._taker: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the work has not ended."""
        return self._task is not None and not self._task.done()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work."""
        self._task = self._process.loop.create_task(work)

    def give(self, parcel: P) -> None:
        """Leave something for the work."""
        self._parcels.append(parcel)
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    async def take(self) -> P:
        """Wait for the next thing that was left."""
        while not self._parcels:
            self._taker = self._process.loop.create_future()
            await self._taker
        return self._parcels.popleft()

    async def call(self, blocking: Callable[..., T], *arguments: object) -> T:
        """Call; clients of the simulator answer with something to wait for."""
        result = blocking(*arguments)
        return cast("T", await result) if isawaitable(result) else result

    async def wait(self, flag: threading.Event, timeout_s: float) -> bool:
        """Wait for a flag."""
        end = self._process.timeline.now + timeout_s
        while not flag.is_set() and self._process.timeline.now < end:  # noqa: ASYNC110 - a thread's flag
            await asyncio.sleep(_LOOK_S)
        return flag.is_set()

    async def result(self, future: Future[T], timeout_s: float) -> T:
        """Wait for what the loop was asked to do."""
        wrapped = asyncio.wrap_future(future)
        done, _ = await asyncio.wait([wrapped], timeout=timeout_s)
        if not done:
            raise TimeoutError
        return wrapped.result()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work inside a call back; the client that calls back waits for it."""
        self._process.driven.append(self._process.loop.create_task(work))
