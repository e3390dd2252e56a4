"""Putting a worker together from addresses: the composition root of the component."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from waybill.contracts.codec import DEAD_LETTER, DECISION, OUTCOME, TASK_STATE, AvroReader, schema_text
from waybill.contracts.decision import Decision, read_decision
from waybill.contracts.fabric import DestinationConfig
from waybill.crypto.signing import Signer, load_signer
from waybill.delivery.controls.report_statements import ReportStore
from waybill.delivery.controls.statements import ControlStore
from waybill.delivery.core.records import SchemaIds
from waybill.delivery.failpoints import from_environment
from waybill.delivery.ports import Clients, ConfigSource
from waybill.delivery.store import TaskStore
from waybill.delivery.worker import MakeStanding, Worker, WorkerParts, WorkerSettings
from waybill.fabric.follow import ConfigFollower
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.public_keys import PublicKeys
from waybill.infra.registry import Registry
from waybill.infra.runner import calm_collector, run_until_stopped
from waybill.infra.secrets import read_secret
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant

__all__ = ["KeyFiles", "RunOptions", "decision_decoder", "hold_slot", "make_worker", "read_schema_ids", "run"]

_MAX_SLOTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says."""

    tenant: str | None = None
    destination: str | None = None
    #: Port of `/metrics`, health and the public keys; 0 takes a free one, None serves nothing.
    metrics_port: int | None = None
    #: Name of the slot; None takes the first free one of this host.
    slot: str | None = None


class KeyFiles:
    """Signers from a folder of key files and from where secrets are kept."""

    def __init__(self, keys_dir: Path, environ: Mapping[str, str]) -> None:
        self._keys_dir, self._environ = keys_dir, environ

    def signer(self, destination: DestinationConfig) -> Signer:
        """Return the signer of a destination, read anew.

        Raises:
            ConfigError: no usable key or secret; says what to do.
        """
        what = f"shared secret of destination {destination.tenant}/{destination.name}"
        secret = read_secret(destination.hmac_secret, what, self._environ) if destination.hmac_secret else None
        return load_signer(self._keys_dir, Tenant(destination.tenant), secret)


def read_schema_ids(registry: Registry) -> SchemaIds:
    """Ask the registry for the ids of the records a worker writes.

    Raises:
        ConfigError: one is not registered; names the command that does it.
        UnavailableError: the registry does not answer.
    """
    ids = {
        name: registry.schema_id(f"waybill.{name}", schema_text(name)) for name in (OUTCOME, TASK_STATE, DEAD_LETTER)
    }
    return SchemaIds(outcome=ids[OUTCOME], task_state=ids[TASK_STATE], dead_letter=ids[DEAD_LETTER])


def decision_decoder(registry: Registry) -> Callable[[bytes], Decision]:
    """Return what reads decisions; it asks the registry once for each schema they were written with."""
    reader = AvroReader(DECISION, registry.schema)
    return lambda value: read_decision(value, reader)


@contextmanager
def hold_slot(folder: Path, wanted: str | None = None) -> Iterator[str]:
    """Hold a slot name nobody else on this host holds; a killed process frees its own, and the next takes it over.

    Raises:
        UnavailableError: the wanted slot, or every slot, is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    for name in [wanted] if wanted else [f"{host}-{number}" for number in range(_MAX_SLOTS)]:
        descriptor = os.open(folder / f"{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield name
        finally:
            os.close(descriptor)
        return
    raise UnavailableError(f"worker slot {wanted or 'of this host'} is taken: another worker runs here; choose --slot")


def make_worker(
    addresses: Addresses,
    settings: WorkerSettings,
    config: ConfigSource,
    environ: Mapping[str, str],
    clock: Clock,
    clients: Clients | None = None,
) -> Worker:
    """Build a worker on real adapters, or on clients of the caller's; nothing is started."""
    registry = Registry(addresses.need("registry_url"))
    store = TaskStore(addresses.need("worker_dsn"))
    parts = WorkerParts(
        config=config,
        signers=KeyFiles(Path(addresses.need("keys_dir")), environ),
        store=store,
        schema_ids=read_schema_ids(registry),
        read_decision=decision_decoder(registry),
        clock=clock,
        failpoints=from_environment(environ),
        controls=ControlStore(store.run),
        reports=ReportStore(store.run),
        clients=clients or Clients(),
    )
    return Worker(settings, parts)


def run(
    addresses: Addresses,
    options: RunOptions,
    environ: Mapping[str, str],
    slots: Path,
    say: Callable[[str], None],
    make_standing: MakeStanding,
) -> None:
    """Run a worker until SIGTERM or SIGINT, then drain."""
    clock = SystemClock()
    bootstrap = addresses.need("kafka")
    config = ConfigFollower(addresses.need("worker_dsn"), clock)
    try:
        with hold_slot(slots, options.slot) as slot:
            settings = WorkerSettings(
                bootstrap=bootstrap, slot=slot, tenant=options.tenant, destination=options.destination
            )
            worker = make_worker(addresses, settings, config, environ, clock)
            worker.tools = replace(worker.tools, standing=make_standing(worker.tools.store.run))
            server = None
            if options.metrics_port is not None:
                keys = PublicKeys(Path(addresses.need("keys_dir")), clock, options.tenant)
                server = MetricsServer(
                    worker.registry,
                    alive=worker.is_alive,
                    ready=worker.is_ready,
                    port=options.metrics_port,
                    more=keys.answer,
                )
                say(f"metrics on http://127.0.0.1:{server.port}/metrics")
            calm_collector()
            try:
                run_until_stopped(worker.run)
            finally:
                if server is not None:
                    server.close()
    finally:
        config.close()
