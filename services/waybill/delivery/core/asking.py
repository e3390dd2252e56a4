"""What an answer to a status query proves, what follows from it, and when to ask again.

| the destination says | too early | settled, may be sent again | settled, may not |
| --- | --- | --- | --- |
| done, with what its proof asks for | acknowledged | acknowledged | acknowledged |
| absent, with its proof, where it is declared to prove | ask when it is settled | acknowledged | acknowledged |
| not done | ask when it is settled | one new attempt | stays ambiguous |
| in progress | ask again | ask again | ask again |
| anything else, or nothing | ask again | ask again | ask again |

Settled is what no byte of any attempt can reach any more: the delivery became ambiguous, an attempt nobody answered
had its lease and its time-out, and then the destination's `settle_after` passed, all before the question was asked.
It may be sent again, with the same id and bytes, before its expiry; to a destination that remembers a bounded number
of repeats only within count and age. That something is absent says nothing of an attempt that is still on its way,
and it proves nothing at all where the destination did not declare it (AM-4). No answer makes a delivery `failed`: people do (AM-1, AM-2).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from typing import Final, TypeAlias

from waybill.contracts.fabric import Profile, Proof, RetryPolicy
from waybill.contracts.receipt import Receipt, ReceiptStatus, render_receipt
from waybill.contracts.status_query import Said, parse_status_answer
from waybill.delivery.core.answer import ABSENT, judge_receipt
from waybill.delivery.core.classify import Proven
from waybill.delivery.core.repeats import RepeatRule
from waybill.kernel.errors import ContractError

__all__ = ["Close", "Doubt", "Heard", "Later", "Next", "Resend", "Terms", "first_due", "follow", "hear"]

_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came back from a question."""

    #: What is believed; None: nothing.
    said: Said | None
    #: A stable word: what was said, or why nothing is believed.
    detail: str
    http_status: int | None = None
    answer_sha256: str | None = None
    #: With `done` and `absent`.
    proven: Proven | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms a destination is asked."""

    rule: RepeatRule
    policy: RetryPolicy
    settle_after: timedelta
    #: From the start of an attempt to the moment from which its last byte is behind us.
    grace: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What is known of an ambiguous delivery."""

    delivery_id: str
    #: When it became so: no attempt began later.
    since: datetime
    expires_at: datetime
    #: Attempts of which a byte may have left and the first of them, where intents are kept.
    sends: int = 0
    first_sent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """It was done: acknowledged."""


@dataclass(frozen=True, slots=True)
class Resend:
    """It was not done: one new attempt."""


@dataclass(frozen=True, slots=True)
class Later:
    """Nobody knows yet: ask again at `due`."""

    due: datetime


Next: TypeAlias = Close | Resend | Later


def hear(
    status: int, body: bytes, *, query_id: str, delivery_id: str, proof: Proof, absence_proves: bool = False
) -> Heard:
    """Judge an answer. Only a document that names this question and this delivery is believed.

    Args:
        status: of the answer.
        body: of the answer.
        query_id: the question's.
        delivery_id: of the delivery asked about.
        proof: what closes a delivery at this destination.
        absence_proves: whether "it is not there" closes deliveries of this command type here.
    """
    said, detail, proven = _believed(status, body, (query_id, delivery_id), proof, absence_proves=absence_proves)
    return Heard(said=said, detail=detail, http_status=status, answer_sha256=sha256(body).hexdigest(), proven=proven)


def _believed(
    status: int, body: bytes, asked: tuple[str, str], proof: Proof, *, absence_proves: bool
) -> tuple[Said | None, str, Proven | None]:
    if status != _OK:
        return None, f"http_{status}", None
    try:
        answer = parse_status_answer(body)
    except ContractError:
        return None, "answer_unreadable", None
    if (answer.query_id, answer.delivery_id) != asked:
        return None, "answer_to_another_question", None
    if answer.said is Said.DONE:
        return _done(answer.receipt, asked[1], proof, absence_proves=absence_proves)
    if answer.said is Said.ABSENT:
        return _absent(answer.receipt, asked[1], absence_proves=absence_proves)
    return answer.said, answer.said.value, None


def _done(
    receipt: Receipt | None, delivery_id: str, proof: Proof, *, absence_proves: bool
) -> tuple[Said | None, str, Proven | None]:
    """Whether "done" is proven as the destination's proof asks for (DC-3)."""
    verdict = judge_receipt(_OK, render_receipt(receipt or Receipt()), delivery_id, absence_proves=absence_proves)
    if verdict.code is None:
        return Said.DONE, Said.DONE.value, verdict.proven
    is_absent = receipt is not None and receipt.status is ReceiptStatus.ABSENT
    if proof is Proof.STATUS and not is_absent:
        return Said.DONE, Said.DONE.value, None
    return None, verdict.detail or "receipt_incomplete", None


def _absent(
    receipt: Receipt | None, delivery_id: str, *, absence_proves: bool
) -> tuple[Said | None, str, Proven | None]:
    """Whether "it is not there" proves anything: never by its word alone (AM-4)."""
    if receipt is None or receipt.status is not ReceiptStatus.ABSENT:
        return None, "absent_without_receipt", None
    verdict = judge_receipt(_OK, render_receipt(receipt), delivery_id, absence_proves=absence_proves)
    if verdict.code is None:
        return Said.ABSENT, Said.ABSENT.value, verdict.proven
    return None, verdict.detail or ABSENT, None


def follow(terms: Terms, doubt: Doubt, heard: Heard, asked_at: datetime, now: datetime) -> Next:
    """Decide what follows an answer; `asked_at` is when the question was asked."""
    settled = doubt.since + terms.grace + terms.settle_after
    is_settled = asked_at >= settled
    if heard.said is Said.DONE or (heard.said is Said.ABSENT and is_settled):
        return Close()
    if heard.said is Said.NOT_DONE and is_settled and _bears(terms, doubt, now):
        return Resend()
    due = now + _wait(terms.policy, doubt, now)
    return Later(settled if now < settled < due else due)


def first_due(policy: RetryPolicy, since: datetime) -> datetime:
    """Return when to ask first about a delivery that became ambiguous at an instant."""
    return since + timedelta(seconds=policy.base_s)


def _bears(terms: Terms, doubt: Doubt, now: datetime) -> bool:
    if now >= doubt.expires_at:
        return False
    if terms.rule.profile is Profile.BOUNDED_DEDUPLICATION:
        return terms.rule.remembers(doubt.sends, doubt.first_sent_at, now)
    return True


def _wait(policy: RetryPolicy, doubt: Doubt, now: datetime) -> timedelta:
    """Return half to all of the age of the doubt, within base and cap: the same question, the same wait."""
    age = now - doubt.since
    ceiling = min(max(age.total_seconds(), policy.base_s), policy.cap_s)
    digest = blake2b(f"{doubt.delivery_id}/ask/{age // timedelta(milliseconds=1)}".encode(), digest_size=8).digest()
    return timedelta(seconds=ceiling * (0.5 + int.from_bytes(digest) / 2**65))
