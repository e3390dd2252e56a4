"""What must be written again of one delivery after the control database was set back to an earlier moment.

The topics were not set back: an outcome that was committed stands, and the committed offset says what is behind it.
So the state a topic tells wins over an older row, and a record that is past without a terminal state must have a row,
or it is lost. What only the database knew is gone:

- that a delivery waits, or when it is tried again: it is tried again, as after a crash;
- that an attempt was under way or answered, at a destination that cannot bear every repeat: nobody knows what became
  of it, and it must not be found out by trying. Unless an intent that is still there has the answer, it is
  `ambiguous`;
- that such a delivery was acknowledged: it is noted, so that a repeat of the relay is not sent.

| what the topic tells | what the database has | durable_idempotent | the other profiles |
| --- | --- | --- | --- |
| anything | a row that is further | as it is | as it is |
| acknowledged | an older row | the row, closed | the row, closed |
| acknowledged | no row | nothing; a closed row, if it is read again and moved before | a closed row if it is read again, else a note |
| ended otherwise | no row, or an older one | the row | the row |
| retrying, or nothing | no row, or an older one | the row, if the record is past | ambiguous, if it may have been attempted |

What breaks otherwise: lost deliveries, and attempts that must not be made.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.states import State
from waybill.delivery.core.lanes import HALTING
from waybill.delivery.core.position import Position

__all__ = ["CAUSE", "Kept", "Need", "Past", "Told", "needed"]

#: Why a delivery is ambiguous although no attempt of it is known.
CAUSE: Final = "database_rewound"
_SETTLED: Final = frozenset({*HALTING, State.DELIVERED})


class Need(StrEnum):
    """What has to be written of one delivery."""

    #: What is there will do.
    NOTHING = "nothing"
    #: A row that stands where the topic says; queued where it says nothing.
    ROW = "row"
    #: A row that says that nobody knows what happened.
    AMBIGUOUS = "ambiguous"
    #: A note that it was acknowledged.
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where a delivery stands by the topic; what is told of none is `Told()`."""

    state: State = State.QUEUED
    version: int = 0
    attempt: int = 0
    next_due: datetime | None = None
    code: ErrorCode | None = None
    detail: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the database has of a delivery."""

    #: Version of its row; None without one.
    version: int | None = None
    #: An intent says that an attempt was acknowledged: the next owner tells it.
    is_answered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """How far a partition of a destination had come."""

    offset: int
    note: Position
    #: The destination cannot bear every repeat.
    needs_intent: bool

    def is_past(self, record: int) -> bool:
        """Whether nobody reads the record again."""
        return self.note.is_past(self.offset, record)

    def was_reached(self, record: int) -> bool:
        """Whether an attempt of the record may have been made."""
        return record < self.note.sent_to or self.is_past(record)

    @property
    def end(self) -> int:
        """The offset above which nothing was attempted, settled or stored."""
        return max(self.offset, self.note.settled_to, self.note.sent_to)


def needed(past: Past, record: int, told: Told, kept: Kept) -> Need:
    """Decide what must be written of a delivery.

    Args:
        past: how far its partition had come.
        record: the offset of its first record.
        told: where it stands by the topic.
        kept: what the database has of it.
    """
    row = kept.version
    if row is not None and row > told.version:
        return Need.NOTHING  # it was decided and not told: the next owner tells it, and nothing followed it
    is_current = row is not None and row == told.version
    if told.state is State.ACKNOWLEDGED:
        return Need.NOTHING if is_current else _acknowledged(past, record, told, kept)
    if told.state in _SETTLED:
        return Need.NOTHING if is_current else Need.ROW
    if past.needs_intent and past.was_reached(record) and not kept.is_answered:
        return Need.AMBIGUOUS
    is_wanted = past.is_past(record) or told.version > 0
    return Need.ROW if is_wanted and not is_current else Need.NOTHING


def _acknowledged(past: Past, record: int, told: Told, kept: Kept) -> Need:
    if kept.version is not None:
        return Need.ROW
    if not past.is_past(record):  # it is read again, and must not be taken for new
        return Need.ROW if past.needs_intent or told.version > 1 else Need.NOTHING
    return Need.NOTE if past.needs_intent and not kept.is_answered else Need.NOTHING
