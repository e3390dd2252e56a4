"""A strand: the thread on which the blocking calls of one client are made, one after the other.

Its work is written as a coroutine that waits for nothing but its own strand. On a thread every such wait blocks and
returns, so the coroutine never suspends and no event loop has a part in it; it costs what the plain calls cost. The
simulator gives the same work a strand on which waiting is virtual time, and so runs the code that ships.

What breaks otherwise: a coroutine here that waits for something else suspends, and the strand says so at once.
"""

import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from waybill.kernel.errors import InvariantBroken

__all__ = ["Strand", "ThreadStrand"]

T = TypeVar("T")
P = TypeVar("P")


class Strand(Protocol[P]):
    """Where one client's blocking calls are made. `start` and `give` are called on the loop, the rest by the work."""

    @property
    def is_alive(self) -> bool:
        """Whether the work has not ended."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work."""
        ...

    def give(self, parcel: P) -> None:
        """Leave something for the work."""
        ...

    async def take(self) -> P:
        """Wait for the next thing that was left."""
        ...

    async def call(self, blocking: Callable[..., T], *arguments: object) -> T:
        """Make a call that may block."""
        ...

    async def wait(self, flag: threading.Event, timeout_s: float) -> bool:
        """Wait until a flag is set, or for so long; return whether it is set."""
        ...

    async def result(self, future: Future[T], timeout_s: float) -> T:
        """Wait for what the loop was asked to do.

        Raises:
            TimeoutError: not within so long; it goes on.
        """
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work inside a call back of a client that is in the middle of a call of this strand."""
        ...


class ThreadStrand(Generic[P]):
    """A strand on a thread of its own, which does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parcels: queue.SimpleQueue[P] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the work has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work."""
        self._thread = threading.Thread(target=self.run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def give(self, parcel: P) -> None:
        """Leave something for the work."""
        self._parcels.put(parcel)

    async def take(self) -> P:
        """Block until something was left."""
        return self._parcels.get()

    async def call(self, blocking: Callable[..., T], *arguments: object) -> T:
        """Call."""
        return blocking(*arguments)

    async def wait(self, flag: threading.Event, timeout_s: float) -> bool:
        """Block on a flag."""
        return flag.wait(timeout_s)

    async def result(self, future: Future[T], timeout_s: float) -> T:
        """Block on a future."""
        return future.result(timeout_s)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, here and now."""
        try:
            work.send(None)
        except StopIteration:
            return
        work.close()
        raise InvariantBroken("the work of a strand waited for something that is not its strand")
