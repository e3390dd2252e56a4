"""The shape of `fabric.yaml`, declared once: every key, what it may hold, which field of which record it fills.

The reader, the renderer, the stored objects and the table in `docs/reference/fabric-yaml.md` are all derived from
`FABRIC`. A key is spelled as in the file, a field as in `waybill.contracts.fabric`; a key that may be left out takes
the record's own default, so that no default is written down twice.
"""

from typing import Final, TypeAlias

from waybill.contracts.command import DataForm
from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    FlowLimits,
    HeaderConfig,
    Level,
    OnUnsettled,
    OutboxConfig,
    Profile,
    Proof,
    Rendering,
    RepeatBound,
    ResultSource,
    RetryPolicy,
    RouteConfig,
    SecretRef,
    StatusSource,
    TenantConfig,
    Timeouts,
    TlsConfig,
    Transport,
)
from waybill.fabric.core.ingress_shape import INGRESS
from waybill.fabric.core.kinds import (
    AGGREGATE_TYPE,
    CAPABILITY,
    COMMAND_TYPE,
    CONSUMER_GROUP,
    DURATION,
    ENV_PATTERN,
    NAME,
    NETWORK,
    NUMBER,
    OWNER,
    PUBLIC_KEY,
    RATE,
    SCHEMA,
    SIZE,
    Field,
    Kind,
    Many,
    Set,
    Shape,
    choice,
    matching,
    text_kind,
)
from waybill.fabric.core.type_shape import COMMAND_TYPE_ENTRY

__all__ = [
    "API_VERSION",
    "COMMAND_TYPE_ENTRY",
    "DESTINATION",
    "FABRIC",
    "OUTBOX",
    "ROUTE",
    "TENANT",
    "Field",
    "Kind",
    "Many",
    "Set",
    "Shape",
]

API_VERSION: Final = "waybill/v1"

SECRET: Final = Shape(
    noun="secret",
    record=SecretRef,
    expected="where the secret is, never the secret: {env: NAME} or {file: PATH}",
    rule="secret-by-reference",
    fields=(
        Field(
            key="env",
            attr="env",
            kind=matching(ENV_PATTERN, "the name of an environment variable", most=127, rule="secret-by-reference"),
            meaning="Name of the environment variable that holds it.",
        ),
        Field(
            key="file",
            attr="file",
            kind=text_kind("the path of a file", least=1, most=1024, rule="secret-by-reference"),
            meaning="Path of the file that holds it, nothing else in it; a final line end is ignored.",
        ),
    ),
)

RETRY: Final = Shape(
    noun="retry policy",
    record=RetryPolicy,
    fields=(
        Field(
            key="base",
            attr="base_s",
            kind=DURATION,
            meaning="Ceiling of the first wait; each wait is a random part of its ceiling.",
        ),
        Field(key="cap", attr="cap_s", kind=DURATION, meaning="The ceiling doubles from try to try up to this."),
        Field(
            key="hotAttempts",
            attr="hot_attempts",
            kind=NUMBER,
            meaning="Quick tries in memory before the delivery becomes a row, 0 to 10.",
        ),
    ),
)

REPEATS: Final = Shape(
    noun="repeat bound",
    record=RepeatBound,
    fields=(
        Field(
            key="attempts",
            attr="max_attempts",
            kind=NUMBER,
            meaning="Attempts of one delivery that it recognises as the same, the first included, 1 to 100.",
        ),
        Field(key="age", attr="max_age_s", kind=DURATION, meaning="Since the first attempt, 1s to 29d."),
    ),
)

STATUS_QUERY: Final = Shape(
    noun="status query",
    record=StatusSource,
    fields=(
        Field(
            key="url",
            attr="url",
            kind=text_kind("an http or https URL", least=1, most=2048, rule="url"),
            required=True,
            meaning="Where the question is POSTed; the listener SDK answers at the URL of the deliveries.",
        ),
        Field(
            key="settleAfter",
            attr="settle_after_s",
            kind=DURATION,
            required=True,
            meaning="After the last possible byte of an attempt, nothing of it is done any more: signature tolerance, clock skew and the destination's own time together, 1s to 1d.",
        ),
    ),
)

RESULTS: Final = Shape(
    noun="results",
    record=ResultSource,
    fields=(
        Field(
            key="keys",
            attr="keys",
            kind=Set(item=PUBLIC_KEY, most=4),
            required=True,
            meaning="Public keys its results are signed with; several while they rotate.",
        ),
        Field(
            key="wait",
            attr="wait_s",
            kind=DURATION,
            meaning="From a `202`, or over Kafka from when its listeners have read the delivery, until the profile decides without a result, 1s to 7d.",
        ),
    ),
)

TIMEOUTS: Final = Shape(
    noun="timeouts",
    record=Timeouts,
    fields=(
        Field(key="connect", attr="connect_s", kind=DURATION, meaning="To an open connection, TLS included."),
        Field(key="read", attr="read_s", kind=DURATION, meaning="Longest silence while waiting for the answer."),
        Field(key="total", attr="total_s", kind=DURATION, meaning="The whole attempt; at most 5m."),
    ),
)

TLS: Final = Shape(
    noun="tls",
    record=TlsConfig,
    fields=(
        Field(
            key="authorities",
            attr="authorities",
            kind=SECRET,
            meaning="Where PEM certificates of authorities are that are trusted beside the machine's.",
        ),
        Field(
            key="certificate",
            attr="certificate",
            kind=SECRET,
            meaning="Where the worker's own PEM certificate is, its chain after it; goes with `key`.",
        ),
        Field(key="key", attr="key", kind=SECRET, meaning="Where the certificate's PEM private key is, not encrypted."),
    ),
)

HEADER: Final = Shape(
    noun="header",
    record=HeaderConfig,
    fields=(
        Field(
            key="name",
            attr="name",
            kind=text_kind("the name of a header", least=1, most=64, rule="headers"),
            required=True,
            meaning="In lower case; none that Waybill sets or that concerns how the request is carried.",
        ),
        Field(
            key="value",
            attr="value",
            kind=text_kind("a text", least=1, most=4096, rule="headers"),
            meaning="The same for every delivery; no secret.",
        ),
        Field(key="secret", attr="secret", kind=SECRET, meaning="Where the value is, instead of `value`."),
    ),
)

OUTBOX: Final = Shape(
    noun="outbox",
    record=OutboxConfig,
    fields=(
        Field(key="name", attr="name", kind=NAME, required=True, meaning="Never reused, never changed."),
        Field(
            key="dsn",
            attr="dsn",
            kind=SECRET,
            required=True,
            meaning="Where the connection string of the producer's database is.",
        ),
        Field(
            key="schema",
            attr="schema",
            kind=SCHEMA,
            meaning="The schema the outbox was installed into; fixed once applied.",
        ),
        Field(
            key="aggregateTypes",
            attr="aggregate_types",
            kind=Set(item=AGGREGATE_TYPE),
            required=True,
            meaning="The aggregate types this outbox alone numbers; types may be added, never taken away.",
        ),
        Field(
            key="maxPayload",
            attr="max_payload_bytes",
            kind=SIZE,
            meaning="Larger payloads are refused in the producer's transaction; at most 512KiB.",
        ),
    ),
)

FLOW_LIMITS: Final = Shape(
    noun="limits",
    record=FlowLimits,
    fields=(
        Field(key="rate", attr="rate_per_s", kind=RATE, meaning="Attempts begun, over all workers."),
        Field(
            key="inFlight", attr="in_flight", kind=NUMBER, meaning="Attempts in flight, over all workers, 1 to 100000."
        ),
    ),
)

DESTINATION: Final = Shape(
    noun="destination",
    record=DestinationConfig,
    fields=(
        Field(key="name", attr="name", kind=NAME, required=True, meaning="Never reused, never changed."),
        Field(
            key="url",
            attr="url",
            kind=text_kind("an http or https URL", least=1, most=2048, rule="url"),
            meaning="Where commands are POSTed; every destination has one, unless it takes them from Kafka.",
        ),
        Field(
            key="transport",
            attr="transport",
            kind=choice(Transport),
            meaning="`kafka`: deliveries are handed over in its topic `waybill.<tenant>.deliveries.<name>`, and it says in `results` what it did.",
        ),
        Field(
            key="listenerGroup",
            attr="listener_group",
            kind=CONSUMER_GROUP,
            meaning="Over Kafka, the consumer group of its listeners where that is not `waybill.<tenant>.listener.<name>`.",
        ),
        OWNER,
        Field(
            key="profile",
            attr="profile",
            kind=choice(Profile),
            required=True,
            meaning="What the destination can bear.",
        ),
        Field(
            key="tradeoff",
            attr="tradeoff",
            kind=text_kind(
                "what the profile costs this destination, in words, 1 to 2000 characters",
                least=1,
                most=2000,
                rule="tradeoff",
            ),
            required=True,
            meaning="What the profile costs this destination, in words; shown and recorded.",
        ),
        Field(
            key="level",
            attr="level",
            kind=choice(Level),
            meaning="What its listener keeps, as `waybill conformance` shows it.",
        ),
        Field(key="proof", attr="proof", kind=choice(Proof), meaning="What closes a delivery."),
        Field(
            key="onUnsettled",
            attr="on_unsettled",
            kind=choice(OnUnsettled),
            meaning="What the aggregate does behind a delivery that ended without acknowledgement.",
        ),
        Field(
            key="dedupRetention",
            attr="dedup_retention_s",
            kind=DURATION,
            meaning="How long the listener keeps identifiers and digests.",
        ),
        Field(key="retry", attr="retry", kind=RETRY, meaning="How long to wait between tries."),
        Field(
            key="repeats",
            attr="repeats",
            kind=REPEATS,
            meaning="How much a `bounded_deduplication` destination remembers; such a destination says it.",
        ),
        Field(
            key="notDone",
            attr="not_done",
            kind=Set(item=NUMBER, least=0, into=frozenset),
            meaning="Statuses by which a `non_idempotent` destination says that it did nothing.",
        ),
        Field(
            key="absenceProves",
            attr="absence_proves",
            kind=Set(item=COMMAND_TYPE, least=0, into=frozenset),
            meaning="Command types for which a receipt `absent` closes a delivery, such as deletions; for no others.",
        ),
        Field(
            key="statusQuery",
            attr="status_query",
            kind=STATUS_QUERY,
            meaning="Whom to ask what became of an `ambiguous` delivery; left to people without it.",
        ),
        Field(
            key="results",
            attr="results",
            kind=RESULTS,
            meaning="How it says later what it did, when it answers `202` or takes deliveries from Kafka; neither proves anything by itself.",
        ),
        Field(key="timeouts", attr="timeouts", kind=TIMEOUTS, meaning="Limits of one attempt."),
        Field(
            key="concurrency",
            attr="concurrency",
            kind=NUMBER,
            meaning="Attempts in flight over all aggregates in one worker process, 1 to 1000.",
        ),
        Field(
            key="limits",
            attr="limits",
            kind=FLOW_LIMITS,
            meaning="How fast it may be attempted; people may set others while it runs.",
        ),
        Field(
            key="hmacSecret",
            attr="hmac_secret",
            kind=SECRET,
            meaning="Where the shared secret for HMAC signatures is, if there is one.",
        ),
        Field(key="tls", attr="tls", kind=TLS, meaning="Authorities and a client certificate, for an https url."),
        Field(
            key="headers",
            attr="headers",
            kind=Many(item=HEADER),
            meaning="What every request carries beyond Waybill's own headers, at most 20.",
        ),
    ),
)

ROUTE: Final = Shape(
    noun="route",
    record=RouteConfig,
    fields=(
        Field(key="type", attr="command_type", kind=COMMAND_TYPE, required=True, meaning="The command type it is for."),
        Field(
            key="destinations",
            attr="destinations",
            kind=Set(item=NAME, most=200),
            required=True,
            meaning="Where such a command goes when its producer names nobody.",
        ),
        Field(key="ttl", attr="ttl_s", kind=DURATION, meaning="From issue to expiry, 1s to 29d."),
        Field(
            key="capability",
            attr="capability",
            kind=CAPABILITY,
            meaning="What the listener must be able to do; part of the signed body. The command type itself when left out.",
        ),
        Field(key="capabilityVersion", attr="capability_version", kind=NUMBER, meaning="Its version, from 1."),
        Field(
            key="forms",
            attr="forms",
            kind=Set(item=choice(DataForm), into=frozenset),
            meaning="The forms in which data may travel.",
        ),
        Field(
            key="onExpiry",
            attr="on_expiry",
            kind=choice(OnUnsettled),
            meaning="What the aggregate does behind a command that expired unsent.",
        ),
        Field(
            key="leastLevel",
            attr="least_level",
            kind=choice(Level),
            meaning="Its destinations declare this level or a higher one.",
        ),
        Field(
            key="rendering",
            attr="rendering",
            kind=choice(Rendering),
            meaning="In which form data of an Avro type are stored, signed and sent; means nothing to others.",
        ),
    ),
)

TENANT: Final = Shape(
    noun="tenant",
    record=TenantConfig,
    fields=(
        Field(
            key="name",
            attr="name",
            kind=NAME,
            required=True,
            meaning="Part of every topic and group name; never reused, never changed.",
        ),
        Field(
            key="partitions",
            attr="partitions",
            kind=NUMBER,
            meaning="Of each of its topics, 1 to 100; fixed once applied.",
        ),
        Field(key="limits", attr="limits", kind=FLOW_LIMITS, meaning="Of all its destinations together."),
        Field(
            key="allowNetworks",
            attr="allow_networks",
            kind=Set(item=NETWORK, least=0),
            meaning="Networks that are refused by default and its destinations may lie in all the same.",
        ),
        Field(
            key="ingress",
            attr="ingress",
            kind=INGRESS,
            meaning="Gives the tenant a topic for producers that only speak Kafka, and says what it takes.",
        ),
        Field(key="outboxes", attr="outboxes", kind=Many(item=OUTBOX), meaning="The producer databases."),
        Field(key="destinations", attr="destinations", kind=Many(item=DESTINATION), meaning="The listeners."),
        Field(
            key="commandTypes",
            attr="command_types",
            kind=Many(item=COMMAND_TYPE_ENTRY),
            meaning="Its catalogue: what the data of command types may be.",
        ),
        Field(key="routes", attr="routes", kind=Many(item=ROUTE), meaning="Which command types go where."),
    ),
)

#: The whole file, `apiVersion` apart.
FABRIC: Final = Shape(
    noun="fabric",
    record=FabricConfig,
    fields=(
        Field(
            key="tenants",
            attr="tenants",
            kind=Many(item=TENANT),
            required=True,
            meaning="Everything below belongs to one tenant.",
        ),
    ),
)

AnyKind: TypeAlias = Kind | Set | Many | Shape
