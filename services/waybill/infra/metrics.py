"""Metrics and health over HTTP: what a scraper and an orchestrator read from every long-running process.

A component declares its metrics once, as `Metric` records in its `metrics.py`; names carry their unit, labels have
bounded values and never hold an aggregate or a person. `serve` answers `/metrics`, `/healthz` (the process turns)
and `/readyz` (it does its work).
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from waybill.kernel.errors import InvariantBroken, UnavailableError

__all__ = ["Health", "Kind", "Metric", "MetricsServer", "build"]


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declared metric."""

    name: str
    kind: Kind
    #: One sentence with the unit.
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def build(metric: Metric, registry: CollectorRegistry) -> Any:
    """Register a declared metric and return its collector."""
    if metric.kind is Kind.COUNTER:
        return Counter(metric.name, metric.meaning, metric.labels, registry=registry)
    if metric.kind is Kind.GAUGE:
        return Gauge(metric.name, metric.meaning, metric.labels, registry=registry)
    if not metric.buckets:
        raise InvariantBroken(f"histogram {metric.name} has no buckets")
    return Histogram(metric.name, metric.meaning, metric.labels, buckets=metric.buckets, registry=registry)


#: Returns facts by name; every value must be true for the answer to be 200.
Health = Callable[[], Mapping[str, bool]]

_HOST: Final = "127.0.0.1"


class MetricsServer:
    """Serves one registry and two health questions from a thread of its own. Port 0 takes a free one."""

    def __init__(
        self, registry: CollectorRegistry, *, alive: Health, ready: Health, port: int = 0, host: str = _HOST
    ) -> None:
        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry)),
            "/healthz": lambda: _health(alive),
            "/readyz": lambda: _health(ready),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                status, kind, body = page() if page else (404, "text/plain", b"/metrics /healthz /readyz\n")
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
                """Scrapes are not news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UnavailableError(
                f"cannot serve metrics on {host}:{port}: {error.strerror}; choose another port"
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _health(ask: Health) -> tuple[int, str, bytes]:
    facts = dict(ask())
    body = json.dumps(facts, sort_keys=True).encode() + b"\n"
    return (200 if all(facts.values()) else 503), "application/json", body
