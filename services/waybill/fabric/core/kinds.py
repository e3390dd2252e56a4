"""What a value in `fabric.yaml` may be, and what an object is made of: the words `shape` declares the file in."""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any, Final

from waybill.commandtypes.core.versions import VERSION_PATTERN
from waybill.egress.core.addresses import read_network
from waybill.kernel.ids import AGGREGATE_TYPE_PATTERN, NAME_PATTERN
from waybill.kernel.units import format_duration, format_rate, format_size, parse_duration, parse_rate, parse_size

__all__ = [
    "AGGREGATE_TYPE",
    "CAPABILITY",
    "COMMAND_TYPE",
    "CONSUMER_GROUP",
    "DURATION",
    "ENV_PATTERN",
    "NAME",
    "NETWORK",
    "NUMBER",
    "OWNER",
    "PUBLIC_KEY",
    "RATE",
    "SCHEMA",
    "SIZE",
    "VERSION",
    "Field",
    "Kind",
    "Many",
    "Set",
    "Shape",
    "choice",
    "matching",
    "text_kind",
]

#: A command type: what producers name and listeners register for.
COMMAND_TYPE_PATTERN: Final = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]*$")
#: A PostgreSQL schema, usable without quotes.
SCHEMA_PATTERN: Final = re.compile(r"^(?!pg_)[a-z_][a-z0-9_]{0,39}$")
#: 32 bytes as Standard Webhooks writes a public key.
PUBLIC_KEY_PATTERN: Final = re.compile(r"^whpk_[A-Za-z0-9+/]{43}=$")
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


def matching(pattern: re.Pattern[str], expected: str, *, most: int, rule: str) -> Kind:
    """Return a text that follows a pattern."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or pattern.fullmatch(value) is None:
            raise ValueError("does not match")
        return value

    return Kind(expected=expected, read=read, rule=rule)


def choice(choices: type[StrEnum]) -> Kind:
    """Return one word of a closed set."""
    return Kind(expected="one of " + ", ".join(choices), read=choices)


def text_kind(expected: str, *, least: int, most: int, rule: str = "type") -> Kind:
    """Return a text of some length, spaces around it left out."""
    return Kind(expected=expected, read=lambda value: _text(value, least=least, most=most), rule=rule)


NAME: Final = matching(
    NAME_PATTERN, "a name: lower case letters, digits and hyphens, a letter first, at most 30", most=30, rule="name"
)
AGGREGATE_TYPE: Final = matching(
    AGGREGATE_TYPE_PATTERN,
    "an aggregate type: lower case letters, digits and _ . -, a letter first, at most 63",
    most=63,
    rule="name",
)
COMMAND_TYPE: Final = matching(
    COMMAND_TYPE_PATTERN,
    "a command type such as subject.erase: letters, digits and _ . -, a letter first, at most 127",
    most=127,
    rule="name",
)
SCHEMA: Final = matching(
    SCHEMA_PATTERN, "a PostgreSQL schema name that needs no quotes, at most 40 characters", most=40, rule="name"
)
CONSUMER_GROUP: Final = matching(
    re.compile(r"^[A-Za-z0-9._-]{1,200}$"),
    "a consumer group: letters, digits and . _ -, at most 200",
    most=200,
    rule="transport",
)
DURATION: Final = Kind(
    expected="a duration, a whole number with a unit: 500ms, 10s, 5m, 2h, 30d",
    read=parse_duration,
    write=format_duration,
)
SIZE: Final = Kind(
    expected="a size, a whole number with a unit: 512B, 256KiB, 1MiB", read=parse_size, write=format_size
)
RATE: Final = Kind(
    expected="a rate, a whole number by a unit of time: 50/s, 10/m, 600/h", read=parse_rate, write=format_rate
)
CAPABILITY: Final = matching(
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
PUBLIC_KEY: Final = matching(
    PUBLIC_KEY_PATTERN, "a public key: whpk_ followed by base64 of 32 bytes", most=49, rule="results"
)
VERSION: Final = matching(VERSION_PATTERN, "a version, v<major>.<minor> such as v1.0", most=10, rule="type-version")

#: Who is asked about something that is applied.
OWNER: Final = Field(
    key="owner",
    attr="owner",
    kind=text_kind("the team that answers for it, 1 to 200 characters", least=1, most=200),
    required=True,
    meaning="The team that answers for it.",
)
