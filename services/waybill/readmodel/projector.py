"""The loop that keeps the read model: poll, decode, fold, write rows and positions together, again.

Invariants: positions move only in the transaction that holds the rows they stand for, so a crash anywhere is a
repeat of a batch that was never written; each tenant is folded by the process that holds its lock, and another one
takes over within seconds when that process is gone; a batch that was overtaken all the same is dropped, and the
positions are read again; what cannot be reached is tried again for as long as the caller wants to wait.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FencedError, TransientError, UnavailableError
from waybill.readmodel.core.fold import fold
from waybill.readmodel.ports import Batch, Bounds, Decoder, Positions, RawRecord, Source, Store, TopicPartition

__all__ = ["Projector", "Settings", "Watcher"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a projector runs."""

    #: What is kept: the name of its log.
    name: str = "read-model"
    #: Whose topics; empty for every tenant there is, those that come later included.
    tenants: frozenset[str] = frozenset()
    #: Stop when everything that was there at the start is folded.
    until_caught_up: bool = False
    #: How often new tenants and partitions are looked for.
    refresh_s: float = 5.0
    poll_s: float = 0.2
    pause_after_error_s: float = 1.0
    #: A run until caught up fails when nothing can be reached for this long.
    give_up_s: float = 60.0


class Watcher(Protocol):
    """Who is told how the fold goes, on its own thread: metrics."""

    def folded(self, records: int) -> None:
        """Take note of records that were written."""
        ...

    def refreshed(
        self, positions: Positions, tenants: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> None:
        """Take note of where the fold stands and where the topics end; called every few seconds."""
        ...


class Projector:
    """Folds topics into rows until told to stop. One thread; not to be shared."""

    #: Told about progress when somebody wants to know.
    watcher: Watcher | None = None

    def __init__(self, source: Source, store: Store, decoder: Decoder, clock: Clock, settings: Settings) -> None:
        self._source, self._store, self._decoder, self._clock = source, store, decoder, clock
        self._settings = settings
        self._log = get_logger(settings.name)
        self._tenants: dict[TopicPartition, str] = {}
        #: Tenants this process folds; others are folded by another process.
        self._claimed: frozenset[str] = frozenset()
        self._positions: dict[TopicPartition, int] = {}
        #: What a run until caught up still has to reach.
        self._targets: dict[TopicPartition, int] | None = None
        self._refresh_at = 0.0
        #: Whether positions and assignment must be taken from the store again.
        self._stale = True
        #: Records folded by this process.
        self.records = 0

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset by partition, as the store has it."""
        return self._positions

    def run(self, stop: threading.Event) -> None:
        """Fold until `stop` is set, or until caught up where the settings say so.

        Raises:
            UnavailableError: a run until caught up could not reach Kafka, registry or database for `give_up_s`.
        """
        failing_since: float | None = None
        while not stop.is_set():
            try:
                if not self._step():
                    return
                failing_since = None
            except FencedError as error:
                self._log.warning("fold.overtaken", reason=str(error))
                self._stale = True
                stop.wait(self._settings.pause_after_error_s)
            except (TransientError, UnavailableError) as error:
                now = self._clock.monotonic()
                failing_since = failing_since if failing_since is not None else now
                if self._settings.until_caught_up and now - failing_since > self._settings.give_up_s:
                    raise UnavailableError(f"{self._settings.name} cannot go on: {error}") from error
                self._log.warning("fold.waiting", reason=str(error))
                self._stale = True
                stop.wait(self._settings.pause_after_error_s)

    def _step(self) -> bool:
        """Do one round; return whether there is more to do."""
        if self._stale or self._clock.monotonic() >= self._refresh_at:
            self._refresh()
        if self._caught_up():
            return False
        batch = self._source.poll(self._settings.poll_s)
        if batch.reached:
            self._write(batch)
        return not self._caught_up()

    def _refresh(self) -> None:
        """Take tenants and positions, when that is news or when they may have moved."""
        tenants = self._source.partitions(self._settings.tenants)
        claimed = self._store.claim(set(tenants.values()))
        bounds = self._source.bounds(list(tenants))
        if self._stale or (tenants, claimed) != (self._tenants, self._claimed):
            self._positions = self._store.positions(tenants, bounds)
            self._tenants, self._claimed = tenants, claimed
            self._source.assign({p: at for p, at in self._positions.items() if tenants[p] in claimed})
            self._stale = False
            self._aim(bounds)
            self._log.info("fold.assigned", partitions=len(tenants), tenants=len(claimed))
        elif self._is_waiting_for_others():
            self._positions |= self._others()
        mine = {place: at for place, at in self._positions.items() if tenants[place] in claimed}
        self._source.show(mine, tenants)
        if self.watcher is not None:
            self.watcher.refreshed(self._positions, tenants, bounds)
        pause_s = self._settings.poll_s if self._is_waiting_for_others() else self._settings.refresh_s
        self._refresh_at = self._clock.monotonic() + pause_s

    def _is_waiting_for_others(self) -> bool:
        return self._targets is not None and self._claimed != frozenset(self._tenants.values())

    def _others(self) -> dict[TopicPartition, int]:
        """Return how far other processes are with the tenants they fold."""
        places = {place: tenant for place, tenant in self._tenants.items() if tenant not in self._claimed}
        return self._store.positions(places, self._source.bounds(list(places)))

    def _aim(self, bounds: Mapping[TopicPartition, Bounds]) -> None:
        if not self._settings.until_caught_up:
            return
        if self._targets is None:
            self._targets = {place: limits.end for place, limits in bounds.items()}

    def _caught_up(self) -> bool:
        if self._targets is None:
            return False
        return all(self._positions.get(place, 0) >= end for place, end in self._targets.items())

    def _write(self, batch: Batch) -> None:
        facts = [fact for record in batch.records for fact in self._decoder.decode(record, self._tenant_of(record))]
        newest: dict[TopicPartition, int] = {}
        for record in batch.records:
            place = (record.topic, record.partition)
            newest[place] = max(newest.get(place, 0), record.timestamp_ms)
        instants = {place: _EPOCH + timedelta(milliseconds=ms) for place, ms in newest.items()}
        rows = fold(facts)
        self._store.apply(rows, self._positions, batch.reached, instants)
        self._positions |= batch.reached
        self.records += len(batch.records)
        if self.watcher is not None:
            self.watcher.folded(len(batch.records))
        if batch.records:
            self._log.debug("fold.folded", records=len(batch.records), rows=len(rows))

    def _tenant_of(self, record: RawRecord) -> str:
        return self._tenants[record.topic, record.partition]
