"""Putting an ingress together from addresses: the composition root of the component."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from waybill.contracts.codec import DEAD_LETTER, schema_text
from waybill.delivery.failpoints import from_environment
from waybill.delivery.main import hold_slot
from waybill.fabric import ConfigFollower
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.registry import Registry
from waybill.infra.runner import run_until_stopped
from waybill.ingress.service import Ingress, ServiceSettings
from waybill.submission.outboxes import Outboxes

__all__ = ["RunOptions", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says."""

    tenant: str | None = None
    #: Port of `/metrics` and health; 0 takes a free one, None serves nothing.
    metrics_port: int | None = None
    #: Name of the slot; None takes the first free one of this host.
    slot: str | None = None


def run(
    addresses: Addresses, options: RunOptions, environ: Mapping[str, str], slots: Path, say: Callable[[str], None]
) -> None:
    """Copy events until SIGTERM or SIGINT.

    Raises:
        ConfigError: the schema of dead letters is not registered, or a setting is wrong.
        UnavailableError: registry or control database do not answer, the slot or the port is taken.
    """
    clock, registry = SystemClock(), Registry(addresses.need("registry_url"))
    with (
        closing(ConfigFollower(addresses.need("worker_dsn"), clock)) as config,
        hold_slot(slots, options.slot) as slot,
    ):
        settings = ServiceSettings(
            bootstrap=addresses.need("kafka"),
            slot=slot,
            dead_letter_schema=registry.schema_id(f"waybill.{DEAD_LETTER}", schema_text(DEAD_LETTER)),
            tenant=options.tenant,
            failpoints=from_environment(environ),
        )
        ingress = Ingress(settings, config, Outboxes(application_name="waybill-ingress"), clock)
        if options.metrics_port is None:
            run_until_stopped(ingress.run)
            return
        server = MetricsServer(
            ingress.registry, alive=ingress.is_alive, ready=ingress.is_ready, port=options.metrics_port
        )
        with closing(server):
            say(f"metrics on http://127.0.0.1:{server.port}/metrics")
            run_until_stopped(ingress.run)
