"""The ports of an apply over the real parts: brokers, registry, producer databases, Kafka Connect.

`waybill.fabric` knows none of them; here each port is met by the component that owns the matter. Nothing is decided
here beyond which function is called with which address.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waybill.catalog import (
    Action,
    TopicDeclaration,
    apply_schemas,
    apply_topics,
    load_schemas,
    load_topics,
    plan_topics,
    topics_of,
)
from waybill.commandtypes.core.versions import major_of
from waybill.contracts.fabric import FabricConfig, OnUnsettled, OutboxConfig, RouteConfig, SchemaFormat, TenantConfig
from waybill.contracts.names import (
    commands_topic,
    dead_letters_topic,
    delivery_group,
    ingress_group,
    ingress_topic,
    intake_group,
    outcomes_topic,
    read_model_group,
    state_topic,
)
from waybill.fabric import Drift, OutboxView, Ports
from waybill.infra.addresses import Addresses
from waybill.infra.connect_api import ConnectApi
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect, where
from waybill.infra.registry import Registry
from waybill.infra.secrets import read_secret
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.outbox.core.settings import OutboxSettings
from waybill.outbox.provision import read, sync
from waybill.relay import OutboxConnection, OutboxKind, ensure_connector, ensure_slot
from waybill.relay.connectors import render_connector

__all__ = ["Connectors", "ConsumerGroups", "ProducerOutboxes", "RelayLogin", "TenantTopics", "real_ports"]


#: The control database's own outbox; `fabric.yaml` may not use the name.
CONTROL: Final = "control"
#: The topic file of those who ask for an ingress.
INGRESS: Final = "ingress"

#: (topic, partitions) → an offset for each partition.
AskOffsets: TypeAlias = Callable[[str, int], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLogin:
    """How connectors log in to PostgreSQL; the password stays where Connect's `file` provider finds it."""

    user: str
    secret_file: str
    secret_key: str


class TenantTopics:
    """Topics and schemas, by `waybill.catalog`."""

    def __init__(self, admin: KafkaAdmin, registry: Registry) -> None:
        self._admin, self._registry = admin, registry
        self._schemas_applied = self._schemas_told = False

    def ensure(self, tenant: TenantConfig) -> None:
        """Register the schemas once and those of the catalogue, then make the tenant's topics."""
        for subject, schema in _catalogued(tenant):
            self._registry.require_full_transitive(subject)
            self._registry.register(subject, schema)
        if not self._schemas_applied:
            apply_schemas(self._registry, load_schemas())
            self._schemas_applied = True
        for change in apply_topics(self._admin, tenant.name, tenant.partitions, declared=_topics(tenant)):
            if change.action is Action.KEPT and change.setting == "partitions":
                raise RefusedError(
                    f"topic {change.topic} has {change.actual} partitions, the file says {change.wanted}: "
                    f"write partitions: {change.actual}, they are fixed once made",
                    rule="fixed-partitions",
                )

    def drift(self, tenant: TenantConfig) -> Iterator[Drift]:
        """Compare topics and their settings, and once the schemas."""
        if not self._schemas_told:
            self._schemas_told = True
            for file in load_schemas():
                if self._registry.find(file.subject, file.text) is None:
                    yield Drift(subject=f"schema {file.subject}", expected="registered", found="missing")
        for subject, schema in _catalogued(tenant):
            if self._registry.find(subject, schema) is None:
                yield Drift(subject=f"schema {subject}", expected="registered", found="missing")
        for change in plan_topics(self._admin, tenant.name, tenant.partitions, declared=_topics(tenant)):
            setting = "" if change.setting == "topic" else f"{change.setting}="
            found = f"{setting}{change.actual}" if change.actual is not None else "missing"
            yield Drift(subject=f"topic {change.topic}", expected=f"{setting}{change.wanted}", found=found)


def _catalogued(tenant: TenantConfig) -> Iterator[tuple[str, str]]:
    """Yield subject and text of each Avro schema of the catalogue; one subject holds what may be read together."""
    for declared in tenant.command_types:
        for each in declared.versions if declared.format is SchemaFormat.AVRO else ():
            yield f"waybill.{tenant.name}.{declared.name}.v{major_of(each.version)}", each.schema


def _topics(tenant: TenantConfig) -> list[TopicDeclaration]:
    speaking = [each for each in tenant.destinations if each.results is not None]
    handed_to = [each.name for each in speaking if each.is_handed_over]
    asked_for = {INGRESS} if tenant.ingress is not None else set()
    return topics_of(load_topics(), [each.name for each in speaking], handed_to, asked_for)


class ConsumerGroups:
    """Committed starts: a destination from the end of now, intake, read model and ingress from the first record."""

    def __init__(self, admin: KafkaAdmin, offsets: GroupOffsets) -> None:
        self._admin, self._offsets = admin, offsets

    def ensure(self, tenant: TenantConfig, current: TenantConfig | None) -> None:
        """Commit what is missing; refuse where an applied destination lost its place."""
        commands = commands_topic(tenant.name)
        known = {destination.name for destination in current.destinations} if current else set()
        for destination in tenant.destinations:
            group = delivery_group(tenant.name, destination.name)
            missing = self._missing(group, commands, tenant.partitions)
            if missing and destination.name in known:
                raise RefusedError(
                    f"group {group} has no committed offset on partitions {missing} of {commands} although its "
                    "destination was applied: deciding where it goes on is not safe by itself. Find its last "
                    "acknowledged commands, set the offsets with kafka-consumer-groups --reset-offsets, apply again",
                    rule="group-start-lost",
                )
            self._commit(group, commands, missing, self._admin.end_offsets)
        self._from_the_first(intake_group(tenant.name), commands, tenant.partitions)
        for topic in _read_model_topics(tenant):
            self._from_the_first(read_model_group(tenant.name), topic, tenant.partitions)
        if tenant.ingress is not None:
            self._from_the_first(ingress_group(tenant.name), ingress_topic(tenant.name), tenant.partitions)

    def drift(self, tenant: TenantConfig) -> Iterator[Drift]:
        """Name groups that would not know where to begin."""
        commands = commands_topic(tenant.name)
        groups = [delivery_group(tenant.name, destination.name) for destination in tenant.destinations]
        read = [(group, commands) for group in (*groups, intake_group(tenant.name))]
        if tenant.ingress is not None:
            read.append((ingress_group(tenant.name), ingress_topic(tenant.name)))
        for group, topic in read:
            for number in self._missing(group, topic, tenant.partitions):
                yield Drift(subject=f"group {group}", expected=f"an offset on {topic}-{number}", found="none")

    def _missing(self, group: str, topic: str, partitions: int) -> list[int]:
        committed = self._offsets.committed(group)
        return [number for number in range(partitions) if (topic, number) not in committed]

    def _from_the_first(self, group: str, topic: str, partitions: int) -> None:
        self._commit(group, topic, self._missing(group, topic, partitions), self._admin.earliest_offsets)

    def _commit(self, group: str, topic: str, missing: list[int], ask: AskOffsets) -> None:
        if missing:
            offsets = ask(topic, max(missing) + 1)
            self._offsets.commit(group, {(topic, number): offsets[number] for number in missing})


class ProducerOutboxes:
    """What an outbox knows, by `waybill.outbox.provision`."""

    def sync(self, view: OutboxView) -> None:
        """Write the view in one transaction of the outbox's own database."""
        outbox, dsn = view.outbox, _dsn(view.outbox)
        try:
            with connect(dsn, application_name="waybill-apply") as connection:
                sync(connection, outbox.schema, _settings(view))
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConfigError(
                f"outbox {outbox.name}: {where(dsn)} may not write schema {outbox.schema}: use the role that installed it"
            ) from error

    def drift(self, view: OutboxView) -> Iterator[Drift]:
        """Compare field by field."""
        outbox, subject = view.outbox, f"outbox {view.tenant.name}/{view.outbox.name}"
        with connect(_dsn(outbox), application_name="waybill-diff") as connection:
            found = read(connection, outbox.schema, view.tenant.name)
        if found is None:
            yield Drift(subject=subject, expected=f"version {view.version}", found="nothing")
            return
        expected = _settings(view)
        for name in ("source", "config_version", "max_payload_bytes", "aggregate_types", "destinations"):
            wanted, there = getattr(expected, name), getattr(found, name)
            if wanted != there:
                yield Drift(subject=subject, expected=f"{name} {_shown(wanted)}", found=_shown(there))
        for each in sorted({*expected.types} ^ {*found.types}, key=lambda each: (each.command_type, each.version)):
            states = ("as applied", "none or another") if each in expected.types else ("none", "there")
            yield Drift(
                subject=subject, expected=f"type {each.command_type} {each.version}: {states[0]}", found=states[1]
            )
        yield from _route_drift(subject, _routes(expected), _routes(found))


class Connectors:
    """Slots and connectors, by `waybill.relay`: one for the control database, one for each outbox."""

    def __init__(self, api: ConnectApi, control_dsn: str, login: RelayLogin) -> None:
        self._api, self._control_dsn, self._login = api, control_dsn, login

    def prepare(self, config: FabricConfig) -> None:
        """Make the slots."""
        for dsn, outbox in self._all(config):
            ensure_slot(dsn, outbox)

    def connect(self, config: FabricConfig) -> None:
        """Put the connectors and prove that they run."""
        for dsn, outbox in self._all(config):
            ensure_connector(self._api, dsn, outbox)

    def drift(self, config: FabricConfig) -> Iterator[Drift]:
        """Compare settings one by one, then the state."""
        for _, outbox in self._all(config):
            name = f"connector {outbox.connector}"
            found = self._api.config(outbox.connector)
            if found is None:
                yield Drift(subject=name, expected="there", found="missing")
                continue
            wanted = render_connector(outbox)
            for key in sorted((found.keys() | wanted.keys()) - {"name"}):
                if found.get(key) != wanted.get(key):
                    yield Drift(subject=name, expected=_setting(key, wanted), found=_setting(key, found))
            status = self._api.status(outbox.connector)
            states = [status.state, *(task.state for task in status.tasks)] if status else []
            if states != ["RUNNING", "RUNNING"]:
                yield Drift(subject=name, expected="RUNNING with one task", found=" ".join(states) or "no status")

    def _all(self, config: FabricConfig) -> list[tuple[str, OutboxConnection]]:
        """Return every database with its outbox as Connect sees it; one outbox may serve several tenants."""
        if not config.tenants:
            return []
        listed = {
            outbox.name: (_dsn(outbox), outbox.schema, OutboxKind.OUTBOX)
            for tenant in config.tenants
            for outbox in tenant.outboxes
        }
        listed[CONTROL] = (self._control_dsn, "fabric", OutboxKind.CONTROL)
        found: list[tuple[str, OutboxConnection]] = []
        places: dict[tuple[str, int, str, str], str] = {}
        for name, (dsn, schema, kind) in sorted(listed.items()):
            outbox = self._connection(name, dsn, schema, kind)
            first = places.setdefault((outbox.host, outbox.port, outbox.database, outbox.schema), name)
            if first != name:
                raise ConfigError(
                    f"outboxes {first} and {name} are both schema {schema} of {outbox.database} on {outbox.host}: "
                    "one place is one outbox, give it one name"
                )
            found.append((dsn, outbox))
        return found

    def _connection(self, name: str, dsn: str, schema: str, kind: OutboxKind) -> OutboxConnection:
        where(dsn)  # refuses what cannot be read
        parts = conninfo_to_dict(dsn)
        host = str(parts.get("host") or "")
        if not host or host.startswith("/") or "," in host:
            raise ConfigError(f"outbox {name}: Kafka Connect needs one host name in the connection string")
        return OutboxConnection(
            name=name,
            host=host,
            port=int(parts.get("port") or 5432),
            database=str(parts.get("dbname") or parts.get("user") or ""),
            user=self._login.user,
            secret_file=self._login.secret_file,
            secret_key=self._login.secret_key,
            schema=schema,
            kind=kind,
            sslmode=str(parts.get("sslmode") or "prefer"),
            sslrootcert=str(parts["sslrootcert"]) if parts.get("sslrootcert") else None,
        )


def real_ports(addresses: Addresses, clock: Clock, login: RelayLogin) -> Ports:
    """Put the ports together.

    Raises:
        UnavailableError: an address is not known; says what to set.
    """
    kafka = addresses.need("kafka")
    admin = KafkaAdmin(kafka, clock)
    return Ports(
        topics=TenantTopics(admin, Registry(addresses.need("registry_url"))),
        groups=ConsumerGroups(admin, GroupOffsets(kafka)),
        outboxes=ProducerOutboxes(),
        relays=Connectors(ConnectApi(addresses.need("connect_url"), clock), addresses.need("control_dsn"), login),
    )


def _read_model_topics(tenant: TenantConfig) -> tuple[str, ...]:
    names = (commands_topic, state_topic, outcomes_topic, dead_letters_topic)
    return tuple(name(tenant.name) for name in names)


def _dsn(outbox: OutboxConfig) -> str:
    return read_secret(outbox.dsn, f"dsn of outbox {outbox.name}")


def _settings(view: OutboxView) -> OutboxSettings:
    return OutboxSettings.of(view.tenant, view.outbox, view.version)


def _routes(settings: OutboxSettings) -> Mapping[str, RouteConfig]:
    """Return routes as an outbox keeps them: without `on_expiry` and `leastLevel`, the capability filled in."""
    return {
        route.command_type: replace(
            route,
            on_expiry=OnUnsettled.CONTINUE,
            least_level=None,
            capability=route.capability or route.command_type,
            destinations=tuple(sorted(route.destinations)),
        )
        for route in settings.routes
    }


def _route_drift(subject: str, wanted: Mapping[str, RouteConfig], found: Mapping[str, RouteConfig]) -> Iterator[Drift]:
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) == found.get(name):
            continue
        states = tuple("none" if name not in each else "as applied" for each in (wanted, found))
        there = "another" if name in wanted and name in found else states[1]
        yield Drift(subject=subject, expected=f"route {name}: {states[0]}", found=there)


def _setting(key: str, config: Mapping[str, str]) -> str:
    """Show one setting; one that may hold a secret only says whether it is the declared reference."""
    if "password" in key or "secret" in key:
        return f"{key} {'set' if key in config else 'unset'}, value not shown"
    return f"{key}={config[key]}" if key in config else f"{key} unset"


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
