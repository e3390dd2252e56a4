"""No memory at all, for a destination that cannot deduplicate: every delivery that comes is executed.

Its profile is `non_idempotent`: the fabric writes each attempt down before its first byte, and repeats nothing that
may have acted.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from waybill.contracts.fabric import Profile
from waybill.listener.core.claims import Claim
from waybill.listener.stores.memory import MemoryStore, MemoryWork
from waybill.listener.stores.port import Found, Memory

__all__ = ["NoStore"]


class _Forgetful(MemoryWork):
    async def claim(self, claim: Claim) -> Found:
        """It is always ours."""
        return None


class NoStore:
    """Remembers nothing."""

    def __init__(self) -> None:
        self._empty = MemoryStore(max_count=1)

    @property
    def memory(self) -> Memory:
        """None."""
        return Memory(profile=Profile.NON_IDEMPOTENT, retention=timedelta(0))

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def ping(self) -> None:
        """It lives."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryWork]:
        """Nothing is kept at its end."""
        yield _Forgetful(self._empty)

    async def look(self, claim: Claim) -> Found:
        """Nothing is known; a destination with this store must not declare a status query."""
        return None

    async def purge(self, now: datetime) -> int:
        """Nothing to drop."""
        return 0

    def is_unavailable(self, error: Exception) -> bool:
        """Never."""
        return False
