"""Running the submission API: one process, one event loop, put together here.

It starts only when the control database answers, since without applied configuration it could take nothing. SIGTERM
ends it after the requests under way; what was not answered may be submitted again under the same key.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from prometheus_client import CollectorRegistry
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from waybill.access import KeyAuthenticator, SignedRequests
from waybill.access.authenticator import find_key
from waybill.access.core.tokens import Issuer
from waybill.access.signed_requests import forget_nonces, remember_nonces
from waybill.access.tokens import TokenAuthenticator
from waybill.fabric import ConfigFollower
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.publisher import Publisher
from waybill.infra.runner import calm_collector
from waybill.kernel.clock import Clock
from waybill.listener.server import serve
from waybill.submission.app import Parts, build_app
from waybill.submission.deliveries import Deliveries
from waybill.submission.metrics import Meter
from waybill.submission.outboxes import Outboxes, open_pool
from waybill.submission.pulse import Pulse
from waybill.submission.rules import find_rule
from waybill.submission.stating import RefusedResults, Stating
from waybill.submission.submitter import Submitter

__all__ = ["ApiOptions", "run"]

_FORGET_EVERY_S: Final = 3600.0
_CONTROL_POOL: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Where the API listens."""

    host: str = "127.0.0.1"
    #: 0 takes a free one.
    port: int = 8090
    #: Of `/metrics`, `/healthz` and `/readyz` on this machine; 0 takes a free one, None serves nothing.
    metrics_port: int | None = None
    #: Bootstrap servers that results are published to; None takes no results.
    kafka: str | None = None
    #: Whose tokens are taken beside API keys.
    issuers: tuple[Issuer, ...] = ()


def run(control_dsn: str, options: ApiOptions, on_start: Callable[[str, str | None], None]) -> None:
    """Serve until a signal ends it.

    Args:
        control_dsn: of the control database: keys, rules and applied configuration.
        options: where to listen.
        on_start: called with the base URL, and that of the metrics, when requests are taken.

    Raises:
        UnavailableError: the control database does not answer, or a port is taken.
    """
    clock = SystemClock()
    with ExitStack() as undo:
        follower = undo.enter_context(closing(ConfigFollower(control_dsn, clock)))
        meter = Meter(CollectorRegistry())
        control = open_pool(control_dsn, max_size=_CONTROL_POOL)
        meter.watch("control", control.get_stats)
        outboxes = Outboxes(lambda name, pool: meter.watch(name, pool.get_stats))
        submitter = Submitter(outboxes, follower.current, find_rule(control), clock)
        pulse = Pulse(clock, follower.age_s)
        metrics_url = _serve_metrics(meter, pulse, options.metrics_port, undo)

        @asynccontextmanager
        async def lifespan(_app: Any) -> AsyncIterator[None]:
            await control.open()
            calm_collector()
            tasks = [asyncio.create_task(each) for each in (_forget(submitter, control, clock), pulse.keep_beating())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await outboxes.close()
                await control.close()

        publisher = Publisher(options.kafka, "waybill-api") if options.kafka is not None else None
        if publisher is not None:
            undo.callback(publisher.close)
        deliveries = Deliveries(control)
        find = find_key(control)
        keys = KeyAuthenticator(find, clock)
        parts = Parts(
            authenticator=TokenAuthenticator(options.issuers, clock, keys) if options.issuers else keys,
            signed=SignedRequests(find, remember_nonces(control), clock),
            submitter=submitter,
            deliveries=deliveries,
            stating=Stating(follower.current, deliveries, RefusedResults(control, clock), publisher, clock),
            meter=meter,
        )
        serve(
            build_app(parts, lifespan),
            host=options.host,
            port=options.port,
            on_start=lambda url: on_start(url, metrics_url),
        )


def _serve_metrics(meter: Meter, pulse: Pulse, port: int | None, undo: ExitStack) -> str | None:
    if port is None:
        return None
    server = MetricsServer(meter.registry, alive=pulse.alive, ready=pulse.ready, port=port)
    undo.callback(server.close)
    return f"http://127.0.0.1:{server.port}/metrics"


async def _forget(submitter: Submitter, control: AsyncConnectionPool[Any], clock: Clock) -> None:
    while True:
        await asyncio.sleep(_FORGET_EVERY_S)
        with suppress(psycopg.Error, PoolTimeout):  # an hour later is as good
            await submitter.forget()
        with suppress(psycopg.Error, PoolTimeout):
            await forget_nonces(control, clock.now())
