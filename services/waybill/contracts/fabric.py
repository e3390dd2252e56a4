"""Applied configuration as frozen records: tenants, outboxes, destinations, routes, profiles.

`waybill.fabric` parses `fabric.yaml` into these, stores them as versioned rows and hands them to running
workers. Units are in the names; names are never reused or renamed.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from waybill.contracts.command import DataForm
from waybill.kernel.ids import DestinationName, Tenant

__all__ = [
    "HORIZON_MARGIN_S",
    "MAX_TTL_S",
    "CommandTypeConfig",
    "DestinationConfig",
    "FabricConfig",
    "FlowLimits",
    "HeaderConfig",
    "IngressConfig",
    "Level",
    "OnUnsettled",
    "OutboxConfig",
    "PiiClass",
    "Profile",
    "Proof",
    "Rendering",
    "RepeatBound",
    "ResultSource",
    "RetryPolicy",
    "RouteConfig",
    "SchemaFormat",
    "SecretRef",
    "StatusSource",
    "TenantConfig",
    "Timeouts",
    "TlsConfig",
    "Transport",
    "TypeVersion",
]

#: Beyond a command's expiry: an attempt that began in time may still arrive, clocks differ, a frozen worker thaws.
HORIZON_MARGIN_S: Final = 86_400.0
#: A day less than the commands topic keeps records: one that is still due must still be there.
MAX_TTL_S: Final = 29 * 86_400.0


class Profile(StrEnum):
    """What a destination can bear (GW-7)."""

    #: Keeps identifier and body digest through the retry horizon: everything transient is retried.
    DURABLE_IDEMPOTENT = "durable_idempotent"
    #: Remembers recent identifiers only: retries stop at the declared bound.
    BOUNDED_DEDUPLICATION = "bounded_deduplication"
    #: Cannot deduplicate: what may have reached it is never repeated.
    NON_IDEMPOTENT = "non_idempotent"


class Transport(StrEnum):
    """How deliveries reach a destination."""

    #: Each is a request to its url.
    HTTP = "http"
    #: Each is a record of its deliveries topic, which its listeners read.
    KAFKA = "kafka"


class Proof(StrEnum):
    """What closes a delivery."""

    #: A complete receipt; a bare 2xx closes nothing (DC-3).
    RECEIPT = "receipt"
    #: A 2xx status, recorded as `proof_level=status`.
    STATUS = "status"


class Level(StrEnum):
    """What a listener keeps, as `waybill conformance` shows it; each level holds the ones below it."""

    #: Verifies, deduplicates, answers 2xx.
    L0 = "L0"
    #: Answers receipts and coded refusals.
    L1 = "L1"
    #: Keeps sequences, gaps and policy.
    L2 = "L2"
    #: Answers status queries.
    L3 = "L3"


class PiiClass(StrEnum):
    """What data say about people."""

    #: Nothing about a person.
    NONE = "none"
    #: An identifier that means something only elsewhere.
    PSEUDONYM = "pseudonym"
    #: About a person.
    PERSONAL = "personal"
    #: Health, belief and the like.
    SPECIAL = "special"


class SchemaFormat(StrEnum):
    """How the data of a command type are described."""

    #: JSON Schema 2020-12; the data are JSON.
    JSON_SCHEMA = "json-schema"
    #: One Avro record; the data are plain Avro binary, or JSON where the route wants that.
    AVRO = "avro"


class Rendering(StrEnum):
    """In which form Avro data are stored, signed and sent."""

    #: Plain Avro binary.
    AVRO = "avro"
    #: JSON, rendered once before the command is stored.
    JSON = "json"


class OnUnsettled(StrEnum):
    """What the lane does behind a delivery that ended without acknowledgement."""

    #: The aggregate waits until people decide.
    HALT = "halt"
    #: The next one goes on after a signed gap resolution.
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Where a secret is, never the secret: exactly one of the two is set."""

    env: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with full jitter between hot retries and expiry (DC-19)."""

    base_s: float = 1.0
    cap_s: float = 600.0
    #: Quick tries in memory before the delivery becomes a row.
    hot_attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatBound:
    """How much a `bounded_deduplication` destination remembers (GW-11): beyond either, nothing is repeated."""

    #: Attempts of one delivery that it recognises as the same, the first included.
    max_attempts: int = 3
    #: Seconds since the first attempt.
    max_age_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSource:
    """Where a destination says what became of a delivery, and from when on its "not done" is final (AM-2)."""

    url: str
    #: Seconds after the last possible byte of an attempt from which on nothing of it can be done any more: the
    #: signature tolerance of the listener, clock skew, and what it takes a request to come to rest there.
    settle_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSource:
    """How a destination that answers `202` says later what it did."""

    #: Public keys its results are signed with, `whpk_` and base64; several while they rotate.
    keys: tuple[str, ...]
    #: Seconds from the `202` until the delivery is given up as accepted and decided about by its profile (RS-4).
    wait_s: float = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits of one HTTP attempt."""

    connect_s: float = 3.0
    read_s: float = 15.0
    total_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS to one destination. Its certificate is always verified: nothing here or elsewhere turns that off."""

    #: PEM certificates of authorities that are trusted beside the machine's.
    authorities: SecretRef | None = None
    #: Who the worker says it is: a PEM certificate, its chain after it. Goes with `key`.
    certificate: SecretRef | None = None
    #: The certificate's private key, PEM, not encrypted.
    key: SecretRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderConfig:
    """One header every request to a destination carries: exactly one of `value` and `secret` is set."""

    #: In lower case.
    name: str
    value: str | None = None
    secret: SecretRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How fast attempts may be made, over all workers together; None is no bound."""

    #: Attempts begun per second.
    rate_per_s: float | None = None
    #: Attempts in flight.
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationConfig:
    """One listener of a tenant, as operators declared it."""

    tenant: Tenant
    name: DestinationName
    owner: str
    transport: Transport = Transport.HTTP
    #: Where commands are POSTed; None over Kafka.
    url: str | None = None
    #: Over Kafka, the consumer group of its listeners; None is the one `names.listener_group` tells.
    listener_group: str | None = None
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    #: What the profile costs this destination, in words; shown and recorded.
    tradeoff: str = ""
    #: What its listener keeps; None where nobody declared it.
    level: Level | None = None
    proof: Proof = Proof.RECEIPT
    on_unsettled: OnUnsettled = OnUnsettled.HALT
    #: How long the listener keeps identifiers and digests; never below the retry horizon (GW-8).
    dedup_retention_s: float = 30 * 86400.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    #: What a `bounded_deduplication` destination remembers; means nothing to the others.
    repeats: RepeatBound = field(default_factory=RepeatBound)
    #: Statuses by which a `non_idempotent` destination says that it did nothing, so that another attempt is safe.
    not_done: frozenset[int] = frozenset()
    #: Command types for which "it is not there" proves that what was ordered is so (AM-4); for all others it never does.
    absence_proves: frozenset[str] = frozenset()
    #: Whom to ask about an `ambiguous` delivery; None leaves it to people.
    status_query: StatusSource | None = None
    #: How it says later what it did; None: a `202` proves nothing.
    results: ResultSource | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    #: Attempts in flight over all aggregates of this destination, per worker process.
    concurrency: int = 64
    #: Over all worker processes.
    limits: FlowLimits = field(default_factory=FlowLimits)
    #: Shared secret for HMAC `v1` signatures beside Ed25519 `v1a`.
    hmac_secret: SecretRef | None = None
    #: Authorities and a client certificate; means nothing to a plain http url.
    tls: TlsConfig | None = None
    #: Headers beyond Waybill's own.
    headers: tuple[HeaderConfig, ...] = ()

    @property
    def is_handed_over(self) -> bool:
        """Whether its deliveries are records of a topic, and what became of them is said later only."""
        return self.transport is Transport.KAFKA

    @property
    def max_ttl_s(self) -> float:
        """How long a command may live that this destination is to do once: what it remembers, less the margin (GW-8)."""
        return min(max(self.dedup_retention_s - HORIZON_MARGIN_S, 0.0), MAX_TTL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """Which destinations a command type goes to when its producer names none."""

    tenant: Tenant
    command_type: str
    destinations: tuple[DestinationName, ...]
    ttl_s: float = 7 * 86400.0
    capability: str = ""
    capability_version: int = 1
    #: The forms in which data may travel.
    forms: frozenset[DataForm] = frozenset(DataForm)
    on_expiry: OnUnsettled = OnUnsettled.CONTINUE
    #: Its destinations declare this level or a higher one; None asks for nothing.
    least_level: Level | None = None
    #: In which form data of an Avro type travel; means nothing to others.
    rendering: Rendering = Rendering.AVRO


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeVersion:
    """One version of what a command type's data may be. Once applied it stays as it is."""

    #: `v<major>.<minor>`: what one minor version accepted, the next one of the same major accepts.
    version: str
    #: The whole schema as JSON text.
    schema: str
    #: Data that keep the schema, as JSON text.
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTypeConfig:
    """One entry of a tenant's catalogue: a command type, who answers for it, and what its data may be."""

    tenant: Tenant
    name: str
    #: The team that answers for it.
    owner: str
    #: What its data say about people.
    pii: PiiClass
    description: str
    format: SchemaFormat = SchemaFormat.JSON_SCHEMA
    #: In rising order, at least one.
    versions: tuple[TypeVersion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConfig:
    """One producer database: it alone numbers its aggregate types."""

    tenant: Tenant
    name: str
    dsn: SecretRef
    aggregate_types: tuple[str, ...]
    schema: str = "waybill"
    max_payload_bytes: int = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressConfig:
    """What a tenant takes from its ingress topic."""

    #: The command types events may name: whoever may write to the topic can order these and nothing else.
    command_types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """One tenant: its own topics, keys, outboxes, destinations."""

    name: Tenant
    partitions: int = 6
    #: Networks its destinations may lie in beyond public addresses, in CIDR notation.
    allow_networks: tuple[str, ...] = ()
    #: Of all its destinations together.
    limits: FlowLimits = field(default_factory=FlowLimits)
    #: None: it has no ingress topic.
    ingress: IngressConfig | None = None
    outboxes: tuple[OutboxConfig, ...] = ()
    destinations: tuple[DestinationConfig, ...] = ()
    #: Its catalogue; a command type that is not in it carries whatever its producers send.
    command_types: tuple[CommandTypeConfig, ...] = ()
    routes: tuple[RouteConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricConfig:
    """Everything applied, at one version; versions rise by one with every apply that changed something."""

    version: int
    tenants: tuple[TenantConfig, ...] = ()

    def tenant(self, name: str) -> TenantConfig | None:
        """Return a tenant by name, or None."""
        return next((tenant for tenant in self.tenants if tenant.name == name), None)

    def destination(self, tenant: str, name: str) -> DestinationConfig | None:
        """Return a live destination, or None."""
        found = self.tenant(tenant)
        return next((d for d in found.destinations if d.name == name), None) if found else None

    def route(self, tenant: str, command_type: str) -> RouteConfig | None:
        """Return the route of a command type, or None."""
        found = self.tenant(tenant)
        return next((r for r in found.routes if r.command_type == command_type), None) if found else None
