"""Waiting for a condition instead of sleeping for a guess.

A test says what it waits for and for how long at most; it goes on the moment the condition holds. What the
condition last returned or raised is in the failure's message, so that a timeout explains itself.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

__all__ = ["NotReached", "eventually", "eventually_async"]

#: Pause between two looks: short at first, then long enough to leave the machine to what is waited for.
FIRST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 0.25


class NotReached(AssertionError):  # noqa: N818 - reads as the finding of a test
    """The condition did not hold in time; the message tells the last thing seen."""


def eventually(predicate: Callable[[], T], within_s: float = 10.0, what: str = "") -> T:
    """Call until the result is truthy and return it.

    An `AssertionError` or `LookupError` of the predicate means "not yet", so that asserts can stand in it; any
    other exception is an accident and passes through. The predicate runs at least twice: at once and at the deadline.

    Raises:
        NotReached: not truthy within the time.
    """
    deadline = time.monotonic() + within_s
    pause, idle = FIRST_PAUSE_S, threading.Event()
    while True:
        last_look = time.monotonic() >= deadline
        result, seen = _look(predicate)
        if result:
            return result
        if last_look:
            raise _not_reached(what, predicate, within_s, seen)
        idle.wait(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


async def eventually_async(predicate: Callable[[], T | Awaitable[T]], within_s: float = 10.0, what: str = "") -> T:
    """Do the same inside an event loop; the predicate may be a coroutine function."""
    deadline = time.monotonic() + within_s
    pause = FIRST_PAUSE_S
    while True:
        last_look = time.monotonic() >= deadline
        result, seen = _look(predicate)
        if inspect.isawaitable(result):
            try:
                result = await result
                seen = repr(result)
            except (AssertionError, LookupError) as error:
                result, seen = None, _told(error)
        if result:
            return result
        if last_look:
            raise _not_reached(what, predicate, within_s, seen)
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _look(predicate: Callable[[], T]) -> tuple[T | None, str]:
    try:
        result = predicate()
    except (AssertionError, LookupError) as error:
        return None, _told(error)
    return result, repr(result)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _not_reached(what: str, predicate: Callable[..., object], within_s: float, seen: str) -> NotReached:
    name = what or getattr(predicate, "__qualname__", "the condition")
    return NotReached(f"{name} did not hold within {within_s:g} s; last seen: {seen}")
