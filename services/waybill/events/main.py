"""Putting the telling of events together from addresses: one thread for each tenant that has an outbox for it."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

from prometheus_client import CollectorRegistry

from waybill.contracts.codec import TASK_STATE, AvroReader
from waybill.contracts.fabric import FabricConfig
from waybill.events.metrics import Meter
from waybill.events.teller import Sources, Teller, events_outbox
from waybill.fabric import ConfigFollower
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.registry import Registry
from waybill.kernel.ids import Tenant

__all__ = ["run"]

#: How often tenants that are new are looked for.
_LOOK_S = 1.0


def run(
    addresses: Addresses, stop: threading.Event, say: Callable[[str], None], *, metrics_port: int | None = None
) -> None:
    """Tell events of every tenant that has an outbox for them until told to stop.

    Raises:
        UnavailableError: the control database does not answer, or the port is taken.
    """
    clock, registry = SystemClock(), CollectorRegistry()
    with ExitStack() as stack:
        config = stack.enter_context(closing(ConfigFollower(addresses.need("worker_dsn"), clock)))
        sources = Sources(
            bootstrap=addresses.need("kafka"),
            dsn=addresses.need("worker_dsn"),
            states=AvroReader(TASK_STATE, Registry(addresses.need("registry_url")).schema),
            clock=clock,
            meter=Meter(registry),
        )
        threads: dict[Tenant, threading.Thread] = {}
        if metrics_port is not None:
            server = MetricsServer(
                registry,
                alive=lambda: {"telling": all(each.is_alive() for each in threads.values())},
                ready=lambda: {"configuration": config.current().version > 0},
                port=metrics_port,
            )
            stack.callback(server.close)
            say(f"metrics on http://127.0.0.1:{server.port}/metrics")
        while not stop.is_set():
            _begin(sources, config.current, threads, stop)
            stop.wait(_LOOK_S)
        for thread in threads.values():
            thread.join()


def _begin(
    sources: Sources, config: Callable[[], FabricConfig], threads: dict[Tenant, threading.Thread], stop: threading.Event
) -> None:
    for tenant in config().tenants:
        if tenant.name not in threads and events_outbox(tenant) is not None:
            teller = Teller(sources, tenant.name, lambda name=tenant.name: config().tenant(name))  # type: ignore[misc]  # mypy sees no default in a lambda
            threads[tenant.name] = threading.Thread(target=teller.run, args=(stop,), name=f"events-{tenant.name}")
            threads[tenant.name].start()
