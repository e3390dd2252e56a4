"""Exceptions and their moves: one table, and the rules about who moves them and when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from waybill.kernel.errors import RefusedError
from waybill.kernel.lifecycle import advance

__all__ = [
    "CLOCK",
    "MOVES",
    "Draft",
    "ExceptionRecord",
    "ExceptionState",
    "Move",
    "check_draft",
    "is_same_person",
    "judge",
]

#: Who moves what has expired.
CLOCK: Final = "the clock"


class ExceptionState(StrEnum):
    """Where an exception stands."""

    #: Asked for; permits nothing yet.
    OPENED = "opened"
    #: In force until it expires.
    APPROVED = "approved"
    #: Its reviewer said no, or took back what was approved.
    REJECTED = "rejected"
    #: Its time is over.
    EXPIRED = "expired"


class Move(StrEnum):
    """What is done to one."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"


#: Every move there is; the trigger of the table knows the same.
MOVES: Final[Mapping[tuple[ExceptionState, Move], ExceptionState]] = {
    (ExceptionState.OPENED, Move.APPROVE): ExceptionState.APPROVED,
    (ExceptionState.OPENED, Move.REJECT): ExceptionState.REJECTED,
    (ExceptionState.OPENED, Move.EXPIRE): ExceptionState.EXPIRED,
    (ExceptionState.APPROVED, Move.REJECT): ExceptionState.REJECTED,
    (ExceptionState.APPROVED, Move.EXPIRE): ExceptionState.EXPIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What somebody asks for."""

    tenant: str
    destination: str
    delivery_id: UUID
    #: A link to where the reason can be read.
    source: str
    #: In words; no personal data.
    reason: str
    permits_closure: bool
    opened_by: str
    reviewer: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRecord(Draft):
    """One exception as it stands."""

    exception_id: UUID
    opened_at: datetime
    state: ExceptionState
    moved_by: str | None
    moved_at: datetime | None
    moved_why: str | None

    def is_in_force(self, now: datetime) -> bool:
        """Whether it excuses its delivery at this moment."""
        return self.state is ExceptionState.APPROVED and now < self.expires_at


def is_same_person(one: str, other: str) -> bool:
    """Whether two names are one, however they were typed."""
    return one.strip().lower() == other.strip().lower()


def check_draft(draft: Draft, now: datetime) -> None:
    """Refuse what nobody should be asked to approve (RS-9, RS-14).

    Raises:
        RefusedError: no link, no reason, no reviewer, its own reviewer, or already over.
    """
    link, colon, place = draft.source.partition(":")
    wrong = {
        "source": not (colon and link.isalnum() and place and not set(draft.source) & set(" \t\r\n")),
        "reason": not draft.reason.strip(),
        "reviewer": not draft.reviewer.strip(),
        "maker-checker": is_same_person(draft.reviewer, draft.opened_by),
        "expiry": draft.expires_at <= now,
    }
    told = {
        "source": "an exception needs a link to its source, such as https://…",
        "reason": "an exception needs a reason in words",
        "reviewer": "an exception needs a reviewer",
        "maker-checker": f"{draft.opened_by} opens it, so somebody else has to review it",
        "expiry": "an exception has to end later than now",
    }
    for rule, is_wrong in wrong.items():
        if is_wrong:
            raise RefusedError(told[rule], rule=rule)


def judge(record: ExceptionRecord, move: Move, by: str, now: datetime) -> ExceptionState:
    """Return where a move leads.

    Raises:
        RefusedError: the table has no such move, its time is over or not over yet, or somebody else has to say so.
    """
    state = advance(MOVES, record.state, move)
    if state is None:
        raise RefusedError(f"the exception is {record.state}: {move} leads nowhere", rule="no-such-move")
    is_over = now >= record.expires_at
    if move is Move.EXPIRE:
        if not is_over:
            raise RefusedError("the exception has not expired yet", rule="expiry")
        return state
    if is_same_person(by, record.opened_by):
        raise RefusedError(f"{by} opened it: its reviewer, {record.reviewer}, has to judge it", rule="maker-checker")
    if by != record.reviewer:
        raise RefusedError(f"its reviewer is {record.reviewer}, not {by}", rule="reviewer")
    if move is Move.APPROVE and is_over:
        raise RefusedError("the exception expired before it was approved: open another one", rule="expiry")
    return state
