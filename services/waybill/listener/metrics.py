"""What a listener counts about itself, declared once. It is served on a port of its own, never on the listener's door."""

from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.infra.metrics import Kind, Metric, build
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["ABORTED", "DELIVERIES", "IN_FLIGHT", "METRICS", "SECONDS", "Meter"]

#: What a request ended as whose client went away, or whose handling broke.
ABORTED: Final = "aborted"
_HERE: Final = ("tenant", "destination")

DELIVERIES: Final = Metric(
    name="waybill_listener_deliveries_total",
    kind=Kind.COUNTER,
    meaning="Requests by result: executed, repeated, asked, aborted before an answer, or the code of the refusal.",
    labels=(*_HERE, "result"),
)
IN_FLIGHT: Final = Metric(
    name="waybill_listener_in_flight", kind=Kind.GAUGE, meaning="Requests read or executed now.", labels=_HERE
)
SECONDS: Final = Metric(
    name="waybill_listener_seconds",
    kind=Kind.HISTOGRAM,
    meaning="Seconds from the head of a request to its answer, handler and commit included.",
    labels=_HERE,
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
METRICS: Final = (DELIVERIES, IN_FLIGHT, SECONDS)


class Meter:
    """Counts for one listener, in one registry."""

    def __init__(self, registry: CollectorRegistry, tenant: Tenant, destination: DestinationName) -> None:
        here = {"tenant": tenant, "destination": destination}
        self._here = here
        self._deliveries: Any = build(DELIVERIES, registry)
        self._in_flight: Any = build(IN_FLIGHT, registry).labels(**here)
        self._seconds: Any = build(SECONDS, registry).labels(**here)

    def begun(self) -> None:
        """Count a request that is read."""
        self._in_flight.inc()

    def ended(self, result: str, seconds: float) -> None:
        """Count what became of a request that was read."""
        self._in_flight.dec()
        self._seconds.observe(seconds)
        self.refused(result)

    def refused(self, result: str) -> None:
        """Count a request that was answered without being read."""
        self._deliveries.labels(**self._here, result=result).inc()
