"""The kinds of expectation a check is made of: each looks at the evidence and says passed, failed or not tested.

A judge never guesses: a step that was not made, an effect nobody counted, an earlier answer that everything hangs on,
all make the check *not tested*, with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from waybill.conformance.core.evidence import FORGERIES, Evidence, Reply, Seen, Step
from waybill.contracts.codes import ErrorCode
from waybill.contracts.receipt import parse_receipt
from waybill.contracts.status_query import Said, parse_status_answer
from waybill.kernel.errors import ContractError

__all__ = [
    "Finding",
    "Judge",
    "Result",
    "accepted",
    "answered_or_later",
    "applied",
    "auth_everywhere",
    "kept",
    "never_redirects",
    "problem",
    "receipt_complete",
    "receipts_equal",
    "refused",
    "said",
    "same_refusal",
    "unapplied",
]

#: What a sender tries again: too early, too many, away.
_LATER: Final = frozenset({425, 429, 502, 503, 504})


class Result(StrEnum):
    """What a check came to."""

    PASSED = "passed"
    FAILED = "failed"
    #: It could not be seen.
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result and why."""

    result: Result
    why: str = ""


Judge: TypeAlias = Callable[[Evidence], Finding]

_PASSED: Final = Finding(result=Result.PASSED)


def _failed(why: str) -> Finding:
    return Finding(result=Result.FAILED, why=why)


def _untested(why: str) -> Finding:
    return Finding(result=Result.NOT_TESTED, why=why)


def _of(step: Step, judge: Callable[[Seen], Finding]) -> Judge:
    def over(evidence: Evidence) -> Finding:
        seen = evidence.get(step)
        return _untested(f"the step `{step}` was not made") if seen is None else judge(seen)

    return over


def accepted(step: Step) -> Judge:
    """Every answer of the step is a 2xx."""

    def judge(seen: Seen) -> Finding:
        bad = [reply.shown for reply in seen.replies if not reply.accepted]
        return _failed(f"answered {bad[0]}") if bad else _PASSED

    return _of(step, judge)


def answered_or_later(step: Step) -> Judge:
    """Every answer is a 2xx, or one that a sender tries again."""

    def judge(seen: Seen) -> Finding:
        bad = [reply.shown for reply in seen.replies if not reply.accepted and reply.status not in _LATER]
        return _failed(f"{len(bad)} of {len(seen.replies)} answered {bad[0]}") if bad else _PASSED

    return _of(step, judge)


def refused(step: Step) -> Judge:
    """The answer is a 4xx."""
    return _of(step, lambda seen: _PASSED if seen.reply.refused else _failed(f"answered {seen.reply.shown}"))


def problem(
    step: Step, code: ErrorCode, *, status: int, reason: str = "", expected_sequence: int | None = None
) -> Judge:
    """The answer is problem details with this status, code, and where given reason and sequence."""

    def judge(seen: Seen) -> Finding:
        found, reply = seen.reply.problem, seen.reply
        if found is None or (reply.status, found.code) != (status, code):
            return _failed(f"answered {reply.shown}, expected {status} {code.value} {reason}".rstrip())
        if reason and found.reason != reason:
            return _failed(f"the reason is {found.reason}, expected {reason}")
        if expected_sequence is not None and found.expected_sequence != expected_sequence:
            return _failed(f"expected_sequence is {found.expected_sequence}, expected {expected_sequence}")
        return _PASSED

    return _of(step, judge)


def auth_everywhere(evidence: Evidence) -> Finding:
    """Every forgery that was refused was refused as AUTH with 401; those that were taken fail elsewhere."""
    replies = [(step, evidence[step].reply) for step in FORGERIES if step in evidence and evidence[step].reply.refused]
    if not replies:
        return _untested("no forgery was refused")
    for step, reply in replies:
        found = reply.problem
        if reply.status != 401 or found is None or found.code is not ErrorCode.AUTH:
            return _failed(f"{step} was answered {reply.shown}, expected 401 AUTH as problem details")
    return _PASSED


def same_refusal(step: Step, like: Step) -> Judge:
    """Two forgeries are answered with one status: the listener did not look inside before it verified."""

    def judge(evidence: Evidence) -> Finding:
        if step not in evidence or like not in evidence:
            return _untested(f"the step `{step}` was not made")
        one, other = evidence[step].reply, evidence[like].reply
        if not one.refused or one.status != other.status:
            return _failed(f"a forgery that is no JSON was answered {one.shown}, one that is {other.shown}")
        return _PASSED

    return judge


def applied(step: Step, times: int) -> Judge:
    """The count rose by exactly this much."""

    def judge(seen: Seen) -> Finding:
        if seen.effects is None:
            return _untested("effects are not counted: give --effects")
        return _PASSED if seen.effects == times else _failed(f"applied {seen.effects} times, expected {times}")

    return _of(step, judge)


def kept(step: Step) -> Judge:
    """The count rose by no less than what was acknowledged."""

    def judge(seen: Seen) -> Finding:
        if seen.effects is None:
            return _untested("effects are not counted: give --effects")
        told = sum(reply.accepted for reply in seen.replies)
        return _PASSED if seen.effects >= told else _failed(f"{told} acknowledged, {seen.effects} applied")

    return _of(step, judge)


def unapplied(*steps: Step) -> Judge:
    """None of these steps changed the count."""

    def judge(evidence: Evidence) -> Finding:
        made = [(step, evidence[step].effects) for step in steps if step in evidence]
        if not made or any(effects is None for _, effects in made):
            return _untested("effects are not counted: give --effects" if made else "no such step was made")
        bad = [step for step, effects in made if effects]
        return _failed(f"applied: {', '.join(bad)}") if bad else _PASSED

    return judge


def never_redirects(evidence: Evidence) -> Finding:
    """No answer of the whole run is a 3xx."""
    for step, seen in evidence.items():
        for reply in seen.replies:
            if 300 <= reply.status < 400:
                return _failed(f"{step} was answered {reply.status}: a redirect is never followed")
    return _PASSED


def receipt_complete(step: Step) -> Judge:
    """Every 2xx carries a complete receipt."""

    def judge(seen: Seen) -> Finding:
        taken = [reply for reply in seen.replies if reply.accepted]
        if not taken:
            return _untested(f"the answer was {seen.reply.shown}")
        return next((bad for reply in taken if (bad := receipt_fault(reply)) is not None), _PASSED)

    return _of(step, judge)


def receipt_fault(reply: Reply) -> Finding | None:
    """Say what a 2xx lacks of being a complete receipt of its delivery; None when it is one."""
    if not reply.body:
        return _failed(f"answered {reply.status} with an empty body: nothing is proven")
    if reply.status != 200:
        return _failed(f"answered {reply.status}: a receipt comes with 200")
    try:
        receipt = parse_receipt(reply.body)
    except ContractError as error:
        return _failed(str(error))
    if missing := receipt.missing():
        return _failed(f"the receipt lacks {', '.join(missing)}")
    if receipt.contradicts_itself():
        return _failed("the receipt says `absent`, yet counts something")
    is_anothers = receipt.delivery_id is not None and receipt.delivery_id != reply.delivery_id
    return _failed("the receipt is of another delivery") if is_anothers else None


def receipts_equal(first: Step, *others: Step, are_marked: bool) -> Judge:
    """Every 2xx of these steps has the same bytes, and the later ones are marked as repeats where that is asked."""

    def judge(evidence: Evidence) -> Finding:
        if any(step not in evidence for step in (first, *others)):
            return _untested("not every step was made")
        taken = [reply for reply in evidence[first].replies if reply.accepted and reply.body]
        later = [reply for step in others for reply in evidence[step].replies if reply.accepted and reply.body]
        if not taken or (others and not later):
            return _untested("there was no receipt to compare")
        if len({reply.body for reply in (*taken, *later)}) != 1:
            return _failed("the receipts of one delivery differ")
        if are_marked and not all(reply.is_marked for reply in later):
            return _failed("a repeat lacks `waybill-repeat: true`")
        return _PASSED

    return judge


def said(step: Step, expected: Said) -> Judge:
    """The status query is answered so, for the question that was asked, and with a receipt where it is done."""

    def judge(seen: Seen) -> Finding:
        if seen.reply.status != 200:
            return _failed(f"answered {seen.reply.shown}")
        try:
            answer = parse_status_answer(seen.reply.body)
        except ContractError as error:
            return _failed(str(error))
        if answer.query_id != seen.reply.delivery_id:
            return _failed("the answer names another question")
        if answer.said is not expected:
            return _failed(f"said {answer.said}, expected {expected}")
        if expected is Said.DONE and (answer.receipt is None or not answer.receipt.complete()):
            return _failed("done, yet without a complete receipt")
        return _PASSED

    return _of(step, judge)
