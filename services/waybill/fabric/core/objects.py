"""The configuration as separate objects: what is stored as versioned rows and travels on the `config` topic.

An object's body has the keys and units of `fabric.yaml`, every default written out, so that a later version with
another default changes nothing that is applied. Bodies are canonical: the order of tenants, objects and set-like
lists in a file means nothing, and the same meaning gives the same bytes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import yaml

from waybill.contracts.fabric import FabricConfig
from waybill.fabric.core.document import Plain, Table, from_plain
from waybill.fabric.core.reading import build, read
from waybill.fabric.core.shape import (
    API_VERSION,
    COMMAND_TYPE_ENTRY,
    DESTINATION,
    FABRIC,
    OUTBOX,
    ROUTE,
    TENANT,
    Kind,
    Many,
    Set,
    Shape,
)
from waybill.kernel.errors import ConfigError

__all__ = ["Body", "ObjectKey", "ObjectKind", "canonical", "digest", "from_objects", "render", "to_objects"]

Body: TypeAlias = dict[str, Plain]


class ObjectKind(StrEnum):
    """What an object is, in the order in which one may name another."""

    #: Its name and the number of partitions.
    TENANT = "tenant"
    #: A producer database.
    OUTBOX = "outbox"
    #: A listener.
    DESTINATION = "destination"
    #: An entry of the catalogue.
    COMMAND_TYPE = "command-type"
    #: A command type and where it goes; the only kind that may be retired.
    ROUTE = "route"


#: Kind → its shape and the tenant's field that lists it.
_SHAPES: Final[dict[ObjectKind, tuple[Shape, str]]] = {
    ObjectKind.TENANT: (TENANT, ""),
    ObjectKind.OUTBOX: (OUTBOX, "outboxes"),
    ObjectKind.DESTINATION: (DESTINATION, "destinations"),
    ObjectKind.COMMAND_TYPE: (COMMAND_TYPE_ENTRY, "command_types"),
    ObjectKind.ROUTE: (ROUTE, "routes"),
}
#: The tenant's field → its key in the file.
_KEYS: Final = {field.attr: field.key for field in TENANT.fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKey:
    """Which object: a name is unique for its kind within the tenant."""

    tenant: str
    kind: ObjectKind
    name: str

    def __str__(self) -> str:
        """Render for people: `acme destination/crm`."""
        return f"{self.tenant} {self.topic_key}"

    @property
    def topic_key(self) -> str:
        """Return the key of the record on the tenant's config topic."""
        return f"{self.kind}/{self.name}"

    @property
    def place(self) -> tuple[str, int, str]:
        """Return what objects are sorted by: tenant, kind, name."""
        return self.tenant, list(ObjectKind).index(self.kind), self.name


def to_objects(config: FabricConfig) -> dict[ObjectKey, Body]:
    """Take a configuration apart, in the order of keys."""
    return dict(sorted(_objects(config), key=lambda item: item[0].place))


def _objects(config: FabricConfig) -> Iterator[tuple[ObjectKey, Body]]:
    for tenant in config.tenants:
        yield ObjectKey(tenant=tenant.name, kind=ObjectKind.TENANT, name=tenant.name), _body(TENANT, tenant)
        for kind, (shape, listed) in _SHAPES.items():
            for item in getattr(tenant, listed, ()) if listed else ():
                body = _body(shape, item)
                yield ObjectKey(tenant=tenant.name, kind=kind, name=str(body[shape.fields[0].key])), body


def from_objects(version: int, objects: Mapping[ObjectKey, Body]) -> FabricConfig:
    """Put a configuration together again; keys this version does not know are passed over.

    Raises:
        ConfigError: a stored object holds a value this version cannot read; names the object and the field.
    """
    whole: dict[str, dict[str, Any]] = {}
    for key, body in sorted(objects.items(), key=lambda item: item[0].place):
        tenant = whole.setdefault(key.tenant, {_KEYS[listed]: [] for _, listed in _SHAPES.values() if listed})
        if key.kind is ObjectKind.TENANT:
            tenant.update(body)
        else:
            tenant[_KEYS[_SHAPES[key.kind][1]]].append(body)
    node = from_plain({"tenants": list(whole.values())})
    assert isinstance(node, Table)
    reading, problems = read(FABRIC, node)
    for problem in problems:
        if problem.rule != "known-keys":
            raise ConfigError(
                f"applied configuration {version} is not readable by this version: {problem.path}: {problem.message}"
            )
    config: FabricConfig = build(reading, {"version": version})
    return config


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the one byte form of a JSON document: sorted keys, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(objects: Mapping[ObjectKey, Body]) -> str:
    """Return a SHA-256 over all objects, equal exactly when the configurations mean the same."""
    return hashlib.sha256(canonical({str(key): body for key, body in objects.items()})).hexdigest()


def render(config: FabricConfig) -> str:
    """Write a configuration as a file that `parse` reads back to the same meaning."""
    tenants = [_body(TENANT, tenant, deep=True) for tenant in config.tenants]
    return yaml.safe_dump(
        {"apiVersion": API_VERSION, "tenants": tenants}, sort_keys=False, allow_unicode=True, width=120
    )


def _body(shape: Shape, record: Any, *, deep: bool = False) -> Body:
    """Write one record; the objects inside a tenant only when `deep`."""
    body: Body = {}
    for field in shape.fields:
        value = getattr(record, field.attr)
        if isinstance(field.kind, Many):
            if deep or shape is not TENANT:
                inside = field.kind.item
                body[field.key] = [_body(inside, item, deep=True) for item in value]
        elif value is None:
            continue
        elif isinstance(field.kind, Shape):
            body[field.key] = _body(field.kind, value)
        elif isinstance(field.kind, Set):
            body[field.key] = sorted(field.kind.item.write(item) for item in value)
        else:
            assert isinstance(field.kind, Kind)
            body[field.key] = field.kind.write(value)
    return body
