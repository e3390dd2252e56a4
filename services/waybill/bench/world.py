"""A world of its own for one benchmark: a fresh database, tenant, topics and keys on the local stack.

Nothing of it touches applied configuration, and all of it is deleted afterwards, so a benchmark can run beside a
demo's data and leaves nothing behind.
"""

import json
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from waybill import devstack
from waybill.catalog import apply_schemas, apply_topics, load_schemas, load_topics, topics_of
from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    OutboxConfig,
    Profile,
    Proof,
    ResultSource,
    RouteConfig,
    SecretRef,
    TenantConfig,
    Timeouts,
    Transport,
)
from waybill.contracts.names import commands_topic, delivery_group, intake_group, topic_prefix
from waybill.crypto.keys import Algorithm, new_key, signing_path, write_keys
from waybill.devstack.ground import drop_database
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect
from waybill.infra.registry import Registry
from waybill.kernel.ids import DestinationName, Tenant
from waybill.outbox import OutboxSettings
from waybill.outbox.install import install
from waybill.outbox.provision import sync
from waybill.relay import OutboxConnection, ensure_connector

__all__ = ["DESTINATION", "InstantListener", "Shape", "World", "instant_listener", "make_world"]

DESTINATION: Final = DestinationName("instant")
COMMAND_TYPE: Final = "bench.run"
AGGREGATE_TYPE: Final = "bench"
PARTITIONS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What each tenant of a benchmark looks like."""

    destinations: tuple[DestinationName, ...] = (DESTINATION,)
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    concurrency: int = 128
    #: Seconds of one attempt.
    timeout_s: float = 20.0
    #: Over Kafka nobody ever says what became of a delivery.
    transport: Transport = Transport.HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a benchmark works with."""

    stack: devstack.Stack
    #: The fresh database: outbox schema `waybill`, worker schema `delivery`.
    database: str
    tenants: tuple[Tenant, ...]
    durability: str
    shape: Shape = Shape()

    @property
    def admin_dsn(self) -> str:
        """Return the DSN of the fresh database as its owner."""
        return self.stack.dsn(self.database)

    @property
    def app_dsn(self) -> str:
        """Return the DSN of the fresh database as the producer's application."""
        return self.stack.dsn(self.database, "waybill_app")

    def addresses(self) -> Addresses:
        """Return addresses whose control database is the fresh one."""
        return Addresses(
            kafka=self.stack.kafka,
            connect_url=self.stack.connect_url,
            registry_url=self.stack.registry_url,
            control_dsn=self.admin_dsn,
            worker_dsn=self.stack.dsn(self.database, "waybill_worker"),
            keys_dir=str(self.stack.keys_dir),
        )

    def config(self, url: str) -> FabricConfig:
        """Return the configuration a worker follows; each destination is the path of its name under `url`."""
        return FabricConfig(version=1, tenants=tuple(self.tenant_config(tenant, url) for tenant in self.tenants))

    def tenant_config(self, tenant: Tenant, url: str) -> TenantConfig:
        """Return one tenant of the world."""
        shape = self.shape
        destinations = tuple(
            DestinationConfig(
                tenant=tenant,
                name=name,
                transport=shape.transport,
                url=f"{url}{name}" if shape.transport is Transport.HTTP else None,
                results=ResultSource(keys=()) if shape.transport is Transport.KAFKA else None,
                owner="bench",
                tradeoff="answers at once and remembers nothing",
                proof=Proof.RECEIPT,
                profile=shape.profile,
                concurrency=shape.concurrency,
                timeouts=Timeouts(read_s=shape.timeout_s, total_s=shape.timeout_s),
            )
            for name in shape.destinations
        )
        outbox = OutboxConfig(
            tenant=tenant, name="bench", dsn=SecretRef(env="BENCH"), aggregate_types=(AGGREGATE_TYPE,)
        )
        return TenantConfig(
            name=tenant,
            partitions=PARTITIONS,
            allow_networks=("127.0.0.1/32",),  # the listener runs on this machine
            outboxes=(outbox,),
            destinations=destinations,
            routes=(RouteConfig(tenant=tenant, command_type=COMMAND_TYPE, destinations=shape.destinations[:1]),),
        )


@contextmanager
def make_world(
    progress: Callable[[str], None], *, tenants: int = 1, with_relay: bool = False, shape: Shape | None = None
) -> Iterator[World]:
    """Make a world on the running local stack and delete it at the end.

    Raises:
        UnavailableError: no local stack is up; says how to start one.
    """
    stack = devstack.load()
    run = secrets.token_hex(4)
    names = tuple(Tenant(f"bench-{run}-{number}") for number in range(tenants))
    database = f"bench_{run}"
    admin = KafkaAdmin(stack.kafka, SystemClock())
    replicas = min(3, admin.brokers())
    world = World(
        stack=stack,
        database=database,
        tenants=names,
        durability=f"acks=all, {replicas} replica(s), PostgreSQL synchronous_commit=on",
        shape=shape or Shape(),
    )
    with ExitStack() as undo:
        progress("making topics, database and keys")
        _make_database(world, undo)
        apply_schemas(Registry(stack.registry_url), load_schemas())
        for tenant in names:
            _make_tenant(world, tenant, admin, undo)
        if with_relay:
            progress("starting the connector")
            _make_relay(world, undo)
        yield world


def _make_database(world: World, undo: ExitStack) -> None:
    with closing(connect(world.stack.dsn("postgres"), autocommit=True)) as server:
        server.execute(f"CREATE DATABASE {world.database}".encode())
    undo.callback(drop_database, world.stack.dsn("postgres"), world.database)
    with closing(connect(world.admin_dsn)) as owner:
        install(owner)
        migrate(owner, schema="delivery", package="waybill.delivery.migrations")
        owner.execute("CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL)")
        owner.execute("GRANT INSERT ON business TO waybill_app")
        owner.commit()
        for tenant in world.tenants:
            config = world.tenant_config(tenant, "http://127.0.0.1:1/")
            sync(owner, "waybill", OutboxSettings.of(config, config.outboxes[0], 1))
        owner.commit()


def _make_tenant(world: World, tenant: Tenant, admin: KafkaAdmin, undo: ExitStack) -> None:
    handed_to = world.shape.destinations if world.shape.transport is Transport.KAFKA else ()
    apply_topics(admin, tenant, PARTITIONS, declared=topics_of(load_topics(), handed_to, handed_to))
    undo.callback(_drop_topics, world.stack.kafka, tenant, admin)
    topic = commands_topic(tenant)
    starts = {(topic, number): offset for number, offset in enumerate(admin.end_offsets(topic, PARTITIONS))}
    groups = GroupOffsets(world.stack.kafka)
    for group in (*(delivery_group(tenant, name) for name in world.shape.destinations), intake_group(tenant)):
        groups.commit(group, starts)
    path = signing_path(world.stack.keys_dir, tenant)
    write_keys(path, [new_key(Algorithm.ED25519, tenant, SystemClock().now())])
    undo.callback(_forget_keys, world, tenant)


def _forget_keys(world: World, tenant: Tenant) -> None:
    path = signing_path(world.stack.keys_dir, tenant)
    path.unlink(missing_ok=True)
    path.parent.rmdir()


def _drop_topics(bootstrap: str, tenant: Tenant, admin: KafkaAdmin) -> None:
    mine = [name for name in admin.topic_names() if name.startswith(topic_prefix(tenant))]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in client.delete_topics(mine, operation_timeout=10).values():
        future.result(20)


def _make_relay(world: World, undo: ExitStack) -> None:
    api = ConnectApi(world.stack.connect_url, SystemClock())
    outbox = OutboxConnection(
        name=world.database.replace("_", "-"),
        host=world.stack.postgres_host,
        port=world.stack.postgres_port,
        database=world.database,
        user="waybill_relay",
        secret_file=str(world.stack.secrets_file),
        secret_key="relay.password",  # noqa: S106 - the name of the key, the secret is in the file
    )
    ensure_connector(api, world.admin_dsn, outbox)
    undo.callback(_stop_relay, api, outbox.connector)


def _stop_relay(api: ConnectApi, connector: str) -> None:
    api.stop(connector)
    api.wait_status(connector, lambda status: status is not None and not status.tasks, 20.0)
    api.delete_offsets(connector)
    api.delete(connector)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantListener:
    """The running instant listener."""

    url: str
    pid: int

    def ledger(self) -> dict[str, Any]:
        """Take its ledger (`received`, `inversions`, `arrivals`); it starts a new one."""
        with urllib.request.urlopen(f"{self.url}ledger", timeout=60) as answer:  # noqa: S310 - our own loopback port
            found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def instant_listener(*, keep_arrivals: bool = False, delay_ms: int = 0) -> Iterator[InstantListener]:
    """Run the instant listener as a process of its own; it answers after `delay_ms`."""
    command = [sys.executable, "-m", "waybill.bench.instant_listener", "--delay-ms", str(delay_ms)]
    command += ["--arrivals"] if keep_arrivals else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield InstantListener(url=f"http://127.0.0.1:{port}/", pid=process.pid)
        finally:
            process.terminate()
