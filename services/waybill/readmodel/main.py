"""Composition root of the read model: adapters, wired."""

from collections.abc import Iterator
from contextlib import contextmanager

from waybill.contracts.codec import DEAD_LETTER, OUTCOME, TASK_STATE, AvroReader
from waybill.infra.clock import SystemClock
from waybill.infra.registry import Registry
from waybill.readmodel.core.records import Topic
from waybill.readmodel.decoder import RecordDecoder
from waybill.readmodel.projector import Projector, Settings
from waybill.readmodel.source import KafkaSource
from waybill.readmodel.store import PostgresStore, prepare

__all__ = ["build_projector"]


@contextmanager
def build_projector(*, kafka: str, registry_url: str, control_dsn: str, settings: Settings) -> Iterator[Projector]:
    """Bring the schema up to date and offer a projector over the real Kafka, registry and control database.

    Raises:
        UnavailableError: the control database cannot be reached.
    """
    prepare(control_dsn)
    registry = Registry(registry_url)
    decoder = RecordDecoder(
        {
            Topic.STATE: AvroReader(TASK_STATE, registry.schema),
            Topic.OUTCOMES: AvroReader(OUTCOME, registry.schema),
            Topic.DEAD_LETTERS: AvroReader(DEAD_LETTER, registry.schema),
        }
    )
    source, store = KafkaSource(kafka), PostgresStore(control_dsn)
    try:
        yield Projector(source, store, decoder, SystemClock(), settings)
    finally:
        source.close()
        store.close()
