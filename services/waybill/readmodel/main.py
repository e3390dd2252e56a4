"""Composition root of the read model: adapters, wired; metrics and health where a port is given."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from waybill.contracts.codec import DEAD_LETTER, OUTCOME, TASK_STATE, AvroReader
from waybill.infra.clock import SystemClock
from waybill.infra.log import get_logger
from waybill.infra.metrics import MetricsServer
from waybill.infra.postgres import connect
from waybill.infra.registry import Registry
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError
from waybill.readmodel.core.records import Topic
from waybill.readmodel.decoder import RecordDecoder
from waybill.readmodel.metrics import Meters
from waybill.readmodel.ports import Bounds, Positions, TopicPartition
from waybill.readmodel.projector import Projector, Settings
from waybill.readmodel.query import ReadModel
from waybill.readmodel.source import KafkaSource
from waybill.readmodel.store import PostgresStore, prepare

__all__ = ["Places", "build_projector", "run"]

log = get_logger("read-model")

#: Counting every delivery reads the whole table: not more often than this.
COUNT_EVERY_S: Final = 30.0
#: A fold that did not come round for this long is not ready.
STALE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What the read model talks to."""

    kafka: str
    registry_url: str
    control_dsn: str


@contextmanager
def build_projector(places: Places, settings: Settings) -> Iterator[Projector]:
    """Bring the schema up to date and offer a projector over the real Kafka, registry and control database.

    Raises:
        UnavailableError: the control database cannot be reached.
    """
    prepare(places.control_dsn)
    registry = Registry(places.registry_url)
    decoder = RecordDecoder(
        {
            Topic.STATE: AvroReader(TASK_STATE, registry.schema),
            Topic.OUTCOMES: AvroReader(OUTCOME, registry.schema),
            Topic.DEAD_LETTERS: AvroReader(DEAD_LETTER, registry.schema),
        }
    )
    with ExitStack() as stack:
        source, store = KafkaSource(places.kafka), PostgresStore(places.control_dsn)
        stack.callback(source.close)
        stack.callback(store.close)
        yield Projector(source, store, decoder, SystemClock(), settings)


def run(places: Places, settings: Settings, stop: threading.Event, *, metrics_port: int | None = None) -> int:
    """Fold until told to stop, or until caught up where the settings say so; return how many records were folded.

    Raises:
        UnavailableError: the metrics port is taken, or a run until caught up could not go on.
    """
    with ExitStack() as stack:
        projector = stack.enter_context(build_projector(places, settings))
        if metrics_port is not None:
            registry, clock = CollectorRegistry(), SystemClock()
            watch = _Watch(Meters(registry), places.control_dsn, clock)
            projector.watcher = watch
            server = MetricsServer(registry, alive=lambda: {"alive": True}, ready=watch.ready, port=metrics_port)
            stack.callback(server.close)
            log.info("read_model.metrics", port=server.port)
        projector.run(stop)
        return projector.records


class _Watch:
    """Sets the metrics; what cannot be asked now is asked again next time."""

    def __init__(self, meters: Meters, dsn: str, clock: Clock) -> None:
        self._meters, self._dsn, self._clock = meters, dsn, clock
        self._count_at = 0.0
        self._seen_at: float | None = None

    def ready(self) -> Mapping[str, bool]:
        """Whether the fold came round lately."""
        seen = self._seen_at
        return {"folding": seen is not None and self._clock.monotonic() - seen < STALE_S}

    def folded(self, records: int) -> None:
        """Count records."""
        self._meters.folded(records)

    def refreshed(
        self, positions: Positions, tenants: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> None:
        """Set lag at every call, the counts of the tables less often."""
        self._seen_at = self._clock.monotonic()
        self._meters.lag(tenants, bounds, positions)
        if self._seen_at < self._count_at:
            return
        self._count_at = self._seen_at + COUNT_EVERY_S
        try:
            with connect(self._dsn, application_name="waybill-read-model-metrics") as connection:
                model = ReadModel(connection)
                self._meters.deliveries(model.counts(), self._clock.now())
                self._meters.anomalies(model.open_anomalies(), self._clock.now())
        except UnavailableError as error:
            log.warning("read_model.not_measured", reason=str(error))
