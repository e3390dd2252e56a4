"""What a process remembers while it lives, bounded by count and by age: `bounded_deduplication`.

A restart forgets everything, so this store is for effects that bear a repeat beyond the bound, and for tests. The
destination declares the same bound to the fabric, which then repeats only within it.
"""

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from waybill.contracts.envelope import GapResolution
from waybill.contracts.fabric import Profile
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, InvariantBroken
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Pending, Stored
from waybill.listener.core.message import Received
from waybill.listener.core.verification import Lane
from waybill.listener.stores.port import Found, Memory, StoreBusyError, UnderWayError

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    stored: Stored
    received_at: datetime


class MemoryWork:
    """One claim, remembered when it ends well."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store
        self.claimed: Claim | None = None
        self.record: _Record | None = None

    async def claim(self, claim: Claim) -> Found:
        """Wait for whoever executes the delivery or its operation, then look, then claim."""
        await self._store.wait_for(claim)
        found = self._store.find(claim)
        if found is None:
            self._store.begin(claim)
            self.claimed = claim
        return found

    async def resume(self, claim: Claim) -> Stored | Pending:
        """Nothing is ever pending here."""
        raise InvariantBroken("a store in memory has nothing pending")

    async def complete(self, claim: Claim, receipt: bytes, executed_at: datetime) -> None:
        """Keep the receipt once the transaction ends well."""
        self.record = _Record(stored=Stored(identity=claim.identity, receipt=receipt), received_at=claim.received_at)

    async def forget(self, claim: Claim) -> None:
        """Nothing is ever pending here."""

    async def lane(self, claim: Claim) -> Lane:
        """No lanes are kept."""
        raise InvariantBroken("a store in memory keeps no lanes")

    async def take_turn(self, claim: Claim, lane: Lane, sequence: int) -> None:
        """No lanes are kept."""

    async def note(self, claim: Claim, gap: GapResolution) -> None:
        """No lanes are kept."""

    async def baselines(self) -> None:
        """No lanes are kept, so nothing waits for a baseline."""

    async def call(self, function: Callable[[Received, Any], Any], command: Received) -> Any:
        """Call a handler with nothing to write through."""
        if inspect.iscoroutinefunction(function):
            return await function(command, None)
        return await asyncio.to_thread(function, command, None)


class MemoryStore:
    """The newest deliveries, in memory.

    Args:
        max_count: how many are remembered.
        max_age: for how long, since they came.
        lock_timeout: how long a concurrent duplicate waits for the first one.
        clock: for tests.
    """

    def __init__(
        self,
        *,
        max_count: int = 10_000,
        max_age: timedelta = timedelta(hours=1),
        lock_timeout: timedelta = timedelta(seconds=10),
        clock: Clock | None = None,
    ) -> None:
        if max_count < 1 or max_age <= timedelta(0):
            raise ConfigError("a store in memory remembers at least one delivery for more than no time")
        self._max_count = max_count
        self._max_age = max_age
        self._lock_timeout_s = lock_timeout.total_seconds()
        self._clock = clock or SystemClock()
        self._records: OrderedDict[object, _Record] = OrderedDict()
        self._operations: dict[str, object] = {}
        self._under_way: dict[object, asyncio.Event] = {}

    @property
    def memory(self) -> Memory:
        """Bounded: what is older, or beyond the count, is forgotten."""
        return Memory(profile=Profile.BOUNDED_DEDUPLICATION, retention=self._max_age)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def ping(self) -> None:
        """It lives."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryWork]:
        """Remember what was completed, unless an exception ends it."""
        work = MemoryWork(self)
        try:
            yield work
            if work.record is not None:
                self._remember(work.record)
        finally:
            if work.claimed is not None:
                self._end(work.claimed)

    async def look(self, claim: Claim) -> Found:
        """Say what is remembered; raises UnderWayError."""
        if any(key in self._under_way for key in _keys(claim)):
            raise UnderWayError
        return self.find(claim)

    async def purge(self, now: datetime) -> int:
        """Forget what is too old."""
        return self._forget_old(now)

    def is_unavailable(self, error: Exception) -> bool:
        """Only a wait that took too long."""
        return isinstance(error, StoreBusyError)

    def find(self, claim: Claim) -> Stored | None:
        """Return what is remembered of the delivery, or of its operation."""
        self._forget_old(self._clock.now())
        delivery: object = claim.identity.delivery_id
        if delivery not in self._records:
            delivery = self._operations.get(claim.identity.operation_id)
        record = self._records.get(delivery)
        return record.stored if record is not None else None

    async def wait_for(self, claim: Claim) -> None:
        """Wait until nobody executes the delivery or its operation; raises StoreBusyError."""
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                while waiting := [self._under_way[key] for key in _keys(claim) if key in self._under_way]:
                    await waiting[0].wait()
        except TimeoutError as error:
            raise StoreBusyError("a copy of this delivery takes too long") from error

    def begin(self, claim: Claim) -> None:
        """Keep others of the delivery and of its operation waiting."""
        over = asyncio.Event()
        for key in _keys(claim):
            self._under_way[key] = over

    def _end(self, claim: Claim) -> None:
        for key in _keys(claim):
            self._under_way.pop(key).set()

    def _remember(self, record: _Record) -> None:
        identity = record.stored.identity
        self._records[identity.delivery_id] = record
        self._operations[identity.operation_id] = identity.delivery_id
        while len(self._records) > self._max_count:
            self._drop_oldest()

    def _forget_old(self, now: datetime) -> int:
        count = 0
        while self._records and now - next(iter(self._records.values())).received_at > self._max_age:
            self._drop_oldest()
            count += 1
        return count

    def _drop_oldest(self) -> None:
        delivery, record = self._records.popitem(last=False)
        if self._operations.get(record.stored.identity.operation_id) == delivery:
            del self._operations[record.stored.identity.operation_id]


def _keys(claim: Claim) -> tuple[object, ...]:
    identity = claim.identity
    return tuple(dict.fromkeys((("delivery", str(identity.delivery_id)), ("operation", identity.operation_id))))
