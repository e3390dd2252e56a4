"""Waiting between tries of something that may work later: the longer, the more tries in a row failed."""

import asyncio
from collections.abc import Sequence
from typing import Final

__all__ = ["Patience"]

#: Seconds after the first, the second, … failure; the last for all that follow.
_WAITS: Final = (0.1, 0.3, 1.0, 2.0)


class Patience:
    """Counts failures in a row, and waits after each."""

    def __init__(self, waits: Sequence[float] = _WAITS) -> None:
        self._waits = waits
        self.failures = 0

    def worked(self) -> None:
        """Learn that a try worked: the next failure is a first one again."""
        self.failures = 0

    async def wait(self) -> None:
        """Wait after a failure, then count it: 0 while the first one is waited out."""
        await asyncio.sleep(self._waits[min(self.failures, len(self._waits) - 1)])
        self.failures += 1
