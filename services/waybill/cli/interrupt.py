"""Ending a long command in order: the first signal asks, and no further one disturbs what follows."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from waybill.cli.output import console

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt and ignore further ones until the block has ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        console.print("stopping …", highlight=False)
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
