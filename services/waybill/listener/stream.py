"""The listener as a stream processor: the same handlers, for deliveries that are handed over in a Kafka topic.

One thread owns the consumer; the loop works the records off, one at a time per aggregate and many aggregates at once.
A record is settled when its result is safe on the destination's topic of results, and the group's offset never passes
one that is not: whatever ends this process, the next one reads again from there, and the delivery records answer what
was done already. What the store cannot take now waits here; whatever else goes wrong is said in a result, since the
worker alone decides about another attempt (ADR 0065).

Needs the extra `listener-kafka`; the HTTP listener does not.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from waybill.contracts.fabric import Profile
from waybill.contracts.names import deliveries_topic, listener_group
from waybill.crypto.signing import FileSigner, Signer
from waybill.infra.clock import SystemClock
from waybill.infra.kafka import Record
from waybill.infra.kafka_stream import StreamConsumer
from waybill.infra.publisher import Publisher
from waybill.kernel.errors import ConfigError, TransientError
from waybill.listener.app import Listener, purge_hourly
from waybill.listener.core.holding import Bounds
from waybill.listener.stream_work import PartitionWork, Shared

__all__ = ["Stream", "StreamSettings"]

_log = logging.getLogger("waybill.listener")

T = TypeVar("T")

#: Paces this process; what is judged by a clock is judged by the listener's.
_CLOCK: Final = SystemClock()
_POLL_S: Final = 0.25
_COMMIT_EVERY_S: Final = 1.0
#: A consumer that was not asked for this long is stuck.
_STUCK_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How a topic is worked off."""

    #: `host:port` of the brokers, separated by commas.
    bootstrap: str
    #: The destination's own key file (`waybill keys new`), followed while it is rotated; or a signer. Signs results.
    results_key: Signer | Path | str
    #: The consumer group; empty for the one the fabric watches by default.
    group: str = ""
    #: Deliveries executed at one time.
    concurrency: int = 32
    #: What is read and not settled; over either, reading pauses. When half of it waits for its turn, the oldest of
    #: those are told as the gaps they are.
    max_records: int = 1_000
    max_bytes: int = 67_108_864
    #: What waits for an earlier delivery of its aggregate; only where sequences are checked.
    hold: Bounds = field(default_factory=Bounds)
    #: How long what is under way may take when a partition is given back.
    give_back_s: float = 10.0


class Stream:
    """Runs a listener on a topic.

    Args:
        listener: with its handlers.
        settings: where and how.

    Raises:
        ConfigError: the listener's profile cannot bear a topic, or the key cannot be used.
    """

    def __init__(self, listener: Listener, settings: StreamSettings) -> None:
        if listener.profile is Profile.NON_IDEMPOTENT:
            raise ConfigError(
                "a listener that cannot recognise a repeat takes no deliveries from Kafka: what was read and not "
                "committed is read again. Give it a store, or take deliveries over HTTP"
            )
        self._listener, self._settings = listener, settings
        self.binding, self.registry = listener.binding, listener.registry
        tenant, destination = listener.binding.tenant, listener.binding.destination
        self.topic = deliveries_topic(tenant, destination)
        self.group = settings.group or listener_group(tenant, destination)
        #: What may wait for an earlier delivery of its aggregate.
        self.bounds = settings.hold
        key = settings.results_key
        self._signer = key if isinstance(key, Signer) else FileSigner(Path(key))
        self._signer.sign("result", int(listener.clock.now().timestamp()), b"")
        self._works: dict[int, PartitionWork] = {}
        #: Partitions that are read no further until more of what was read is settled.
        self.paused: frozenset[int] = frozenset()
        self._shared: Shared | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polled_at: float | None = None
        self._trouble = ""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Partitions something was read of, and that are not being given back."""
        return tuple(sorted(self._works))

    def is_alive(self) -> dict[str, bool]:
        """Whether the process turns; what an orchestrator restarts it for."""
        asked = self._polled_at
        return {
            "polling": asked is None or _CLOCK.monotonic() - asked < _STUCK_S,
            "lanes": self._shared is None or not self._shared.is_broken,
        }

    def is_ready(self) -> dict[str, bool]:
        """Whether deliveries are taken, with what stands in the way."""
        shared = self._shared
        return {
            "polling": self._polled_at is not None and self.is_alive()["polling"],
            "reading": not self._trouble,
            "executing": shared is None or not shared.waits_to_execute,
            "publishing": shared is None or not shared.waits_to_publish,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Work the topic off until `stop` is set; what is under way is finished first.

        Raises:
            UnavailableError, ConfigError: the store did not come up.
        """
        self._loop = asyncio.get_running_loop()
        await self._listener.open()
        publisher = Publisher(self._settings.bootstrap, self.group)
        self._shared = Shared(self._listener, self._signer, publisher, self.bounds, self._settings.concurrency)
        purging = asyncio.create_task(purge_hourly(self._listener))
        thread = ThreadPoolExecutor(1, "stream")
        try:
            await self._work(stop, thread)
        finally:
            purging.cancel()
            await asyncio.gather(purging, return_exceptions=True)
            thread.shutdown(wait=False)
            await asyncio.to_thread(publisher.close)
            await self._listener.close()

    async def _work(self, stop: asyncio.Event, thread: ThreadPoolExecutor) -> None:
        def on_thread(call: Callable[[], T]) -> "asyncio.Future[T]":
            return asyncio.get_running_loop().run_in_executor(thread, call)

        settings = self._settings
        consumer = await on_thread(lambda: StreamConsumer(settings.bootstrap, self.group, self.topic, self))
        _log.info("stream.joined", extra={"topic": self.topic, "group": self.group})
        committed_at = _CLOCK.monotonic()
        try:
            while not stop.is_set():
                self._accept(await on_thread(lambda: consumer.poll(_POLL_S)))
                self._polled_at = _CLOCK.monotonic()
                self._note(consumer.trouble)
                await on_thread(lambda: self._balance(consumer))
                self._tick()
                if _CLOCK.monotonic() - committed_at >= _COMMIT_EVERY_S:
                    committed_at = _CLOCK.monotonic()
                    await self._commit(on_thread, consumer)
                    if self._trouble:
                        await on_thread(consumer.look)
        finally:
            await on_thread(consumer.close)
            _log.info("stream.left", extra={"topic": self.topic, "group": self.group})

    async def _commit(self, on_thread: Callable[..., "asyncio.Future[None]"], consumer: StreamConsumer) -> None:
        moved = {number: base for number, work in self._works.items() if (base := work.uncommitted()) is not None}
        try:
            await on_thread(lambda: consumer.commit(moved))
        except TransientError as error:
            _log.warning("stream.not_committed", extra={"detail": str(error)})
            return
        for number, base in moved.items():
            if number in self._works:
                self._works[number].committed = base

    def _note(self, trouble: str) -> None:
        """Say once what reading waits for."""
        if trouble and trouble != self._trouble:
            _log.warning("stream.not_reading", extra={"topic": self.topic, "group": self.group, "detail": trouble})
        self._trouble = trouble

    def _accept(self, records: Sequence[Record]) -> None:
        assert self._shared is not None
        for record in records:
            if record.partition not in self._works:
                self._works[record.partition] = PartitionWork(self._shared)
            self._works[record.partition].take(record)

    def _tick(self) -> None:
        held = 0
        for work in self._works.values():
            work.tell_overdue()
            held += work.held
        self._listener.meter.held(held)
        # What they wait for may lie behind them: they must not be what stops the reading.
        for work in self._works.values() if held > self._settings.max_records // 2 else ():
            work.tell_oldest(work.held // 2)

    def _balance(self, consumer: StreamConsumer) -> None:
        """Pause reading when too much is here, and go on once half of it is settled; on the consumer's thread."""
        records = sum(work.records for work in self._works.values())
        size = sum(work.bytes for work in self._works.values())
        assigned = consumer.partitions()
        if records >= self._settings.max_records or size >= self._settings.max_bytes:
            consumer.pause(sorted(assigned - self.paused))
            self.paused = assigned
        elif self.paused and 2 * records <= self._settings.max_records and 2 * size <= self._settings.max_bytes:
            consumer.resume(sorted(self.paused & assigned))
            self.paused = frozenset()

    # What the consumer tells, on its thread

    def revoked(self, partitions: Sequence[int]) -> dict[int, int]:
        """Finish what is under way of partitions, within the budget; return how far they came."""
        assert self._loop is not None
        self.paused -= frozenset(partitions)
        return asyncio.run_coroutine_threadsafe(self._give_back(partitions), self._loop).result()

    def lost(self, partitions: Sequence[int]) -> None:
        """Drop partitions: their next owner reads again what was not committed."""
        assert self._loop is not None
        self.paused -= frozenset(partitions)
        asyncio.run_coroutine_threadsafe(self._drop(partitions), self._loop).result()

    async def _give_back(self, partitions: Sequence[int]) -> dict[int, int]:
        works = {number: self._works.pop(number) for number in partitions if number in self._works}
        await asyncio.gather(*(work.finish(self._settings.give_back_s) for work in works.values()))
        return {number: base for number, work in works.items() if (base := work.uncommitted()) is not None}

    async def _drop(self, partitions: Sequence[int]) -> None:
        works = [self._works.pop(number) for number in partitions if number in self._works]
        await asyncio.gather(*(work.finish(0.0) for work in works))
