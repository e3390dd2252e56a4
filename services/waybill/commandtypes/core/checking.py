"""One command against the catalogue: which version its data are held against, and whether they keep it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from waybill.commandtypes.core.json_schema import data_fault
from waybill.commandtypes.core.versions import default_of

__all__ = ["KnownVersion", "Objection", "Refused", "check_data"]


class Objection(StrEnum):
    """Why a command is none of its type."""

    #: It names a version of its type that is not in the catalogue.
    UNKNOWN_VERSION = "unknown_type_version"
    #: Its data, or their content type, are not what its type says.
    INVALID = "payload_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why, in words that hold nothing of the data."""

    objection: Objection
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersion:
    """One version of a command type, as far as checking needs it."""

    version: str
    schema: str


def check_data(
    uri_base: str, known: Sequence[KnownVersion], *, named: str | None, content_type: str, data: bytes
) -> str | Refused:
    """Hold data against the version a command names, or else the default one.

    Args:
        uri_base: what the URIs of the type's versions begin with (`schema_uri` without a version).
        known: every version of the type, at least one.
        named: the command's `dataschema`. One of the producer's own names no version of the catalogue.
        content_type: of the data.
        data: as they will travel, in clear.

    Returns:
        The URI of the version the data keep, or why they are refused.
    """
    versions = {each.version: each for each in known}
    command_type = uri_base.rstrip("/").rsplit("/", 1)[-1]
    version = default_of(list(versions))
    if named is not None and named.startswith(uri_base):
        version = named.removeprefix(uri_base)
        if version not in versions:
            message = f"the catalogue has no such version of {command_type}, known are {', '.join(versions)}"
            return Refused(objection=Objection.UNKNOWN_VERSION, message=message)
    if not _is_json(content_type):
        message = f"the data of {command_type} {version} are JSON by the catalogue, by their content type they are not"
        return Refused(objection=Objection.INVALID, message=message)
    fault = data_fault(versions[version].schema, data)
    if fault is not None:
        message = f"the data break the schema of {command_type} {version} {fault}"
        return Refused(objection=Objection.INVALID, message=message)
    return uri_base + version


def _is_json(content_type: str) -> bool:
    return content_type.split(";", 1)[0].endswith(("/json", "+json"))
