"""Metrics of the ingress, declared once. Labels: tenant is a name of the configuration, cause a closed set."""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.infra.metrics import Kind, Metric, build
from waybill.ingress.group import IngressGroup

__all__ = ["METRICS", "Meter"]

EVENTS: Final = Metric(
    name="waybill_ingress_events_total",
    kind=Kind.COUNTER,
    meaning="Events read, by result: taken, repeated or refused.",
    labels=("tenant", "result"),
)
REFUSED: Final = Metric(
    name="waybill_ingress_dead_letters_total",
    kind=Kind.COUNTER,
    meaning="Events that became dead letters, by cause.",
    labels=("tenant", "cause"),
)
BLOCKED: Final = Metric(
    name="waybill_ingress_blocked_seconds",
    kind=Kind.GAUGE,
    meaning="Seconds for which the partition that waits longest has waited for its outbox; 0 while none does. Alarm above 60.",
    labels=("tenant",),
)
LAG: Final = Metric(
    name="waybill_ingress_lag_records",
    kind=Kind.GAUGE,
    meaning="Offsets between what is settled and the end of the partitions held here.",
    labels=("tenant",),
)
PARTITIONS: Final = Metric(
    name="waybill_ingress_partitions", kind=Kind.GAUGE, meaning="Partitions held here.", labels=("tenant",)
)
METRICS: Final = (EVENTS, REFUSED, BLOCKED, LAG, PARTITIONS)


class Meter:
    """The metrics of one process, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._built: dict[str, Any] = {metric.name: build(metric, registry) for metric in METRICS}
        self._told: dict[tuple[str, str, str], int] = {}

    def measure(self, groups: Mapping[str, IngressGroup], lags: Mapping[str, int], now: float) -> None:
        """Set and raise what the groups know; `now` is monotonic."""
        for name in (BLOCKED.name, LAG.name, PARTITIONS.name):
            self._built[name].clear()
        for tenant, group in groups.items():
            for result, count in group.events.items():
                self._raise(EVENTS.name, tenant, result, count)
            for cause, count in group.letters.items():
                self._raise(REFUSED.name, tenant, cause, count)
            since = min(group.blocked.values(), default=now)
            self._built[BLOCKED.name].labels(tenant).set(now - since)
            self._built[PARTITIONS.name].labels(tenant).set(len(group.partitions))
            if tenant in lags:
                self._built[LAG.name].labels(tenant).set(lags[tenant])

    def _raise(self, name: str, tenant: str, label: str, count: int) -> None:
        told = self._told.get((name, tenant, label), 0)
        self._told[name, tenant, label] = count
        # a group that was started again counts from nothing
        self._built[name].labels(tenant, label).inc(count - told if count >= told else count)
