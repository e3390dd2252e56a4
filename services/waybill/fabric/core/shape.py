"""The shape of `fabric.yaml`, declared once: every key, what it may hold, which field of which record it fills.

The reader, the renderer, the stored objects and the table in `docs/reference/fabric-yaml.md` are all derived from
`FABRIC`. A key is spelled as in the file, a field as in `waybill.contracts.fabric`; a key that may be left out takes
the record's own default, so that no default is written down twice.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

from waybill.contracts.command import DataForm
from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    OnUnsettled,
    OutboxConfig,
    Profile,
    Proof,
    RepeatBound,
    RetryPolicy,
    RouteConfig,
    SecretRef,
    StatusSource,
    TenantConfig,
    Timeouts,
)
from waybill.egress.core.addresses import read_network
from waybill.kernel.ids import AGGREGATE_TYPE_PATTERN, NAME_PATTERN
from waybill.kernel.units import format_duration, format_size, parse_duration, parse_size

__all__ = ["API_VERSION", "DESTINATION", "FABRIC", "OUTBOX", "ROUTE", "TENANT", "Field", "Kind", "Many", "Set", "Shape"]

API_VERSION: Final = "waybill/v1"
#: A command type: what producers name and listeners register for.
COMMAND_TYPE_PATTERN: Final = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]*$")
#: A PostgreSQL schema, usable without quotes.
SCHEMA_PATTERN: Final = re.compile(r"^(?!pg_)[a-z_][a-z0-9_]{0,39}$")
ENV_PATTERN: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,126}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one plain value may be, and how it travels between the file and a record."""

    #: Completes "expected …".
    expected: str
    #: Plain value → field value; raises ValueError or TypeError for what it does not accept.
    read: Callable[[Any], Any]
    #: Field value → plain value that `read` accepts.
    write: Callable[[Any], Any] = str
    #: The rule a refused value breaks.
    rule: str = "type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """A list whose order means nothing: kept sorted, each value once."""

    item: Kind
    least: int = 1
    most: int = 1000
    #: The collection the record's field holds.
    into: type[tuple[Any, ...]] | type[frozenset[Any]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """A list of objects."""

    item: "Shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of the file and the record's field it fills."""

    key: str
    attr: str
    kind: "Kind | Set | Many | Shape"
    #: For the reference: what it means, with its unit.
    meaning: str
    #: Left out, a problem; otherwise the record's default holds.
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of object: its record and its keys. Records that name a tenant inherit it from where they stand."""

    #: What messages call it.
    noun: str
    record: type
    fields: tuple[Field, ...]
    #: Completes "expected …" when something else stands here.
    expected: str = "an object with keys"
    #: The rule something else here breaks.
    rule: str = "type"

    def default(self, attr: str) -> Any:
        """Return what a record holds when the key is left out; None when it must not be."""
        found = next(item for item in fields(self.record) if item.name == attr)
        if found.default is not MISSING:
            return found.default
        return found.default_factory() if found.default_factory is not MISSING else None


def _text(value: Any, *, most: int, least: int = 0) -> str:
    if not isinstance(value, str) or not least <= len(value.strip()) or len(value) > most:
        raise ValueError("not such a text")
    return value.strip()


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("not a whole number")
    return value


def _matching(pattern: re.Pattern[str], expected: str, *, most: int, rule: str) -> Kind:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or pattern.fullmatch(value) is None:
            raise ValueError("does not match")
        return value

    return Kind(expected=expected, read=read, rule=rule)


def _choice(choices: type[StrEnum]) -> Kind:
    return Kind(expected="one of " + ", ".join(choices), read=choices)


def _text_kind(expected: str, *, least: int, most: int, rule: str = "type") -> Kind:
    return Kind(expected=expected, read=lambda value: _text(value, least=least, most=most), rule=rule)


NAME: Final = _matching(
    NAME_PATTERN, "a name: lower case letters, digits and hyphens, a letter first, at most 30", most=30, rule="name"
)
AGGREGATE_TYPE: Final = _matching(
    AGGREGATE_TYPE_PATTERN,
    "an aggregate type: lower case letters, digits and _ . -, a letter first, at most 63",
    most=63,
    rule="name",
)
COMMAND_TYPE: Final = _matching(
    COMMAND_TYPE_PATTERN,
    "a command type such as subject.erase: letters, digits and _ . -, a letter first, at most 127",
    most=127,
    rule="name",
)
SCHEMA: Final = _matching(
    SCHEMA_PATTERN, "a PostgreSQL schema name that needs no quotes, at most 40 characters", most=40, rule="name"
)
DURATION: Final = Kind(
    expected="a duration, a whole number with a unit: 500ms, 10s, 5m, 2h, 30d",
    read=parse_duration,
    write=format_duration,
)
SIZE: Final = Kind(
    expected="a size, a whole number with a unit: 512B, 256KiB, 1MiB", read=parse_size, write=format_size
)
CAPABILITY: Final = _matching(
    re.compile(r"^([A-Za-z][A-Za-z0-9_.-]*)?$"),
    "a capability, spelled like a command type, at most 127",
    most=127,
    rule="name",
)
NETWORK: Final = Kind(
    expected="an address or a network such as 127.0.0.1/32, 10.20.0.0/16 or fd12:3456::/48",
    read=lambda value: str(read_network(_text(value, most=60))),
    rule="allow-networks",
)
NUMBER: Final = Kind(expected="a whole number", read=_number, write=int)

SECRET: Final = Shape(
    noun="secret",
    record=SecretRef,
    expected="where the secret is, never the secret: {env: NAME} or {file: PATH}",
    rule="secret-by-reference",
    fields=(
        Field(
            key="env",
            attr="env",
            kind=_matching(ENV_PATTERN, "the name of an environment variable", most=127, rule="secret-by-reference"),
            meaning="Name of the environment variable that holds it.",
        ),
        Field(
            key="file",
            attr="file",
            kind=_text_kind("the path of a file", least=1, most=1024, rule="secret-by-reference"),
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
            kind=_text_kind("an http or https URL", least=1, most=2048, rule="url"),
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

TIMEOUTS: Final = Shape(
    noun="timeouts",
    record=Timeouts,
    fields=(
        Field(key="connect", attr="connect_s", kind=DURATION, meaning="To an open connection, TLS included."),
        Field(key="read", attr="read_s", kind=DURATION, meaning="Longest silence while waiting for the answer."),
        Field(key="total", attr="total_s", kind=DURATION, meaning="The whole attempt; at most 5m."),
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

DESTINATION: Final = Shape(
    noun="destination",
    record=DestinationConfig,
    fields=(
        Field(key="name", attr="name", kind=NAME, required=True, meaning="Never reused, never changed."),
        Field(
            key="url",
            attr="url",
            kind=_text_kind("an http or https URL", least=1, most=2048, rule="url"),
            required=True,
            meaning="Where commands are POSTed.",
        ),
        Field(
            key="owner",
            attr="owner",
            kind=_text_kind("the team that answers for it, 1 to 200 characters", least=1, most=200),
            required=True,
            meaning="The team that answers for it.",
        ),
        Field(
            key="profile",
            attr="profile",
            kind=_choice(Profile),
            required=True,
            meaning="What the destination can bear.",
        ),
        Field(
            key="tradeoff",
            attr="tradeoff",
            kind=_text_kind(
                "what the profile costs this destination, in words, 1 to 2000 characters",
                least=1,
                most=2000,
                rule="tradeoff",
            ),
            required=True,
            meaning="What the profile costs this destination, in words; shown and recorded.",
        ),
        Field(key="proof", attr="proof", kind=_choice(Proof), meaning="What closes a delivery."),
        Field(
            key="onUnsettled",
            attr="on_unsettled",
            kind=_choice(OnUnsettled),
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
            key="statusQuery",
            attr="status_query",
            kind=STATUS_QUERY,
            meaning="Whom to ask what became of an `ambiguous` delivery; left to people without it.",
        ),
        Field(key="timeouts", attr="timeouts", kind=TIMEOUTS, meaning="Limits of one attempt."),
        Field(
            key="concurrency",
            attr="concurrency",
            kind=NUMBER,
            meaning="Attempts in flight over all aggregates, 1 to 1000.",
        ),
        Field(
            key="hmacSecret",
            attr="hmac_secret",
            kind=SECRET,
            meaning="Where the shared secret for HMAC signatures is, if there is one.",
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
            kind=Set(item=_choice(DataForm), into=frozenset),
            meaning="The forms in which data may travel.",
        ),
        Field(
            key="onExpiry",
            attr="on_expiry",
            kind=_choice(OnUnsettled),
            meaning="What the aggregate does behind a command that expired unsent.",
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
        Field(
            key="allowNetworks",
            attr="allow_networks",
            kind=Set(item=NETWORK, least=0),
            meaning="Networks that are refused by default and its destinations may lie in all the same.",
        ),
        Field(key="outboxes", attr="outboxes", kind=Many(item=OUTBOX), meaning="The producer databases."),
        Field(key="destinations", attr="destinations", kind=Many(item=DESTINATION), meaning="The listeners."),
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
