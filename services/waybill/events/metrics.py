"""Metrics of fabric events, declared once. Labels: tenant is a name of the configuration, type a closed set."""

from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.infra.metrics import Kind, Metric, build

__all__ = ["METRICS", "Meter"]

TOLD: Final = Metric(
    name="waybill_events_told_total",
    kind=Kind.COUNTER,
    meaning="Events written to the outbox, by type.",
    labels=("tenant", "type"),
)
UNREADABLE: Final = Metric(
    name="waybill_events_unreadable_total",
    kind=Kind.COUNTER,
    meaning="Records of the state topic that cannot be read and were passed over.",
    labels=("tenant",),
)
BLOCKED: Final = Metric(
    name="waybill_events_blocked",
    kind=Kind.GAUGE,
    meaning="1 while the tenant's events wait for its outbox or for Kafka. Alarm when it stays.",
    labels=("tenant",),
)
LAG: Final = Metric(
    name="waybill_events_lag_records",
    kind=Kind.GAUGE,
    meaning="Offsets between what was read and the end of the state topic. Alarm when it grows for an hour: after six, states that another one followed may be gone.",
    labels=("tenant",),
)
METRICS: Final = (TOLD, UNREADABLE, BLOCKED, LAG)


class Meter:
    """The metrics of one process, in one registry; may be used from several threads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._built: dict[str, Any] = {metric.name: build(metric, registry) for metric in METRICS}

    def told(self, tenant: str, event_type: str) -> None:
        """Count an event."""
        self._built[TOLD.name].labels(tenant, event_type).inc()

    def unreadable(self, tenant: str) -> None:
        """Count a record that was passed over."""
        self._built[UNREADABLE.name].labels(tenant).inc()

    def blocked(self, tenant: str, *, is_blocked: bool) -> None:
        """Say whether the tenant's events wait."""
        self._built[BLOCKED.name].labels(tenant).set(int(is_blocked))

    def lag(self, tenant: str, records: int) -> None:
        """Say how far behind the tenant's events are."""
        self._built[LAG.name].labels(tenant).set(records)
