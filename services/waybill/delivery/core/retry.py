"""When a delivery is tried again, and what it becomes when it is not: exponential backoff with full jitter.

Same input, same answer: the jitter comes from the delivery id and the attempt, so that two hundred deliveries
that failed in one instant do not fire in one (DC-19) and a test can say when each will.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import RetryPolicy
from waybill.contracts.states import TRANSITIONS, Move, State
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.freshness import fresh_due
from waybill.delivery.core.repeats import RepeatRule
from waybill.kernel.errors import InvariantBroken

__all__ = ["EXPIRED", "UNREADABLE", "Again", "Await", "End", "History", "backoff_s", "decide", "expired", "moved"]

#: What an expired delivery carries in `detail`.
EXPIRED: Final = "expired"
#: A refusal that says nothing about earlier tries.
_GONE: Final = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of a delivery's earlier tries, the one just judged not included."""

    delivery_id: str
    #: Tries before this one; those refused by 429 are not counted.
    attempts: int
    #: A byte of an earlier try may have left.
    sent: bool
    #: An earlier try may have had an effect.
    may_have_acted: bool
    expires_at: datetime
    #: Whether a row holds it already.
    is_row: bool
    #: Attempts of which a byte may have left and the first of them, the one just judged included; counted where
    #: intents are kept.
    sends: int = 0
    first_sent_at: datetime | None = None
    #: The start of the second after the one in which the try just judged was signed.
    fresh_from: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Try again, not before `due`; in memory when `is_hot`, else from its row."""

    due: datetime
    is_hot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """The destination took it: its result is waited for until `due`."""

    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """No automatic try is left: the move, and why."""

    move: Move
    code: ErrorCode | None
    detail: str | None


#: A record that can never be sent; its end is also a dead letter.
UNREADABLE: Final = End(move=Move.FAIL, code=ErrorCode.VALIDATION, detail="unreadable")


def backoff_s(policy: RetryPolicy, delivery_id: str, attempts: int) -> float:
    """Return the wait after `attempts` tries: uniform in [0, min(cap, base * 2^(attempts-1))], in seconds."""
    ceiling = min(policy.cap_s, policy.base_s * 2.0 ** min(attempts - 1, 40))
    digest = blake2b(f"{delivery_id}/{attempts}".encode(), digest_size=8).digest()
    return ceiling * (int.from_bytes(digest) / 2**64)


def expired(*, sent: bool) -> End:
    """Return the end of a delivery whose time is over: unknown when a byte may have left, else refused (DC-8)."""
    if sent:
        return End(move=Move.LOSE_TRACK, code=ErrorCode.AMBIGUOUS_RESULT, detail=EXPIRED)
    return End(move=Move.FAIL, code=ErrorCode.POLICY_BLOCK, detail=EXPIRED)


def decide(
    policy: RetryPolicy, rule: RepeatRule, history: History, verdict: Verdict, now: datetime
) -> Again | Await | End:
    """Decide what follows an attempt that just ended.

    A retry is never due after `expires_at`: at that instant the delivery ends by `expired`. A wish of the
    destination (`Retry-After`) is a floor on which the jitter stands, so that those who were told the same do not
    come back in one instant, and its delivery goes to a row at once; so does one refused by 429, which spends no try. No retry is due in the second of the try before
    it: it would carry the same signature. What may have had an effect is repeated only where the destination can bear
    it (`core.repeats`).
    """
    if verdict.accepted_for_s is not None:
        return Await(due=now + timedelta(seconds=verdict.accepted_for_s))
    if verdict.code is None:
        return End(move=Move.ACKNOWLEDGE, code=None, detail=None)
    if verdict.is_retried:
        tries = history.attempts + 1
        wait = (verdict.retry_after_s or 0.0) + backoff_s(policy, history.delivery_id, tries)
        last = max(history.expires_at, now)
        is_near = wait < (history.expires_at - now).total_seconds()
        due = min(fresh_due(now + timedelta(seconds=wait), history.fresh_from), last) if is_near else last
        if not rule.may_follow(verdict, history.sends, history.first_sent_at, due):
            return End(move=Move.LOSE_TRACK, code=ErrorCode.AMBIGUOUS_RESULT, detail=verdict.detail)
        hot = not history.is_row and tries <= policy.hot_attempts and verdict.retry_after_s is None
        hot = hot and not rule.needs_intent and verdict.code is not ErrorCode.RATE_LIMIT
        return Again(due=due, is_hot=hot and due < last)
    is_gone = verdict.http_status == _GONE and history.may_have_acted
    in_doubt = verdict.code is ErrorCode.AMBIGUOUS_RESULT or rule.leaves_doubt(verdict, history.may_have_acted)
    if is_gone or in_doubt:
        return End(move=Move.LOSE_TRACK, code=ErrorCode.AMBIGUOUS_RESULT, detail=verdict.detail)
    return End(move=Move.FAIL, code=verdict.code, detail=verdict.detail)


def moved(state: State, move: Move) -> State:
    """Return the state after a move.

    Raises:
        InvariantBroken: the table has no such move; whoever asked decided on a state it had not read.
    """
    after = TRANSITIONS.get((state, move))
    if after is None:
        raise InvariantBroken(f"no move {move} from state {state}")
    return after
