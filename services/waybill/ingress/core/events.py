"""Reading one record as a CloudEvent 1.0, in Kafka's binary or structured mode.

Both modes of one event read as the same `Event`. The data stay the bytes that came: in structured mode the member
`data` is cut out of the document's text, since it is signed later.
"""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import is_json_type
from waybill.delivery.ordered.dead_letters import Letter
from waybill.kernel.errors import ContractError
from waybill.submission.core.verbatim import Slice, read_object

__all__ = ["IGNORED", "Event", "RawHeaders", "event_key", "read_event"]

RawHeaders = Sequence[tuple[str, bytes | None]]

_PREFIX: Final = "ce_"
_STRUCTURED: Final = "application/cloudevents"
_STRUCTURED_JSON: Final = "application/cloudevents+json"
_JSON: Final = "application/json"
#: Half a character, as `\\ud800` in JSON makes it: it has no bytes.
_HALF: Final = re.compile("[\\ud800-\\udfff]")
#: Attributes that say how an event travelled, not what is ordered: two copies may differ in them.
IGNORED: Final = frozenset({"time", "partitionkey", "tracestate"})
_TELLS_NOTHING: Final = IGNORED | {"traceparent", "tenant"}
_IDENTITY: Final = ("specversion", "id", "source")
#: A URI reference has no spaces, so that source and id make one key.
_SOURCE: Final = re.compile(r"[!-~]{1,1024}")
#: Neither control characters nor half a character.
_ID: Final = re.compile("[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029\\ud800-\\udfff]{1,255}")


def event_key(source: str, identity: str) -> str:
    """Return what an event is deduplicated by; a source has no spaces."""
    return f"{source} {identity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `attributes` by their CloudEvents names, without those that identify it."""

    source: str
    id: str
    attributes: Mapping[str, object]
    #: None: there are none here.
    data: bytes | None = field(repr=False)

    @property
    def key(self) -> str:
        """Return what it is deduplicated by."""
        return event_key(self.source, self.id)

    @property
    def digest(self) -> bytes:
        """Return what tells two events of one key apart: all that is ordered, however it travelled."""
        said = {name: str(value) for name, value in self.attributes.items() if name not in _TELLS_NOTHING}
        said.setdefault("datacontenttype", _JSON)
        attributes = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
        return hashlib.sha256(attributes + b"\n" + (b"-" if self.data is None else b"+" + self.data)).digest()


def read_event(headers: RawHeaders, value: bytes | None) -> Event | Letter:
    """Read a record, or say why it is no event."""
    try:
        named = _texts(headers)
        essence = named.get("content-type", "").partition(";")[0].strip().lower()
        if essence == _STRUCTURED_JSON:
            return _event(*_structured(value or b""))
        if essence.startswith(_STRUCTURED):
            raise ContractError("header content-type names a format other than application/cloudevents+json")
        return _event(_binary(named), value or None)
    except ContractError as error:
        return Letter(code=ErrorCode.VALIDATION, cause="unreadable", detail=str(error))


def _binary(named: Mapping[str, str]) -> dict[str, object]:
    attributes: dict[str, object] = {
        name.removeprefix(_PREFIX): text for name, text in named.items() if name.startswith(_PREFIX)
    }
    if "datacontenttype" in attributes:
        raise ContractError("header ce_datacontenttype: in binary mode it is the header content-type")
    if "content-type" in named:
        attributes["datacontenttype"] = named["content-type"]
    return attributes


def _texts(headers: RawHeaders) -> dict[str, str]:
    """Decode the headers that belong to the event; others are the transport's."""
    found: dict[str, str] = {}
    for name, raw in headers:
        if raw is None or not (name.startswith(_PREFIX) or name == "content-type"):
            continue
        if name in found:
            raise ContractError("a header of the event comes twice")
        try:
            found[name] = raw.decode()
        except UnicodeDecodeError:
            raise ContractError("a header of the event is not UTF-8") from None
    return found


def _structured(value: bytes) -> tuple[dict[str, object], bytes | None]:
    try:
        members = read_object(value.decode(), "data")
    except (ValueError, RecursionError):
        raise ContractError("the document is not one JSON object in UTF-8, or a member comes twice") from None
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if data is not None and encoded is not None:
        raise ContractError("the document has both data and data_base64")
    if any(type(each) not in (str, int) for each in members.values()):
        raise ContractError("an attribute is neither text nor a whole number")
    content_type = str(members.get("datacontenttype", _JSON))
    return members, _decoded(encoded) if encoded is not None else _data(data, content_type)


def _decoded(encoded: object) -> bytes:
    try:
        return b64decode(encoded if isinstance(encoded, str) else "*", validate=True)
    except ValueError:
        raise ContractError("data_base64 is not base64") from None


def _data(data: object, content_type: str) -> bytes | None:
    if data is None:
        return None
    assert isinstance(data, Slice)
    if is_json_type(content_type):
        return data.text.encode()
    text = json.loads(data.text) if data.text.startswith('"') else None
    if not isinstance(text, str) or _HALF.search(text):
        raise ContractError("data of a type other than JSON are a JSON string, or data_base64")
    return text.encode()


def _event(attributes: Mapping[str, object], data: bytes | None) -> Event:
    version, identity, source = (attributes.get(name) for name in _IDENTITY)
    if version != "1.0":
        raise ContractError("attribute specversion is not 1.0: this is no CloudEvent")
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        raise ContractError("attribute source is not 1 to 1024 visible ASCII characters")
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        raise ContractError("attribute id is not 1 to 255 characters without control characters")
    others = {name: value for name, value in attributes.items() if name not in _IDENTITY}
    return Event(source=source, id=identity, attributes=others, data=data)
