"""Reading a signed body back, strictly: what a listener of ours does after the signature was checked.

Refused are a repeated or unknown attribute, another version, data that are not the last member, a form of data that
contradicts how they came. Nothing read here may be believed before the signature over the same bytes was checked:
otherwise whoever reaches the port decides what is executed (DC-9).

The data come back as the producer's bytes, not as a parsed and re-rendered value: a digest over them means the same
on both sides.
"""

import json
import re
import uuid
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final, TypeAlias, TypeVar

from waybill.contracts.baseline import BASELINE_TYPE, MAX_PARTS, BaselinePart, LaneStart, check_lanes
from waybill.contracts.command import MAX_SEQUENCE, DataForm
from waybill.contracts.envelope import (
    ENVELOPE_VERSION,
    GAP_RESOLUTION_TYPE,
    Envelope,
    GapEntry,
    GapResolution,
    Resolution,
    check_json,
    is_json_type,
)
from waybill.contracts.status_query import STATUS_QUERY_TYPE, StatusQuery
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant

__all__ = ["Body", "parse"]

T = TypeVar("T")

#: What a signed body can say.
Body: TypeAlias = Envelope | GapResolution | StatusQuery | BaselinePart

#: The member that held the data, or nothing for a reference.
_JSON: Final = "data"
_BASE64: Final = "data_base64"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def parse(body: bytes) -> Body:
    """Read a body.

    Raises:
        ContractError: this is not an envelope of version 1. Names the attribute, never its value.
    """
    attributes, member, data = _split(body)
    if attributes.get("specversion") != "1.0":
        raise ContractError("specversion is not 1.0")
    version = attributes.get("envelopeversion")
    if type(version) is not int or version != ENVELOPE_VERSION:
        raise ContractError("this envelope version is unknown here")
    reader = _Reader({k: v for k, v in attributes.items() if k not in {"specversion", "envelopeversion"}})
    try:
        found: Body
        if attributes.get("type") == GAP_RESOLUTION_TYPE:
            found = _gap(reader, member, data)
        elif attributes.get("type") == STATUS_QUERY_TYPE:
            found = _query(reader, member, data)
        elif attributes.get("type") == BASELINE_TYPE:
            found = _baseline(reader, member, data)
        else:
            found = _envelope(reader, member, data)
    except ValueError as error:
        raise ContractError(f"attribute {reader.reading} is malformed") from error
    if reader.left:
        raise ContractError("the body has attributes that version 1 does not know")
    return found


def _split(body: bytes) -> tuple[Mapping[str, object], str, bytes]:
    """Part the attributes, the name of the member that held the data, and the raw data.

    Every attribute before the data is a scalar, and a quotation mark inside a string is escaped: so the first
    `,"data":` of a valid body is the member itself.
    """
    head, mark, data = body.partition(b',"data":')
    if mark:
        if not data.endswith(b"}"):
            raise ContractError("data are not the last member")
        head, data = head + b"}", data[:-1]
        check_json(data)
    try:
        attributes = json.loads(head.decode(), object_pairs_hook=_unique, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ContractError("the body is not one JSON object with each attribute once") from error
    if not isinstance(attributes, dict):
        raise ContractError("the body is not a JSON object")
    if mark:
        return attributes, _JSON, data
    if _BASE64 in attributes and next(reversed(attributes)) != _BASE64:
        raise ContractError("data_base64 is not the last member")
    encoded = attributes.pop(_BASE64, None)
    return attributes, "" if encoded is None else _BASE64, _decode(encoded)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an attribute is there twice")
    return found


def _refuse(text: str) -> object:
    raise ValueError("attributes are whole numbers, strings and booleans")


def _decode(encoded: object) -> bytes:
    if encoded is None:
        return b""
    if not isinstance(encoded, str):
        raise ContractError("data_base64 is not a string")
    try:
        return b64decode(encoded, validate=True)
    except ValueError as error:
        raise ContractError("data_base64 is not base64") from error


class _Reader:
    """Takes attributes one by one, remembers which is being read and what nobody asked for."""

    def __init__(self, attributes: Mapping[str, object]) -> None:
        self.left = dict(attributes)
        self.reading = "?"

    def text(self, name: str) -> str:
        value = self.maybe(name)
        if value is None:
            raise ValueError("missing")
        return value

    def maybe(self, name: str) -> str | None:
        self.reading = name
        if name not in self.left:
            return None
        value = self.left.pop(name)
        if not isinstance(value, str):
            raise ValueError("not a string")  # noqa: TRY004 - one family for the caller
        return value

    def number(self, name: str, *, least: int = 0) -> int:
        self.reading = name
        value = self.left.pop(name, None)
        if type(value) is not int or not least <= value <= MAX_SEQUENCE:
            raise ValueError("not a number in range")
        return value

    def flag(self, name: str) -> bool:
        self.reading = name
        value = self.left.pop(name, None)
        if not isinstance(value, bool):
            raise ValueError("not a boolean")  # noqa: TRY004 - one family for the caller
        return value

    def as_(self, make: Callable[[str], T], name: str) -> T:
        return make(self.text(name))

    def instant(self, name: str) -> datetime:
        return self.as_(parse_instant, name)


def _uuid(text: str) -> uuid.UUID:
    found = uuid.UUID(text)
    if str(found) != text:
        raise ValueError("not the canonical form")
    return found


def _envelope(reader: _Reader, member: str, data: bytes) -> Envelope:
    replaces = reader.maybe("replaces")
    envelope = Envelope(
        delivery_id=DeliveryId(reader.as_(_uuid, "id")),
        source=reader.text("source"),
        command_type=reader.text("type"),
        aggregate=Aggregate(reader.text("subject")),
        issued_at=reader.instant("time"),
        content_type=reader.text("datacontenttype"),
        data_schema=reader.maybe("dataschema"),
        tenant=Tenant(reader.text("tenant")),
        destination=DestinationName(reader.text("destination")),
        command_id=CommandId(reader.as_(_uuid, "commandid")),
        operation_id=reader.text("operationid"),
        sequence=reader.number("aggregatesequence", least=1),
        required=reader.flag("required"),
        expires_at=reader.instant("expiresat"),
        request_id=reader.maybe("requestid"),
        request_size=reader.number("requestsize", least=1) if "requestsize" in reader.left else None,
        instruction_version=reader.number("instructionversion"),
        replaces=CommandId(_uuid(replaces)) if replaces is not None else None,
        config_version=reader.number("configversion"),
        capability=reader.text("capability"),
        capability_version=reader.number("capabilityversion"),
        legal_versions=reader.maybe("legalversions"),
        config_versions=reader.maybe("configversions"),
        envelope_version=ENVELOPE_VERSION,
        data_form=reader.as_(DataForm, "dataform"),
        data_key_id=reader.maybe("datakeyid"),
        data_ref=reader.maybe("dataref"),
        data_digest=reader.maybe("datadigest"),
        traceparent=reader.maybe("traceparent"),
        data=data,
    )
    if member != _expected_member(envelope):
        raise ContractError("how the data came contradicts dataform and datacontenttype")
    return envelope


def _expected_member(envelope: Envelope) -> str:
    match envelope.data_form:
        case DataForm.REFERENCE:
            return ""
        case DataForm.CLEAR if is_json_type(envelope.content_type):
            return _JSON
        case _:
            return _BASE64


def _gap(reader: _Reader, member: str, data: bytes) -> GapResolution:
    reader.text("type")
    if not _is_clear_json(reader, member):
        raise ContractError("a gap resolution lists its entries as clear JSON")
    return GapResolution(
        resolution_id=DeliveryId(reader.as_(_uuid, "id")),
        tenant=Tenant(reader.text("tenant")),
        destination=DestinationName(reader.text("destination")),
        aggregate=Aggregate(reader.text("subject")),
        source=reader.text("source"),
        issued_at=reader.instant("time"),
        config_version=reader.number("configversion"),
        entries=_entries(data),
    )


def _entries(data: bytes) -> tuple[GapEntry, ...]:
    try:
        match json.loads(data, object_pairs_hook=_unique):
            case {"resolved": list(listed), **others} if listed and not others:
                entries = tuple(_entry(item) for item in listed)
            case _:
                raise ValueError("no list of resolved sequences")
        numbers = [entry.sequence for entry in entries]
        if numbers != sorted(set(numbers)):
            raise ValueError("not ascending")
    except ValueError as error:
        raise ContractError("the entries of the gap resolution are malformed") from error
    return entries


def _entry(item: object) -> GapEntry:
    match item:
        case {"sequence": int(sequence), "delivery_id": str(delivery), "resolution": str(resolution), **others} if (
            not others and type(sequence) is int and 1 <= sequence <= MAX_SEQUENCE
        ):
            return GapEntry(
                sequence=sequence, delivery_id=DeliveryId(_uuid(delivery)), resolution=Resolution(resolution)
            )
        case _:
            raise ValueError("not an entry")


def _is_clear_json(reader: _Reader, member: str) -> bool:
    return (
        member == _JSON and reader.text("dataform") == "clear" and reader.text("datacontenttype") == "application/json"
    )


def _query(reader: _Reader, member: str, data: bytes) -> StatusQuery:
    reader.text("type")
    if not _is_clear_json(reader, member):
        raise ContractError("a status query names its delivery as clear JSON")
    match json.loads(data, object_pairs_hook=_unique):
        case {"delivery_id": str(delivery), "operation_id": str(operation), "body_sha256": str(digest), **others} if (
            not others and _SHA256.fullmatch(digest)
        ):
            pass
        case _:
            raise ContractError("the data of the status query are malformed")
    return StatusQuery(
        query_id=reader.as_(_uuid, "id"),
        tenant=Tenant(reader.text("tenant")),
        destination=DestinationName(reader.text("destination")),
        aggregate=Aggregate(reader.text("subject")),
        source=reader.text("source"),
        asked_at=reader.instant("time"),
        config_version=reader.number("configversion"),
        delivery_id=DeliveryId(_uuid(delivery)),
        operation_id=operation,
        body_sha256=digest,
    )


def _baseline(reader: _Reader, member: str, data: bytes) -> BaselinePart:
    reader.text("type")
    if not _is_clear_json(reader, member):
        raise ContractError("a part of a baseline lists its aggregates as clear JSON")
    found = BaselinePart(
        part_id=reader.as_(_uuid, "id"),
        baseline_id=reader.as_(_uuid, "baselineid"),
        tenant=Tenant(reader.text("tenant")),
        destination=DestinationName(reader.text("destination")),
        source=reader.text("source"),
        issued_at=reader.instant("time"),
        expires_at=reader.instant("expiresat"),
        config_version=reader.number("configversion"),
        nonce=reader.text("nonce"),
        part=reader.number("part", least=1),
        parts=reader.number("parts", least=1),
        digest=reader.as_(_digest, "digest"),
        lanes=_lanes(data),
        data_sha256=sha256(data).hexdigest(),
    )
    if not found.part <= found.parts <= MAX_PARTS:
        raise ContractError("the number of this part of the baseline is not one of its parts")
    return found


def _digest(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ValueError("not a SHA-256 in lower-case hex")
    return text


def _lanes(data: bytes) -> tuple[LaneStart, ...]:
    try:
        match json.loads(data, object_pairs_hook=_unique):
            case {"lanes": list(listed), **others} if not others:
                lanes = tuple(_lane(item) for item in listed)
            case _:
                raise ValueError("no list of aggregates")
    except ValueError as error:
        raise ContractError("the aggregates of the baseline are malformed") from error
    check_lanes(lanes)
    return lanes


def _lane(item: object) -> LaneStart:
    match item:
        case {"aggregate": str(aggregate), "next": int(following), "told": list(told), **others} if (
            not others and type(following) is int and 1 <= following <= MAX_SEQUENCE
        ):
            return LaneStart(
                aggregate=Aggregate(aggregate), next=following, told=tuple(_entry(entry) for entry in told)
            )
        case _:
            raise ValueError("not an aggregate with its next sequence")
