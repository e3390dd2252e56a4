"""The loop that tells one tenant's events: read states, write commands and positions together, again.

One thread owns it, with its own consumer and its own connection: an outbox that is away holds its tenant only.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import psycopg

from waybill.contracts.codec import AvroReader
from waybill.contracts.events import DELIVERY_AGGREGATE, DESTINATION_AGGREGATE
from waybill.contracts.fabric import OutboxConfig, TenantConfig
from waybill.contracts.names import state_topic
from waybill.events.core.telling import Event, event_of
from waybill.events.metrics import Meter
from waybill.events.store import EventStore
from waybill.events.turns import Turns
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.log import get_logger
from waybill.infra.postgres import connect
from waybill.infra.secrets import read_secret
from waybill.infra.topic_reader import PlacedRecord, TopicReader
from waybill.kernel.clock import Clock
from waybill.kernel.errors import (
    ConfigError,
    ContractError,
    FencedError,
    RefusedError,
    TransientError,
    UnavailableError,
)
from waybill.kernel.ids import Tenant

__all__ = ["Sources", "Teller", "events_outbox"]

log = get_logger("events")

_POLL_S: Final = 0.2
_PAUSE_S: Final = 1.0
_LOOK_EVERY_S: Final = 10.0
#: How often it is asked how destinations stand.
_TURNS_EVERY_S: Final = 2.0


def events_outbox(tenant: TenantConfig) -> OutboxConfig | None:
    """Return the outbox that a tenant's events are written to, if it has one."""
    return next((each for each in tenant.outboxes if DELIVERY_AGGREGATE in each.aggregate_types), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What every teller of a process works with."""

    bootstrap: str
    #: Of the control database, for reading.
    dsn: str
    states: AvroReader
    clock: Clock
    meter: Meter


class Teller:
    """Tells one tenant's events until told to stop."""

    def __init__(self, sources: Sources, tenant: Tenant, config: Callable[[], TenantConfig | None]) -> None:
        """Begin nothing yet.

        Args:
            sources: what it works with.
            tenant: whose events.
            config: the tenant as it is applied now.
        """
        self._sources, self._tenant, self._config = sources, tenant, config
        self._topic = state_topic(tenant)
        self._admin = KafkaAdmin(sources.bootstrap, sources.clock)

    def run(self, stop: threading.Event) -> None:
        """Tell until `stop` is set. What is away, or not allowed yet, is waited for: nothing is lost by it."""
        while not stop.is_set():
            try:
                self._follow(stop)
            except (
                ConfigError,
                FencedError,
                RefusedError,
                TransientError,
                UnavailableError,
                psycopg.Error,  # a right or a function that the outbox lacks until somebody runs its installation
            ) as error:
                self._sources.meter.blocked(self._tenant, is_blocked=True)
                log.warning("events.waiting", tenant=self._tenant, reason=_reason(error))
            stop.wait(_PAUSE_S)

    def _follow(self, stop: threading.Event) -> None:
        config = self._config()
        outbox = events_outbox(config) if config is not None else None
        if config is None or outbox is None:
            return
        dsn = read_secret(outbox.dsn, f"dsn of outbox {outbox.name}")
        with (
            connect(dsn, application_name="waybill-events") as connection,
            closing(TopicReader(self._sources.bootstrap, f"waybill-events-{self._tenant}", tells_end=True)) as reader,
        ):
            store = EventStore(connection, self._tenant, outbox.schema)
            if not store.claim():
                return
            store.forget()
            positions = store.positions(self._topic, self._admin.end_offsets(self._topic, config.partitions))
            for partition, offset in positions.items():
                reader.watch(self._topic, partition, offset)
            log.info("events.reading", tenant=self._tenant, partitions=len(positions))
            turns = None
            if DESTINATION_AGGREGATE in outbox.aggregate_types:
                turns = Turns(self._sources.dsn, self._tenant, store)
            self._tell(store, reader, positions, turns, stop)

    def _tell(
        self,
        store: EventStore,
        reader: TopicReader,
        positions: dict[int, int],
        turns: Turns | None,
        stop: threading.Event,
    ) -> None:
        look_at = turn_at = 0.0
        while not stop.is_set():
            records = reader.poll(_POLL_S)
            # the end of a partition comes as an empty record: what lies there are marks of transactions
            read = {record.partition: record.offset + 1 for record in records}
            after = {partition: offset for partition, offset in read.items() if offset != positions[partition]}
            if after:
                for event in store.tell(self._topic, positions, after, self._wanted(records)):
                    self._sources.meter.told(self._tenant, event.event_type)
                positions |= after
            now = self._sources.clock.monotonic()
            if turns is not None and now >= turn_at:
                turn_at = now + _TURNS_EVERY_S
                for event in turns.tell(self._routed()):
                    self._sources.meter.told(self._tenant, event.event_type)
            self._sources.meter.blocked(self._tenant, is_blocked=False)
            if now >= look_at:
                look_at = now + _LOOK_EVERY_S
                ends = self._admin.end_offsets(self._topic, len(positions))
                behind = sum(max(0, end - positions[partition]) for partition, end in enumerate(ends))
                self._sources.meter.lag(self._tenant, behind)

    def _routed(self) -> set[str]:
        config = self._config()
        return {route.command_type for route in config.routes} if config is not None else set()

    def _wanted(self, records: Sequence[PlacedRecord]) -> list[Event]:
        """Return the events that a route asks for now."""
        routed = self._routed()
        events = []
        for record in records:
            if record.value is None:
                continue
            try:
                event = event_of(self._sources.states.decode(record.value))
            except (ContractError, KeyError, ValueError):
                self._sources.meter.unreadable(self._tenant)
                log.warning("events.unreadable", topic=self._topic, partition=record.partition, offset=record.offset)
                continue
            if event is not None and event.event_type in routed:
                events.append(event)
        return events


def _reason(error: Exception) -> str:
    """Return what is wrong in one line; the server's details may hold values of a row."""
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return str(error)
    return f"{error.diag.message_primary} ({error.sqlstate}); `waybill outbox install` brings what the outbox lacks"
