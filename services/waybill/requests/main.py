"""Composition root of the fold of requests: the read model's reading, over a store of its own."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from waybill.contracts.codec import REQUEST_STATE, TASK_STATE, AvroReader, AvroWriter, schema_text
from waybill.contracts.names import requests_group
from waybill.infra.clock import SystemClock
from waybill.infra.registry import Registry
from waybill.kernel.clock import Clock
from waybill.readmodel.core.records import Topic
from waybill.readmodel.decoder import RecordDecoder
from waybill.readmodel.ports import Bounds, Positions, TopicPartition
from waybill.readmodel.projector import Projector, Settings
from waybill.readmodel.source import KafkaSource
from waybill.requests.facts import Told
from waybill.requests.store import RequestStore

__all__ = ["Places", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What the fold talks to."""

    kafka: str
    registry_url: str
    control_dsn: str


def run(places: Places, settings: Settings, stop: threading.Event, clock: Clock | None = None) -> int:
    """Fold until told to stop, or until caught up where the settings say so; return how many records were folded.

    Raises:
        UnavailableError: a run until caught up could not go on.
    """
    with _fold(places, settings, clock or SystemClock()) as (projector, store):
        projector.run(stop)
        if settings.until_caught_up:
            store.pass_time()
        return projector.records


@contextmanager
def _fold(places: Places, settings: Settings, clock: Clock) -> Iterator[tuple[Projector, RequestStore]]:
    registry = Registry(places.registry_url)
    decoder = RecordDecoder({Topic.STATE: AvroReader(TASK_STATE, registry.schema)})
    store = RequestStore(places.control_dsn, clock, _encoder(registry))
    source = KafkaSource(places.kafka, topics=(Topic.COMMANDS, Topic.STATE), group=requests_group, name="requests")
    try:
        projector = Projector(source, store, decoder, clock, settings)
        projector.watcher = _Clockwork(store)
        yield projector, store
    finally:
        source.close()
        store.close()


def _encoder(registry: Registry) -> Callable[[Told], bytes]:
    """Return what makes records of the topic of requests; the schema's id is asked for when the first is made."""
    writers: list[AvroWriter] = []

    def encode(told: Told) -> bytes:
        if not writers:
            number = registry.schema_id(f"waybill.{REQUEST_STATE}", schema_text(REQUEST_STATE))
            writers.append(AvroWriter(REQUEST_STATE, number))
        found = told.standing
        return writers[0].encode(
            {
                "tenant": told.tenant,
                "request_id": told.request_id,
                "turn": told.turn.value,
                "completion_number": told.number,
                "commands": found.commands,
                "size": found.size,
                "done": found.done,
                "excused": found.excused,
                "open": found.open,
                "settled_at": found.settled_at,
                "at": told.at,
            }
        )

    return encode


class _Clockwork:
    """Lets time pass for requests whenever the fold comes round."""

    def __init__(self, store: RequestStore) -> None:
        self._store = store

    def folded(self, records: int) -> None:
        """Nothing: what was read was weighed with it."""

    def refreshed(
        self, positions: Positions, tenants: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> None:
        """Weigh what time alone changed."""
        self._store.pass_time()
