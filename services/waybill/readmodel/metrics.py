"""What a scraper sees of the read model: how far it is behind, how deliveries stand, what should not be.

Gauges are set every few seconds by the projector's own thread. Labels are tenants, destinations, topics and closed
sets; never an aggregate.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.infra.metrics import Kind, Metric, build
from waybill.readmodel.ports import Bounds, Positions, TopicPartition

__all__ = ["METRICS", "Meters"]

FOLDED: Final = Metric(
    name="waybill_read_model_records_total", kind=Kind.COUNTER, meaning="Records folded by this process."
)
LAG: Final = Metric(
    name="waybill_read_model_lag_records",
    kind=Kind.GAUGE,
    meaning="Offsets between what is folded and what is committed in the topic.",
    labels=("tenant", "topic"),
)
DELIVERIES: Final = Metric(
    name="waybill_deliveries",
    kind=Kind.GAUGE,
    meaning="Deliveries by state, as the read model holds them.",
    labels=("tenant", "destination", "state"),
)
OLDEST: Final = Metric(
    name="waybill_oldest_delivery_age_seconds",
    kind=Kind.GAUGE,
    meaning="Seconds since the delivery that has been in this state longest entered it; not for acknowledged.",
    labels=("tenant", "destination", "state"),
)
ANOMALIES: Final = Metric(
    name="waybill_read_model_open_anomalies",
    kind=Kind.GAUGE,
    meaning="Holes, reused numbers, unreadable records, illegal moves and skipped records that nobody resolved.",
    labels=("tenant", "kind"),
)
OLDEST_ANOMALY: Final = Metric(
    name="waybill_read_model_oldest_anomaly_age_seconds",
    kind=Kind.GAUGE,
    meaning="Seconds since the oldest of them was seen: a hole closes by itself within seconds, or records are missing.",
    labels=("tenant", "kind"),
)
#: Everything this component declares.
METRICS: Final = (FOLDED, LAG, DELIVERIES, OLDEST, ANOMALIES, OLDEST_ANOMALY)


class Meters:
    """The metrics of one process, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._built: dict[str, Any] = {metric.name: build(metric, registry) for metric in METRICS}

    def folded(self, records: int) -> None:
        """Count records."""
        self._built[FOLDED.name].inc(records)

    def lag(
        self, tenants: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds], positions: Positions
    ) -> None:
        """Set the lag, summed over the partitions of each topic."""
        behind: dict[tuple[str, str], int] = {}
        for place, tenant in tenants.items():
            key = (tenant, place[0].rpartition(".")[2])
            behind[key] = behind.get(key, 0) + max(bounds[place].end - positions[place], 0)
        self._built[LAG.name].clear()
        for (tenant, topic), records in behind.items():
            self._built[LAG.name].labels(tenant=tenant, topic=topic).set(records)

    def deliveries(self, counts: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Set how deliveries stand; `counts` are rows of tenant, destination, state, deliveries, oldest."""
        for name in (DELIVERIES.name, OLDEST.name):
            self._built[name].clear()
        for row in counts:
            labels = {"tenant": row["tenant"], "destination": row["destination"], "state": row["state"]}
            self._built[DELIVERIES.name].labels(**labels).set(row["deliveries"])
            if row["state"] != "acknowledged" and row["oldest"] is not None:
                age_s = max((now - row["oldest"]).total_seconds(), 0.0)
                self._built[OLDEST.name].labels(**labels).set(age_s)

    def anomalies(self, counts: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Set the open anomalies; `counts` are rows of tenant, kind, anomalies, oldest."""
        for name in (ANOMALIES.name, OLDEST_ANOMALY.name):
            self._built[name].clear()
        for row in counts:
            labels = {"tenant": row["tenant"], "kind": row["kind"]}
            self._built[ANOMALIES.name].labels(**labels).set(row["anomalies"])
            self._built[OLDEST_ANOMALY.name].labels(**labels).set(max((now - row["oldest"]).total_seconds(), 0.0))
