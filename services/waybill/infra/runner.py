"""Running one asyncio program on uvloop until it ends or is asked to stop.

The first SIGTERM or SIGINT asks for a drain; a second one ends the process at once, which is as safe: whatever
was not recorded is done again.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop

__all__ = ["calm_collector", "run_until_stopped"]

#: New objects between two looks of the collector for cycles, and looks of one generation between two of the next. A
#: worker holds thousands of records, which form none: the defaults spend a tenth of its time on going through them.
_COLLECT: Final = (20_000, 20, 50)


def calm_collector() -> None:
    """Look for cycles of garbage as seldom as a process with many small objects and few cycles needs. Idempotent."""
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def run_until_stopped(program: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a program; it gets an event that is set when it should stop, and returns when it has."""

    async def main() -> None:
        stop = asyncio.Event()

        def ask() -> None:
            if stop.is_set():
                os._exit(130)
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask)
        await program(stop)

    uvloop.run(main())
