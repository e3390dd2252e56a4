"""Where a command is that the read model has not folded: in its outbox, or already in its topic.

Both looks are bounded in rows and time, because they scan: the outbox has no index by command id (each index costs
every insert), and a topic has none at all. They are for people who ask about one command, not for programs.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql

from waybill.contracts.command import parse_command
from waybill.infra.postgres import identifier
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.readmodel.core.records import Topic
from waybill.readmodel.ports import RawRecord, Source, TopicPartition

__all__ = ["IdRange", "Unseen", "find_in_outbox", "find_in_topics"]

#: Lowest and highest id that is meant.
IdRange = tuple[uuid.UUID, uuid.UUID]

#: Newest outbox rows that are searched for a delivery id, which is computed and not stored.
NEWEST_ROWS: Final = 20_000
STATEMENT_TIMEOUT_MS: Final = 5_000
TOPIC_SEARCH_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A command before any worker's state of it is folded."""

    command_id: uuid.UUID
    tenant: str
    aggregate: str
    command_type: str
    #: Destination → number.
    sequences: Mapping[str, int]
    issued_at: datetime
    expires_at: datetime
    request_id: str | None
    #: `partition p offset o`, once the topic has it.
    in_topic: str | None = None

    def deliveries(self, wanted: IdRange) -> Sequence[tuple[uuid.UUID, str, int]]:
        """Return delivery id, destination and number: the one that is meant, or all of the command."""
        named = [
            (delivery_id(CommandId(self.command_id), DestinationName(name)), name, number)
            for name, number in sorted(self.sequences.items())
        ]
        low, high = wanted
        return [entry for entry in named if low <= entry[0] <= high] or named


def _is_meant(command: uuid.UUID, destinations: Mapping[str, int], wanted: IdRange) -> bool:
    low, high = wanted
    if low <= command <= high:
        return True
    return any(low <= delivery_id(CommandId(command), DestinationName(name)) <= high for name in destinations)


_COLUMNS: Final = "command_id, tenant, aggregate, command_type, sequences, issued_at, expires_at, request_id"
_BY_COMMAND: Final = "SELECT {columns} FROM {outbox} WHERE command_id BETWEEN %s AND %s LIMIT 1"
_NEWEST: Final = "SELECT {columns} FROM {outbox} ORDER BY created_day DESC, position DESC LIMIT %s"


def find_in_outbox(connection: psycopg.Connection, schema: str, wanted: IdRange) -> Unseen | None:
    """Return a committed command by its id, or by one of its delivery ids when it is among the newest rows.

    None when it is not there, when this role may not read the outbox, or when the search takes too long.
    """
    names = {"columns": sql.SQL(_COLUMNS), "outbox": sql.Identifier(identifier(schema), "outbox")}
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}")
            row = connection.execute(sql.SQL(_BY_COMMAND).format(**names), wanted).fetchone()
            if row is not None:
                return _unseen(row)
            for row in connection.execute(sql.SQL(_NEWEST).format(**names), (NEWEST_ROWS,)):
                if _is_meant(row[0], row[4], wanted):
                    return _unseen(row)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege, psycopg.errors.QueryCanceled):
        return None
    return None


def _unseen(row: Sequence[object]) -> Unseen:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Unseen(**fields)  # type: ignore[arg-type]  # the columns' types are the migration's


def find_in_topics(
    source: Source, tenant: str | None, positions: Mapping[TopicPartition, int], wanted: IdRange, clock: Clock
) -> Unseen | None:
    """Return a command that lies in a commands topic past what is folded; the search ends after some seconds.

    `positions` are the read model's; a partition it does not know is searched from its first record.
    """
    places = [
        place for place in source.partitions([tenant] if tenant else ()) if place[0].endswith(f".{Topic.COMMANDS}")
    ]
    bounds = source.bounds(places)
    begin = {place: max(positions.get(place, 0), bounds[place].first) for place in places}
    left = {place for place in places if begin[place] < bounds[place].end}
    source.assign({place: begin[place] for place in left})
    deadline = clock.monotonic() + TOPIC_SEARCH_S
    while left and clock.monotonic() < deadline:
        batch = source.poll(0.2)
        for record in batch.records:
            if (found := _read(record, wanted)) is not None:
                return found
        left -= {place for place, reached in batch.reached.items() if reached >= bounds[place].end}
    return None


def _read(record: RawRecord, wanted: IdRange) -> Unseen | None:
    try:
        command = parse_command(record.key, record.headers, record.value)
    except ContractError:
        return None
    if not _is_meant(command.command_id, {str(name): n for name, n in command.sequences.items()}, wanted):
        return None
    return Unseen(
        command_id=command.command_id,
        tenant=record.topic.split(".")[1],
        aggregate=command.aggregate,
        command_type=command.command_type,
        sequences={str(name): number for name, number in command.sequences.items()},
        issued_at=command.issued_at,
        expires_at=command.expires_at,
        request_id=command.request_id,
        in_topic=f"partition {record.partition} offset {record.offset}",
    )
