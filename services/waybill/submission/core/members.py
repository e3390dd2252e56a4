"""The members of a submitted command, each declared once: what it may be, where it goes, how OpenAPI describes it.

Only shapes are decided here. What a name means, and whether it is allowed, the outbox decides: it holds for every
producer, also for those that do not come over HTTP.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from waybill.kernel.units import parse_duration

__all__ = ["DATA", "MEMBERS", "Member", "command_schema"]

#: The member whose text is kept as it came.
DATA: Final = "data"
MAX_NAMES: Final = 200
_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a command."""

    name: str
    #: The field of the draft it becomes.
    field: str
    description: str
    #: `text`, `whole` or `names`.
    kind: str = "text"
    pattern: str = ""
    max_length: int | None = None
    is_required: bool = False

    def problem(self, value: object) -> str | None:
        """Say what is wrong with a value, or None."""
        if self.kind == "whole":
            return None if type(value) is int and 1 <= value <= 999_999_999 else "expected a whole number from 1"
        if self.kind == "names":
            return None if _are_names(value) else f"expected a list of 1 to {MAX_NAMES} names"
        if not isinstance(value, str) or _SURROGATE.search(value):
            return "expected text"
        if self.max_length is not None and len(value) > self.max_length:
            return f"expected at most {self.max_length} characters"
        return None if re.search(self.pattern.removesuffix("$") + r"\Z", value) else f"expected {self.pattern}"

    def converted(self, value: Any) -> object:
        """Return a value without a problem as the draft has it."""
        if self.kind == "names":
            return tuple(value)
        match self.name:
            case "ttl":
                return timedelta(seconds=parse_duration(value))
            case "replaces":
                return UUID(value)
            case "dataBase64":
                return b64decode(value)
            case _:
                return value

    def schema(self) -> Mapping[str, object]:
        """Return the member as JSON Schema."""
        if self.kind == "whole":
            return {"type": "integer", "minimum": 1, "maximum": 999_999_999, "description": self.description}
        if self.kind == "names":
            items = {"type": "string", "pattern": _NAME}
            bounds = {"minItems": 1, "maxItems": MAX_NAMES}
            return {"type": "array", "items": items, **bounds, "description": self.description}
        limit = {} if self.max_length is None else {"maxLength": self.max_length}
        return {"type": "string", "pattern": self.pattern, **limit, "description": self.description}


_NAME: Final = "^[a-z][a-z0-9-]{0,29}$"
#: Half a character, as `\\ud800` in JSON makes it.
_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")
_IS_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,29}")
_TYPE: Final = "^[A-Za-z][A-Za-z0-9_.-]{0,126}$"
_TOKEN: Final = "^[!-~]{1,200}$"  # noqa: S105 - visible ASCII
_URI: Final = "^[a-z][a-z0-9+.-]*:[!-~]+$"
_RANGE: Final = "^[A-Za-z0-9_.-]*[.][.][A-Za-z0-9_.-]*$"


def _are_names(value: object) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_NAMES
        and all(isinstance(each, str) and _IS_NAME.fullmatch(each) for each in value)
    )


def _member(name: str, field: str, description: str, pattern: str, **more: Any) -> Member:
    return Member(name=name, field=field, description=description, pattern=pattern, **more)


MEMBERS: Final[Mapping[str, Member]] = {
    each.name: each
    for each in (
        _member("commandType", "command_type", "What is to be done, such as subject.erase.", _TYPE, is_required=True),
        _member(
            "aggregate",
            "aggregate",
            "What it is about, type/id: opaque, never personal data.",
            "^[a-z][a-z0-9_.-]{0,62}/[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+$",
            max_length=255,
            is_required=True,
        ),
        _member("dataBase64", DATA, "The data as bytes, in place of `data`: not JSON, or sealed.", _BASE64),
        _member(
            "contentType",
            "content_type",
            "Of the data; application/json when it is left out.",
            "^[a-z]+/[a-z0-9][a-z0-9.+_-]*(; ?[a-z]+=[a-z0-9._-]+)*$",
            max_length=127,
        ),
        Member(name="destinations", field="destinations", description="In place of the route's.", kind="names"),
        Member(name="optional", field="optional", description="Those the request does not wait for.", kind="names"),
        _member("ttl", "ttl", "In place of the route's: 90s, 12h, 7d.", "^[0-9]{1,9}(ms|s|m|h|d)$"),
        _member("operationId", "operation_id", "What the destination deduplicates on.", _TOKEN),
        _member("requestId", "request_id", "The request this command belongs to.", _TOKEN),
        Member(name="requestSize", field="request_size", description="Commands of the request.", kind="whole"),
        Member(name="instructionVersion", field="instruction_version", description="Above 1: corrects.", kind="whole"),
        _member("replaces", "replaces", "The command a correction corrects.", _UUID),
        _member("dataSchema", "data_schema", "URI of the data's schema.", _URI, max_length=1024),
        _member("capability", "capability", "In place of the route's.", _TYPE),
        Member(name="capabilityVersion", field="capability_version", description="Its version.", kind="whole"),
        _member("legalVersions", "legal_versions", "min..max, either side may be empty.", _RANGE, max_length=66),
        _member("configVersions", "config_versions", "min..max, either side may be empty.", _RANGE, max_length=66),
        _member("traceparent", "traceparent", "W3C trace context.", "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"),
        _member("dataKeyId", "data_key_id", "The key that sealed the data.", "^[!-~]{1,128}$"),
        _member("dataRef", "data_ref", "Where the data are, when they are not here.", _URI, max_length=1024),
        _member("dataDigest", "data_digest", "The digest of data that are elsewhere.", "^sha256:[0-9a-f]{64}$"),
    )
}


def command_schema() -> dict[str, object]:
    """Return one command as JSON Schema 2020-12."""
    data = {"description": "The data, any JSON value; stored, signed and sent as the bytes that came."}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [each.name for each in MEMBERS.values() if each.is_required],
        "oneOf": [{"required": [name]} for name in (DATA, "dataBase64", "dataRef")],
        "properties": {DATA: data, **{name: each.schema() for name, each in MEMBERS.items()}},
    }
