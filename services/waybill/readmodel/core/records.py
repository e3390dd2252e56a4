"""What the fold reads and writes, as frozen records; field names are the column names of schema `read`.

A record of a topic becomes one of the `…Seen` records at the edge (`decoder.py`); `fold` turns a batch of them
into `Rows`. Nothing here asks the clock: every instant comes from a record, so that a rebuild gives equal rows.
"""

import uuid
from collections.abc import Sized
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

__all__ = [
    "AnomalyKind",
    "AnomalyRow",
    "AttemptRow",
    "DeadLetterRow",
    "DeliveryRow",
    "Fact",
    "MoveRow",
    "OutcomeSeen",
    "Place",
    "Rows",
    "StateRow",
    "Topic",
]


class Topic(StrEnum):
    """The four topics of a tenant that are folded; the value is the last part of the topic's name."""

    #: What was issued: existence, numbers, expiry.
    COMMANDS = "commands"
    #: Where each delivery stands.
    STATE = "state"
    #: Every attempt and move.
    OUTCOMES = "outcomes"
    #: What no automated path can settle.
    DEAD_LETTERS = "dead-letters"


class AnomalyKind(StrEnum):
    """What should not be in the topics."""

    #: Numbers of an aggregate that a later number jumped over (DC-7); resolved when they arrive.
    HOLE = "hole"
    #: One number with two deliveries: a producer database went back in time (DC-7).
    REUSED_NUMBER = "reused_number"
    #: A record nobody can read; intake dead-letters it (DC-22).
    UNREADABLE = "unreadable"
    #: A move the transition table does not hold (RS-2).
    ILLEGAL_MOVE = "illegal_move"
    #: Records expired before they were folded.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record lies, and when the broker took it."""

    tenant: str
    topic: Topic
    partition: int
    offset: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """The command columns of a delivery. Optional ones are None when the record's own headers are unreadable."""

    tenant: str
    delivery_id: uuid.UUID
    command_id: uuid.UUID
    destination: str
    aggregate: str
    sequence: int
    command_type: str | None = None
    request_id: str | None = None
    request_size: int | None = None
    required: bool | None = None
    operation_id: str | None = None
    instruction_version: int | None = None
    replaces: uuid.UUID | None = None
    command_config_version: int | None = None
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    in_topic_at: datetime
    command_partition: int
    command_offset: int
    #: Records of this command in the topic; above 1 the relay repeated it.
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The state columns of a delivery, and enough identity to stand alone when it overtakes its command."""

    tenant: str
    delivery_id: uuid.UUID
    command_id: uuid.UUID
    destination: str
    aggregate: str
    sequence: int
    command_type: str
    request_id: str | None
    required: bool
    expires_at: datetime
    state: str
    version: int
    error_code: str | None
    detail: str | None
    attempt: int
    next_due: datetime | None
    owner: str
    proof_level: str | None
    profile: str
    config_version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One audited try."""

    tenant: str
    attempt_id: uuid.UUID
    delivery_id: uuid.UUID
    kind: str
    attempt: int
    started_at: datetime
    ended_at: datetime
    phase: str | None
    http_status: int | None
    error_code: str | None
    detail: str | None
    state_before: str
    state_after: str
    version: int
    receipt_status: str | None
    source_version: str | None
    count: int | None
    digest: str | None
    evidence: str | None
    proof_level: str | None
    profile: str
    config_version: int
    body_sha256: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow:
    """One move of a state, with or without a try."""

    tenant: str
    outcome_id: uuid.UUID
    delivery_id: uuid.UUID
    version: int
    state_before: str
    state_after: str
    error_code: str | None
    detail: str | None
    attempt_id: uuid.UUID | None
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSeen:
    """One record of the outcomes topic: a try, a move, or both."""

    place: Place
    attempt: AttemptRow | None
    move: MoveRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """One record or delivery that no automated path can settle."""

    tenant: str
    dead_letter_id: uuid.UUID
    topic: str
    partition: int
    offset: int
    destination: str | None
    delivery_id: uuid.UUID | None
    aggregate: str | None
    sequence: int | None
    code: str
    cause: str
    detail: str
    value_sha256: str
    value_bytes: int
    owner: str | None
    config_version: int
    recorded_by: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRow:
    """Something that should not be, and where it was seen."""

    tenant: str
    kind: AnomalyKind
    topic: str
    partition: int
    offset: int
    #: Empty when no destination is concerned.
    destination: str = ""
    aggregate: str | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    #: Numbers of a hole that are still absent.
    missing: int = 0
    delivery_id: uuid.UUID | None = None
    #: The delivery that had the number first.
    other_id: uuid.UUID | None = None
    detail: str
    seen_at: datetime
    resolved_at: datetime | None = None


#: What one record of a topic says; a command record says one `DeliveryRow` per destination.
Fact = DeliveryRow | StateRow | OutcomeSeen | DeadLetterRow | AnomalyRow


@dataclass(slots=True, kw_only=True)
class Rows:
    """One batch, ready to write: at most one row per key and table, in the order first seen."""

    deliveries: list[DeliveryRow] = field(default_factory=list)
    states: list[StateRow] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    moves: list[MoveRow] = field(default_factory=list)
    dead_letters: list[DeadLetterRow] = field(default_factory=list)
    anomalies: list[AnomalyRow] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows to write."""
        tables: tuple[Sized, ...] = (
            self.deliveries,
            self.states,
            self.attempts,
            self.moves,
            self.dead_letters,
            self.anomalies,
        )
        return sum(len(table) for table in tables)
