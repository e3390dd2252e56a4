"""Putting a rebuild together from addresses."""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from waybill.contracts.fabric import FabricConfig, TenantConfig
from waybill.delivery.beacons.rebuild import QUIET_S, Found, Rebuild, RebuildParts, rebuild
from waybill.delivery.beacons.tables import PostgresTables
from waybill.delivery.beacons.topics import KafkaTopics
from waybill.delivery.core.records import Recorder
from waybill.delivery.main import read_schema_ids
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.infra.registry import Registry
from waybill.kernel.errors import ConfigError

__all__ = ["Scope", "rebuild_tasks"]

#: Who outcomes of a rebuild are by.
_WORKER: Final = "tasks-rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is looked at; None is all."""

    tenant: str
    destination: str | None = None
    partition: int | None = None


def rebuild_tasks(
    addresses: Addresses,
    scope: Scope,
    say: Callable[[str], None],
    *,
    config: FabricConfig | None = None,
    dry_run: bool = False,
    quiet_s: float = QUIET_S,
) -> list[Found]:
    """Write again what the control database lost of a tenant's deliveries when it was set back.

    Args:
        addresses: Kafka, the registry and the control database, as a role that may delete rows.
        scope: what to look at.
        say: told where it is.
        config: the applied configuration; read from the control database by default.
        dry_run: only count.
        quiet_s: how long what owners have under way may take to end.

    Raises:
        ConfigError: the scope names what is not applied.
        UnavailableError: a server does not answer, or a partition still moves; the next run finishes what is left.
    """
    clock, registry = SystemClock(), Registry(addresses.need("registry_url"))
    ids = read_schema_ids(registry)
    with closing(connect(addresses.need("control_dsn"), application_name="waybill-rebuild", autocommit=True)) as found:
        applied = config or load_applied(found)
        tenant, partitions = _tenant(applied, scope)
        rebuilds = []
        for destination in tenant.destinations:
            if scope.destination not in {None, destination.name}:
                continue
            parts = RebuildParts(
                topics=KafkaTopics(addresses.need("kafka"), registry, destination, tenant.partitions, clock),
                tables=PostgresTables(found, destination, clock),
                recorder=Recorder(destination, applied.version, _WORKER, ids),
                clock=clock,
                say=say,
            )
            rebuilds.append((Rebuild(parts), partitions))
        return rebuild(rebuilds, _waiting(say), dry_run=dry_run, quiet_s=quiet_s)


def _tenant(applied: FabricConfig, scope: Scope) -> tuple[TenantConfig, list[int]]:
    tenant = next((each for each in applied.tenants if each.name == scope.tenant), None)
    if tenant is None:
        raise ConfigError(f"no tenant {scope.tenant} is applied")
    if scope.destination is not None and scope.destination not in {each.name for each in tenant.destinations}:
        raise ConfigError(f"no destination {scope.destination} of tenant {scope.tenant} is applied")
    if scope.partition is None:
        return tenant, list(range(tenant.partitions))
    if not 0 <= scope.partition < tenant.partitions:
        raise ConfigError(f"tenant {scope.tenant} has partitions 0 to {tenant.partitions - 1}")
    return tenant, [scope.partition]


def _waiting(say: Callable[[str], None]) -> Callable[[float], None]:
    def wait(seconds: float) -> None:
        say(f"owners are shut out; waiting {seconds:.0f} s for what they have under way")
        threading.Event().wait(seconds)

    return wait
