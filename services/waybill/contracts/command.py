"""A command as it lies in a tenant's topic: CloudEvents 1.0 Kafka binary mode.

Attributes are `ce_*` headers, data are the producer's bytes, the key is the aggregate. `HEADERS` is the one
list of what the outbox row carries into the topic: the migration's columns, the connector's placement list and
the envelope are compared with it by test.

Two facts alone decide whose record it is: the aggregate and the destination → sequence map (`peek`). They are
read apart from the rest, so that a record whose other headers are broken still takes its number at every named
destination instead of leaving a hole (DC-22).
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from waybill.contracts.json_text import read_json
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import MAX_AGGREGATE_LENGTH, Aggregate, CommandId, DestinationName, Tenant

__all__ = ["CANARY_TYPE", "HEADERS", "Command", "DataForm", "HeaderField", "Peek", "parse_command", "peek"]

#: The type of the row that proves the pipe end to end; it names no destination and nobody delivers it.
CANARY_TYPE: Final = "waybill.canary"
#: Sequences travel as CloudEvents integers: 32 bits, signed.
MAX_SEQUENCE: Final = 2**31 - 1

RawHeaders = Iterable[tuple[str, bytes | None]]


class DataForm(StrEnum):
    """How the data travel."""

    #: As the producer wrote them.
    CLEAR = "clear"
    #: Sealed once at emit; `data_key_id` names the key.
    SEALED = "sealed"
    #: Elsewhere: `data_ref` says where, `data_digest` what.
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """One outbox column and the Kafka header it becomes."""

    column: str
    header: str
    required: bool


HEADERS: Final[tuple[HeaderField, ...]] = tuple(
    HeaderField(column=column, header=header, required=required)
    for column, header, required in (
        ("spec_version", "ce_specversion", True),
        ("command_id", "ce_id", True),
        ("source", "ce_source", True),
        ("command_type", "ce_type", True),
        ("aggregate", "ce_subject", True),
        ("issued_at", "ce_time", True),
        ("content_type", "content-type", True),
        ("data_schema", "ce_dataschema", False),
        ("tenant", "ce_tenant", True),
        ("sequences", "ce_sequences", True),
        ("optional_destinations", "ce_optional", False),
        ("operation_id", "ce_operationid", False),
        ("request_id", "ce_requestid", False),
        ("request_size", "ce_requestsize", False),
        ("instruction_version", "ce_instructionversion", True),
        ("replaces", "ce_replaces", False),
        ("expires_at", "ce_expiresat", True),
        ("config_version", "ce_configversion", True),
        ("capability", "ce_capability", True),
        ("capability_version", "ce_capabilityversion", True),
        ("legal_versions", "ce_legalversions", False),
        ("config_versions", "ce_configversions", False),
        ("envelope_version", "ce_envelopeversion", True),
        ("data_form", "ce_dataform", True),
        ("data_key_id", "ce_datakeyid", False),
        ("data_ref", "ce_dataref", False),
        ("data_digest", "ce_datadigest", False),
        ("traceparent", "ce_traceparent", False),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The part of a record that decides whose it is."""

    aggregate: Aggregate
    sequences: Mapping[DestinationName, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One committed command, as every destination sees it. Everything here was fixed by the outbox insert."""

    command_id: CommandId
    tenant: Tenant
    aggregate: Aggregate
    sequences: Mapping[DestinationName, int]
    #: Destinations whose outcome the request does not wait for; all others are required.
    optional_destinations: frozenset[DestinationName]
    source: str
    command_type: str
    issued_at: datetime
    expires_at: datetime
    content_type: str
    data_schema: str | None
    #: What the destination deduplicates on when it is not the delivery id.
    operation_id: str | None
    request_id: str | None
    #: The expected number of commands of the request; the request is unsealed without it.
    request_size: int | None
    instruction_version: int
    replaces: CommandId | None
    config_version: int
    capability: str
    capability_version: int
    #: `min..max`, inclusive; either side may be empty.
    legal_versions: str | None
    config_versions: str | None
    envelope_version: int
    data_form: DataForm
    data_key_id: str | None
    data_ref: str | None
    data_digest: str | None
    traceparent: str | None
    data: bytes


def _texts(headers: RawHeaders) -> dict[str, str]:
    """Decode the headers we know; a header with a null value is absent, unknown headers are ignored."""
    return {name: value.decode() for name, value in headers if value is not None and name in _KNOWN}


_KNOWN: Final = frozenset(field.header for field in HEADERS)
_REQUIRED: Final = tuple(field.header for field in HEADERS if field.required)


def peek(key: bytes | None, headers: RawHeaders) -> Peek:
    """Read aggregate and sequences.

    Raises:
        ContractError: they cannot be read, so no destination can take a number for this record; intake
            dead-letters it. The message names the header, never its value.
    """
    raw: bytes | None = None
    for name, value in headers:
        if name == "ce_sequences":
            raw = value
            break
    if raw is None:
        raise ContractError("header ce_sequences is missing")
    try:
        sequences = read_json(raw)
        aggregate = (key or b"").decode()
    except ValueError as error:
        raise ContractError("key or header ce_sequences is not readable") from error
    if not 3 <= len(aggregate) <= MAX_AGGREGATE_LENGTH or "/" not in aggregate:
        raise ContractError("the key is not an aggregate (type/id)")
    if not isinstance(sequences, dict):
        raise ContractError("header ce_sequences is not a JSON object")
    for number in sequences.values():
        if type(number) is not int or not 1 <= number <= MAX_SEQUENCE:
            raise ContractError("header ce_sequences holds something that is not a sequence")
    return Peek(aggregate=Aggregate(aggregate), sequences=sequences)


def parse_command(key: bytes | None, headers: RawHeaders, value: bytes | None) -> Command:
    """Read a whole command from its record.

    Raises:
        ContractError: a required header is missing or malformed, or key and `ce_subject` differ. The message
            names the header, never its value.
    """
    listed = list(headers)
    seen = peek(key, listed)
    try:
        text = _texts(listed)
    except UnicodeDecodeError as error:
        raise ContractError("a header is not UTF-8") from error
    for header in _REQUIRED:
        if header not in text:
            raise ContractError(f"header {header} is missing")
    if text["ce_specversion"] != "1.0":
        raise ContractError("header ce_specversion is not 1.0")
    if text["ce_subject"] != seen.aggregate:
        raise ContractError("header ce_subject differs from the key")
    reading = "?"

    def take(header: str) -> str:
        nonlocal reading
        reading = header
        return text[header]

    def maybe(header: str) -> str | None:
        nonlocal reading
        reading = header
        return text.get(header)

    try:
        replaces = maybe("ce_replaces")
        size = maybe("ce_requestsize")
        return Command(
            command_id=CommandId(uuid.UUID(take("ce_id"))),
            tenant=Tenant(take("ce_tenant")),
            aggregate=seen.aggregate,
            sequences=seen.sequences,
            optional_destinations=_names(maybe("ce_optional")),
            source=take("ce_source"),
            command_type=take("ce_type"),
            issued_at=parse_instant(take("ce_time")),
            expires_at=parse_instant(take("ce_expiresat")),
            content_type=take("content-type"),
            data_schema=maybe("ce_dataschema"),
            operation_id=maybe("ce_operationid"),
            request_id=maybe("ce_requestid"),
            request_size=int(size) if size is not None else None,
            instruction_version=int(take("ce_instructionversion")),
            replaces=CommandId(uuid.UUID(replaces)) if replaces is not None else None,
            config_version=int(take("ce_configversion")),
            capability=take("ce_capability"),
            capability_version=int(take("ce_capabilityversion")),
            legal_versions=maybe("ce_legalversions"),
            config_versions=maybe("ce_configversions"),
            envelope_version=int(take("ce_envelopeversion")),
            data_form=DataForm(take("ce_dataform")),
            data_key_id=maybe("ce_datakeyid"),
            data_ref=maybe("ce_dataref"),
            data_digest=maybe("ce_datadigest"),
            traceparent=maybe("ce_traceparent"),
            data=value or b"",
        )
    except ValueError as error:
        raise ContractError(f"header {reading} is malformed") from error


def _names(text: str | None) -> frozenset[DestinationName]:
    if text is None:
        return frozenset()
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of names")
    return frozenset(DestinationName(name) for name in names)
