"""What the API counts about itself, declared once. Paths are templates and pools are names of the configuration."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.contracts.codes import ErrorCode
from waybill.infra.metrics import Kind, Metric, build

__all__ = ["METRICS", "NO_PATH", "POOL_CONNECTIONS", "POOL_WAITING", "REFUSALS", "REQUESTS", "SECONDS", "Meter"]

#: What a request is counted under that came to no path.
NO_PATH: Final = "none"

REQUESTS: Final = Metric(
    name="waybill_api_requests_total",
    kind=Kind.COUNTER,
    meaning="Requests by the template of their path and the class of the status they were answered: 2xx, 4xx, 5xx.",
    labels=("path", "status"),
)
SECONDS: Final = Metric(
    name="waybill_api_seconds",
    kind=Kind.HISTOGRAM,
    meaning="Seconds from the head of a request to its answer, commit included.",
    labels=("path",),
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
REFUSALS: Final = Metric(
    name="waybill_api_refusals_total",
    kind=Kind.COUNTER,
    meaning="Requests that were answered with a problem, by its code.",
    labels=("path", "code"),
)
POOL_CONNECTIONS: Final = Metric(
    name="waybill_api_pool_connections",
    kind=Kind.GAUGE,
    meaning="Connections to the control database, or to an outbox by tenant/outbox, that are `used` or `free`.",
    labels=("pool", "state"),
)
POOL_WAITING: Final = Metric(
    name="waybill_api_pool_waiting",
    kind=Kind.GAUGE,
    meaning="Requests that wait for a connection of a pool.",
    labels=("pool",),
)
METRICS: Final = (REQUESTS, SECONDS, REFUSALS, POOL_CONNECTIONS, POOL_WAITING)


class Meter:
    """Counts for one process, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._built: dict[str, Any] = {metric.name: build(metric, registry) for metric in METRICS}

    def answered(self, path: str, status: int, code: ErrorCode | None, seconds: float) -> None:
        """Count what a request was answered."""
        self._built[REQUESTS.name].labels(path=path, status=f"{status // 100}xx").inc()
        self._built[SECONDS.name].labels(path=path).observe(seconds)
        if code is not None:
            self._built[REFUSALS.name].labels(path=path, code=code.value).inc()

    def watch(self, pool: str, stats: Callable[[], Mapping[str, int]]) -> None:
        """Tell how a pool stands whenever it is asked for; a later pool of the same name takes its place.

        Args:
            pool: `control`, or tenant/outbox.
            stats: `get_stats` of the pool; called from the thread that serves metrics.
        """
        connections = self._built[POOL_CONNECTIONS.name]
        connections.labels(pool=pool, state="free").set_function(lambda: stats().get("pool_available", 0))
        connections.labels(pool=pool, state="used").set_function(
            lambda: stats().get("pool_size", 0) - stats().get("pool_available", 0)
        )
        self._built[POOL_WAITING.name].labels(pool=pool).set_function(lambda: stats().get("requests_waiting", 0))
