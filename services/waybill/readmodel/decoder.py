"""From a record of a topic to facts: the edge where bytes become frozen records.

The tenant is the topic's, never a header's. A command whose other headers are broken still gets its row and
takes its number, because aggregate, sequences and id are enough; what has not even those becomes an anomaly,
and the fold goes on: a poison record must not hide the records behind it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from waybill.contracts.command import Command, Peek, parse_command, peek
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import NAME_PATTERN, CommandId, DestinationName, delivery_id
from waybill.readmodel.core.records import (
    AnomalyKind,
    AnomalyRow,
    AttemptRow,
    DeadLetterRow,
    DeliveryRow,
    Fact,
    MoveRow,
    OutcomeSeen,
    Place,
    StateRow,
    Topic,
)
from waybill.readmodel.ports import RawRecord

__all__ = ["RecordDecoder", "ValueReader"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Characters of one text column; longer ones cannot be indexed.
MAX_TEXT: Final = 2000
MAX_INTEGER: Final = 2**63 - 1
#: Outcome kinds that tell of a try.
TRY_KINDS: Final = frozenset({"attempt", "repeat"})


class ValueReader(Protocol):
    """Decodes one Avro record type: `contracts.codec.AvroReader`."""

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record by field name; raises ContractError when it cannot be read."""
        ...


class RecordDecoder:
    """Decodes the four topics of every tenant.

    Args:
        readers: for state, outcomes and dead letters.
    """

    def __init__(self, readers: Mapping[Topic, ValueReader]) -> None:
        self._readers = readers

    def decode(self, record: RawRecord, tenant: str) -> list[Fact]:
        """Return what one record says: nothing for a tombstone, an anomaly for what cannot be read."""
        place = Place(
            tenant=tenant,
            topic=Topic(record.topic.rpartition(".")[2]),
            partition=record.partition,
            offset=record.offset,
            at=_EPOCH + timedelta(milliseconds=record.timestamp_ms),
        )
        try:
            if place.topic is Topic.COMMANDS:
                return _command_facts(place, record)
            if record.value is None:
                return []
            return [_fact(place, self._readers[place.topic].decode(record.value))]
        except ContractError as error:
            return [_unreadable(place, str(error))]


def _unreadable(place: Place, detail: str) -> AnomalyRow:
    return AnomalyRow(
        tenant=place.tenant,
        kind=AnomalyKind.UNREADABLE,
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        detail=detail,
        seen_at=place.at,
    )


def _command_facts(place: Place, record: RawRecord) -> list[Fact]:
    seen = peek(record.key, record.headers)
    if not seen.sequences:
        return []
    try:
        command = parse_command(record.key, record.headers, record.value)
    except ContractError:
        command = None
    command_id = command.command_id if command is not None else _bare_id(record)
    return [_delivery_row(place, seen, command_id, destination, command) for destination in sorted(seen.sequences)]


def _bare_id(record: RawRecord) -> CommandId:
    """Read the command id alone, for a record whose other headers are broken."""
    text = next((value for name, value in record.headers if name == "ce_id"), None)
    try:
        return CommandId(uuid.UUID((text or b"").decode()))
    except ValueError as error:
        raise ContractError("header ce_id is missing or malformed") from error


def _delivery_row(
    place: Place, seen: Peek, command_id: CommandId, destination: DestinationName, command: Command | None
) -> DeliveryRow:
    if not NAME_PATTERN.match(destination):
        raise ContractError("header ce_sequences names something that cannot be a destination")
    bare = _storable(
        DeliveryRow(
            tenant=place.tenant,
            delivery_id=delivery_id(command_id, destination),
            command_id=command_id,
            destination=destination,
            aggregate=seen.aggregate,
            sequence=seen.sequences[destination],
            in_topic_at=place.at,
            command_partition=place.partition,
            command_offset=place.offset,
        )
    )
    if command is None:
        return bare
    try:
        return _storable(_with_command(bare, command))
    except ContractError:
        return bare


def _with_command(row: DeliveryRow, command: Command) -> DeliveryRow:
    return replace(
        row,
        command_type=command.command_type,
        request_id=command.request_id,
        request_size=command.request_size,
        required=row.destination not in command.optional_destinations,
        operation_id=command.operation_id,
        instruction_version=command.instruction_version,
        replaces=command.replaces,
        command_config_version=command.config_version,
        issued_at=command.issued_at,
        expires_at=command.expires_at,
    )


def _fact(place: Place, value: dict[str, Any]) -> Fact:
    try:
        if place.topic is Topic.STATE:
            return _storable(_state_row(place, value))
        if place.topic is Topic.OUTCOMES:
            return _outcome(place, value)
        return _storable(_dead_letter(place, value))
    except (KeyError, ValueError) as error:
        raise ContractError("an identifier in the record is not a UUID, or a field is missing") from error


def _fields_of(row: type, *apart: str) -> tuple[str, ...]:
    """Return the columns that the Avro record has under the same name and in the same form."""
    return tuple(name for name in row.__dataclass_fields__ if name not in apart)  # type: ignore[attr-defined]  # a dataclass


_STATE: Final = _fields_of(StateRow, "tenant", "delivery_id", "command_id")
_ATTEMPT: Final = _fields_of(AttemptRow, "tenant", "attempt_id", "delivery_id")
_MOVE: Final = _fields_of(MoveRow, "tenant", "outcome_id", "delivery_id", "attempt_id")
_DEAD_LETTER: Final = _fields_of(DeadLetterRow, "tenant", "dead_letter_id", "delivery_id")


def _optional_id(text: str | None) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _state_row(place: Place, value: dict[str, Any]) -> StateRow:
    if value["sequence"] < 1 or value["version"] < 0:
        raise ContractError("sequence or version is below its first value")
    return StateRow(
        tenant=place.tenant,
        delivery_id=uuid.UUID(value["delivery_id"]),
        command_id=uuid.UUID(value["command_id"]),
        **{name: value[name] for name in _STATE},
    )


def _outcome(place: Place, value: dict[str, Any]) -> OutcomeSeen:
    delivery = uuid.UUID(value["delivery_id"])
    attempt_id = _optional_id(value["attempt_id"])
    outcome_id = _optional_id(value["outcome_id"])
    attempt = None
    if attempt_id is not None:
        if value["kind"] not in TRY_KINDS:
            raise ContractError("an attempt id on something that is not a try")
        attempt = _storable(
            AttemptRow(
                tenant=place.tenant,
                attempt_id=attempt_id,
                delivery_id=delivery,
                **{name: value[name] for name in _ATTEMPT},
            )
        )
    move = None
    if outcome_id is not None:
        move = _storable(
            MoveRow(
                tenant=place.tenant,
                outcome_id=outcome_id,
                delivery_id=delivery,
                attempt_id=attempt_id,
                **{name: value[name] for name in _MOVE},
            )
        )
    return OutcomeSeen(place=place, attempt=attempt, move=move)


def _dead_letter(place: Place, value: dict[str, Any]) -> DeadLetterRow:
    return DeadLetterRow(
        tenant=place.tenant,
        dead_letter_id=uuid.UUID(value["dead_letter_id"]),
        delivery_id=_optional_id(value["delivery_id"]),
        **{name: value[name] for name in _DEAD_LETTER},
    )


R = TypeVar("R", DeliveryRow, StateRow, AttemptRow, MoveRow, DeadLetterRow)


_ROWS: Final = (DeliveryRow, StateRow, AttemptRow, MoveRow, DeadLetterRow)
_VALUES: Final = {row: attrgetter(*row.__dataclass_fields__) for row in _ROWS}


def _storable(row: R) -> R:
    """Return the row, or raise ContractError: one value that PostgreSQL refuses would stop the fold for ever."""
    for place, value in enumerate(_VALUES[type(row)](row)):
        if value.__class__ is str:
            if len(value) > MAX_TEXT or "\x00" in value:
                raise ContractError(f"field {list(row.__dataclass_fields__)[place]} cannot be stored as text")
        elif value.__class__ is int and abs(value) > MAX_INTEGER:
            raise ContractError(f"field {list(row.__dataclass_fields__)[place]} is out of range")
    return row
