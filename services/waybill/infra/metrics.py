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

#: Asked for a path without its query and for `if-none-match`; returns status, headers and body, or None: not its page.
More = Callable[[str, str | None], tuple[int, tuple[tuple[str, str], ...], bytes] | None]

_HOST: Final = "127.0.0.1"


class MetricsServer:
    """Serves one registry, two health questions and what else is given from its own thread. Port 0 takes a free one."""

    def __init__(
        self, registry: CollectorRegistry, *, alive: Health, ready: Health, port: int = 0, more: More | None = None
    ) -> None:
        pages: dict[str, Callable[[], tuple[int, tuple[tuple[str, str], ...], bytes]]] = {
            "/metrics": lambda: (200, (("content-type", CONTENT_TYPE_LATEST),), generate_latest(registry)),
            "/healthz": lambda: _health(alive),
            "/readyz": lambda: _health(ready),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                page = pages.get(path)
                found = page() if page else more(path, self.headers.get("if-none-match")) if more else None
                status, headers, body = found or (
                    404,
                    (("content-type", "text/plain"),),
                    b"/metrics /healthz /readyz\n",
                )
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
                """Scrapes are not news."""

        try:
            self._server = ThreadingHTTPServer((_HOST, port), Handler)
        except OSError as error:
            raise UnavailableError(
                f"cannot serve metrics on {_HOST}:{port}: {error.strerror}; choose another port"
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


def _health(ask: Health) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    facts = dict(ask())
    body = json.dumps(facts, sort_keys=True).encode() + b"\n"
    return (200 if all(facts.values()) else 503), (("content-type", "application/json"),), body
