"""What a listener counts about itself, declared once. It is served on a port of its own, never on the listener's door."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.infra.metrics import Kind, Metric, build
from waybill.kernel.clock import Clock
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["ABORTED", "DELIVERIES", "HELD", "IN_FLIGHT", "METRICS", "SECONDS", "Meter"]

#: What a request or record ended as whose client went away, or whose handling broke.
ABORTED: Final = "aborted"
_HERE: Final = ("tenant", "destination")

DELIVERIES: Final = Metric(
    name="waybill_listener_deliveries_total",
    kind=Kind.COUNTER,
    meaning="Requests and records by result: executed, repeated, asked, aborted before an answer, or the code of the refusal.",
    labels=(*_HERE, "result"),
)
IN_FLIGHT: Final = Metric(
    name="waybill_listener_in_flight",
    kind=Kind.GAUGE,
    meaning="Requests and records read or executed now.",
    labels=_HERE,
)
SECONDS: Final = Metric(
    name="waybill_listener_seconds",
    kind=Kind.HISTOGRAM,
    meaning="Seconds from the head of a request, or a record's turn, to its answer; handler and commit included.",
    labels=_HERE,
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
HELD: Final = Metric(
    name="waybill_listener_held",
    kind=Kind.GAUGE,
    meaning="Records of a topic that wait for an earlier one of their aggregate.",
    labels=_HERE,
)
METRICS: Final = (DELIVERIES, IN_FLIGHT, SECONDS, HELD)


@dataclass(slots=True)
class _Measured:
    """One request or record while it is under way."""

    result: str = ABORTED


class Meter:
    """Counts for one listener, in one registry."""

    def __init__(self, registry: CollectorRegistry, tenant: Tenant, destination: DestinationName) -> None:
        here = {"tenant": tenant, "destination": destination}
        self._here = here
        self._deliveries: Any = build(DELIVERIES, registry)
        self._in_flight: Any = build(IN_FLIGHT, registry).labels(**here)
        self._seconds: Any = build(SECONDS, registry).labels(**here)
        self._held: Any = build(HELD, registry).labels(**here)
        #: Requests and records read or executed now.
        self.in_flight = 0
        self._in_flight.set_function(lambda: self.in_flight)

    @contextmanager
    def measured(self, clock: Clock) -> Iterator[_Measured]:
        """Count what is read and executed within; say its `result` before the end."""
        self.in_flight += 1
        began, measured = clock.monotonic(), _Measured()
        try:
            yield measured
        finally:
            self.in_flight -= 1
            self._seconds.observe(clock.monotonic() - began)
            self.refused(measured.result)

    def refused(self, result: str) -> None:
        """Count a request that was answered without being read."""
        self._deliveries.labels(**self._here, result=result).inc()

    def held(self, count: int) -> None:
        """Tell how many records wait for their turn."""
        self._held.set(count)
