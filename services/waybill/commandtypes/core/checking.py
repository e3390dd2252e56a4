"""One command against the catalogue: which version its data are held against, whether they keep it, in which form they go.

Data of a JSON Schema go as they came. Data of an Avro schema come as a Python value, as JSON or as Avro, and go in the
form their route wants, rendered here, once: what is stored is what is signed and sent. JSON that came as JSON and is
wanted as JSON goes as the bytes that came.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.commandtypes.core.json_schema import Fault, data_fault
from waybill.commandtypes.core.versions import default_of, schema_uri
from waybill.contracts.fabric import Rendering, SchemaFormat
from waybill.kernel.errors import ConfigError

__all__ = ["AVRO_TYPE", "Checked", "Given", "KnownType", "Objection", "Refused", "check_data"]

#: Content type of plain Avro binary.
AVRO_TYPE: Final = "application/avro"
JSON_TYPE: Final = "application/json"


class Objection(StrEnum):
    """Why a command is none of its type."""

    #: It names a version of its type that is not in the catalogue, or none where none can be assumed.
    UNKNOWN_VERSION = "unknown_type_version"
    #: Its data, or their content type, are not what its type says.
    INVALID = "payload_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why, in words that hold nothing of the data."""

    objection: Objection
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownType:
    """One command type, as far as checking needs it."""

    format: SchemaFormat = SchemaFormat.JSON_SCHEMA
    #: Version → schema, at least one.
    versions: Mapping[str, str]
    #: In which form Avro data go.
    rendering: Rendering = Rendering.AVRO


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a command says of its data."""

    #: Its `dataschema`.
    named: str | None
    content_type: str
    #: Bytes as they will travel, in clear; of an Avro type also a Python value.
    data: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Data that keep their schema, as they go."""

    #: URI of the version they keep.
    data_schema: str
    content_type: str
    data: bytes


def check_data(tenant: str, command_type: str, known: KnownType, given: Given) -> Checked | Refused:
    """Hold data against the version a command names, or else the default one.

    A JSON Schema's command may have a `dataschema` of the producer's own, which names no version of the catalogue.
    """
    base = schema_uri(tenant, command_type)
    is_avro = known.format is SchemaFormat.AVRO
    version = default_of(list(known.versions))
    if given.named is not None and (is_avro or given.named.startswith(base)):
        version = given.named.removeprefix(base)
        if version not in known.versions:
            message = f"the catalogue has no such version of {command_type}, known are {', '.join(known.versions)}"
            return Refused(objection=Objection.UNKNOWN_VERSION, message=message)
    name, schema = f"{command_type} {version}", known.versions[version]
    if is_avro and given.named is None and _base(given.content_type) == AVRO_TYPE and isinstance(given.data, bytes):
        message = f"Avro data of {command_type} can be read with the version they were written with alone: name it"
        return Refused(objection=Objection.UNKNOWN_VERSION, message=message)
    found = _avro(schema, known.rendering, given) if is_avro else _json(schema, given)
    if isinstance(found, Fault):
        return Refused(objection=Objection.INVALID, message=f"the data break the schema of {name} {found}")
    if found is None:
        message = f"the data of {name} are not in the form the catalogue says, by their content type"
        return Refused(objection=Objection.INVALID, message=message)
    content_type, data = found
    return Checked(data_schema=base + version, content_type=content_type, data=data)


def _json(schema: str, given: Given) -> tuple[str, bytes] | Fault | None:
    """Return content type and data as they go, what they break, or None for another content type."""
    assert isinstance(given.data, bytes)
    if not _is_json(given.content_type):
        return None
    return data_fault(schema, given.data) or (given.content_type, given.data)


def _avro(schema: str, rendering: Rendering, given: Given) -> tuple[str, bytes] | Fault | None:
    try:
        from waybill.commandtypes.core import avro  # only here: producers without Avro types need no Avro library
    except ModuleNotFoundError as error:
        raise ConfigError("a command type is described in Avro: pip install 'waybill[avro]'") from error
    data, is_json = given.data, False
    try:
        if not isinstance(data, bytes):
            binary = avro.encode(schema, data)
        elif _base(given.content_type) == AVRO_TYPE:
            binary = data
            avro.decode(schema, binary)
        elif is_json := _is_json(given.content_type):
            binary = avro.encode(schema, avro.from_json(schema, data))
        else:
            return None
        if rendering is Rendering.AVRO:
            return AVRO_TYPE, binary
        return (
            (given.content_type, data)
            if is_json and isinstance(data, bytes)
            else (JSON_TYPE, avro.to_json(schema, binary))
        )
    except avro.MismatchError as error:
        return error.fault


def _base(content_type: str) -> str:
    return content_type.split(";", 1)[0]


def _is_json(content_type: str) -> bool:
    return _base(content_type).endswith(("/json", "+json"))
