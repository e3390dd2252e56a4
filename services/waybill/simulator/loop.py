"""The event loop of one simulated process: asyncio on virtual time, run from outside one instant at a time.

Killed between any two callbacks: no other runs, and whatever its code still asks of it ends in `ProcessEnded`.
Frozen: none runs for a while, its timers are late when it wakes up, as those of a stopped process are.
"""

import asyncio
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["ProcessEnded", "SimLoop", "SpinningError"]

#: So many callbacks without time passing mean that somebody spins.
_SPINS: Final = 100_000

T = TypeVar("T")


class ProcessEnded(BaseException):
    """Raised in code of a process that was killed, so that it gets no further."""


class SpinningError(RuntimeError):
    """Code of a process runs in circles at one instant."""


if TYPE_CHECKING:
    _Loop = Any  # what is not here nobody asks of it
else:
    _Loop = asyncio.AbstractEventLoop


class SimLoop(_Loop):  # type: ignore[misc] # Any is meant
    """Ready queue and timers of one process."""

    #: Tells that sleeping on this loop takes no real time.
    is_virtual = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._serial = itertools.count()
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.is_frozen = False
        self.is_dead = False
        #: Ends the process after so many more callbacks; None lets it live.
        self.fuse: int | None = None
        self.on_fuse: Callable[[], None] = lambda: None

    # What the world asks

    def next_at(self) -> float | None:
        """Return when there is something to run; None while there is nothing, or it may not."""
        if self.is_dead or self.is_frozen:
            return None
        if self._ready:
            return 0.0
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run(self) -> None:
        """Run until nothing is ready at this instant."""
        now, ready, timers = self._clock(), self._ready, self._timers
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        spins = 0
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while ready and not self.is_frozen and not self.is_dead:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                spins += 1
                if spins > _SPINS:
                    raise SpinningError("a process spins: time does not pass")
                if self.fuse is not None:
                    self.fuse -= 1
                    if self.fuse <= 0:
                        self.fuse = None
                        self.on_fuse()
        finally:
            events._set_running_loop(before)

    def end(self) -> None:
        """Run nothing from here on; the process's code is not to say good-bye."""
        self.call_exception_handler({"message": "killed", "exception": ProcessEnded()})
        self.is_dead = True

    def abandon(self) -> None:
        """Unwind what a process that ended left, without letting it act."""
        self._ready.clear()
        self._timers.clear()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # no complaint: it was killed
                try:
                    coroutine: Any = task.get_coro()
                    coroutine.close()
                except BaseException:  # noqa: S110 - a killed process complains to nobody
                    pass
        finally:
            events._set_running_loop(before)
        self._tasks.clear()

    # What asyncio asks

    def time(self) -> float:
        """Return virtual seconds."""
        return self._clock()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Run something in the next round."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run something after a while."""
        return self.call_at(self._clock() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run something at an instant."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            heapq.heappush(self._timers, (when, next(self._serial), handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """Make a future, unless there is no process any more."""
        if self.is_dead:
            raise ProcessEnded
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **more: Any) -> "asyncio.Task[T]":
        """Start a task, unless there is no process any more."""
        if self.is_dead:
            coro.close()
            raise ProcessEnded
        task = asyncio.Task(coro, loop=self, name=more.get("name", "task"))
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def get_debug(self) -> bool:
        """Say no."""
        return False

    def is_running(self) -> bool:
        """Whether its process lives."""
        return not self.is_dead

    def is_closed(self) -> bool:
        """Whether its process was killed."""
        return self.is_dead

    def set_exception_handler(self, handler: Any) -> None:
        """Take who is told of errors nobody caught."""
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell of an error nobody caught."""
        if not self.is_dead and self._handler is not None:
            self._handler(self, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it: a cancelled timer is dropped when its time comes."""
