"""What becomes of a decision: carried out, or void, judged against where the delivery stands.

| | counts when | and then |
| --- | --- | --- |
| cancel, supersede | it is in one of the states named, and no byte of it can have left | failed, told *final* |
| redrive | the version is the one it was made on; failed or dead letter, not expired, not taken back, not unreadable | queued |
| skip | the version is the one it was made on; ended without acknowledgement | its lane goes on |
| acknowledge | the version is the one it was made on; ended so and not taken back; with evidence | acknowledged, told *final* |

What may have been sent finishes first. An unknown outcome is never redriven: it may have happened. A decision that
does not count is void, visibly, and changes nothing.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from waybill.contracts.codes import ErrorCode
from waybill.contracts.decision import Decision, DecisionKind
from waybill.contracts.states import BY_PEOPLE, Move, State
from waybill.delivery.core.gaps import CANCELLED, FOR_GOOD, SUPERSEDED
from waybill.delivery.core.lanes import HALTING, Item
from waybill.delivery.core.retry import End

__all__ = ["Judged", "Ruling", "SkipIt", "Void", "judge"]

#: What a delivery carries in `detail` that people sent on its way again.
REDRIVEN: Final = "redriven"


class Judged(StrEnum):
    """What became of a decision."""

    #: Not judged yet.
    OPEN = "open"
    #: Nothing is known of the delivery here: it was settled without a row, or has not come yet. Judged if it comes.
    EARLY = "early"
    #: Carried out.
    APPLIED = "applied"
    #: It did not count any more, or never could; nothing was changed.
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Void:
    """It does not count; `why` is a word programs may branch on."""

    why: str


@dataclass(frozen=True, slots=True)
class SkipIt:
    """Let the lane go on behind it."""


#: A move, going on behind it, or nothing.
Ruling: TypeAlias = End | SkipIt | Void


def judge(decision: Decision, item: Item, *, sent: bool, now: datetime) -> Ruling:
    """Judge a decision about a delivery that has a row and of which nothing is under way.

    Args:
        decision: what was decided.
        item: the delivery as its row has it.
        sent: whether a byte of it may have left.
        now: the instant of the judgement.
    """
    if decision.version is not None and decision.version != item.version:
        return Void("version_moved")
    if decision.kind in {DecisionKind.CANCEL, DecisionKind.SUPERSEDE}:
        return _take_back(decision, item, sent=sent)
    if decision.version is None:
        return Void("no_version")
    if decision.kind is DecisionKind.REDRIVE:
        return _redrive(item, now)
    if decision.kind is DecisionKind.ACKNOWLEDGE:
        return _acknowledge(decision, item)
    return SkipIt() if item.state in HALTING else Void(f"state_{item.state}")


def _take_back(decision: Decision, item: Item, *, sent: bool) -> Ruling:
    if item.state not in decision.states or item.state not in {State.QUEUED, State.RETRYING} or item.is_resolution:
        return Void(f"state_{item.state}")
    if sent:
        return Void("may_have_been_sent")
    detail = CANCELLED if decision.kind is DecisionKind.CANCEL else SUPERSEDED
    return End(move=Move.FAIL, code=ErrorCode.POLICY_BLOCK, detail=detail)


def _acknowledge(decision: Decision, item: Item) -> Ruling:
    """Take the word of people for it: the evidence is theirs, and nothing of it is sent any more."""
    if item.state not in HALTING or item.is_resolution:
        return Void(f"state_{item.state}")
    if item.detail in {CANCELLED, SUPERSEDED}:
        return Void("taken_back")
    if not decision.evidence:
        return Void("no_evidence")
    return End(move=Move.ACKNOWLEDGE, code=None, detail=BY_PEOPLE)


def _redrive(item: Item, now: datetime) -> Ruling:
    if item.state not in {State.FAILED, State.DEAD_LETTER}:
        return Void(f"state_{item.state}")
    if item.detail in FOR_GOOD or item.poison is not None:
        return Void("ended_for_good")
    if item.expires_at is None or item.expires_at <= now:
        return Void("expired")
    return End(move=Move.REQUEUE, code=None, detail=REDRIVEN)
