"""Running one asyncio program on uvloop until it ends or is asked to stop.

The first SIGTERM or SIGINT asks for a drain; a second one ends the process at once, which is as safe: whatever
was not recorded is done again.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import uvloop

__all__ = ["run_until_stopped"]


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
