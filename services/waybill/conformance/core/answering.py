"""What one answer says to the fabric at the level a listener declares: a proof, a refusal, or neither.

The same words as in a scorecard, for one delivery instead of a run. A refusal may be right and is still no proof that
anything was done; an answer that is neither a receipt nor a problem is a fault of the listener.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.conformance.core.evidence import Reply
from waybill.conformance.core.judging import receipt_fault
from waybill.contracts.fabric import Level
from waybill.contracts.receipt import ReceiptStatus, parse_receipt

__all__ = ["Meaning", "Verdict", "judge_answer", "judge_repeat"]

_LATER: Final = frozenset({425, 429, 503})


class Meaning(StrEnum):
    """What an answer is."""

    #: A complete receipt: the delivery is closed.
    RECEIPT = "receipt"
    #: A 2xx without one, from a listener that declares none: closed where `proof: status` is declared.
    ACKNOWLEDGED = "acknowledged"
    #: A 2xx without the receipt that its level asks for: nothing is closed.
    UNPROVEN = "unproven"
    #: A refusal in problem details with one of the codes.
    PROBLEM = "problem"
    #: A refusal without them, from a listener that declares none.
    REFUSED = "refused"
    #: A refusal without the problem details that its level asks for.
    UNCODED = "uncoded"
    #: A 3xx: never followed, never a success.
    REDIRECT = "redirect"
    #: A repeat that is answered otherwise than the first.
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one answer means."""

    meaning: Meaning
    #: It keeps the wire at the declared level, whether it says yes or no.
    is_valid: bool
    #: The sender may regard the command as done.
    is_done: bool
    #: For people.
    why: str


def judge_answer(reply: Reply, level: Level) -> Verdict:
    """Say what a whole answer means at a level."""
    if reply.accepted:
        fault = receipt_fault(reply)
        if fault is None:
            is_absent = parse_receipt(reply.body).status is ReceiptStatus.ABSENT
            why = "it is not there: that closes a delivery only where the destination's `absenceProves` names its type"
            why = why if is_absent else "a complete receipt"
            return Verdict(meaning=Meaning.RECEIPT, is_valid=True, is_done=not is_absent, why=why)
        if level is Level.L0:
            why = "a 2xx closes a delivery where the destination declares `proof: status`"
            return Verdict(meaning=Meaning.ACKNOWLEDGED, is_valid=True, is_done=True, why=why)
        return Verdict(meaning=Meaning.UNPROVEN, is_valid=False, is_done=False, why=fault.why)
    if 300 <= reply.status < 400:
        why = "a redirect is never followed: give the URL that answers itself"
        return Verdict(meaning=Meaning.REDIRECT, is_valid=False, is_done=False, why=why)
    return _refusal(reply, level)


def _refusal(reply: Reply, level: Level) -> Verdict:
    problem = reply.problem
    if problem is None:
        if level is Level.L0:
            return Verdict(meaning=Meaning.REFUSED, is_valid=True, is_done=False, why=f"refused with {reply.status}")
        why = f"{reply.status} without problem details (application/problem+json) of one of the fourteen codes"
        return Verdict(meaning=Meaning.UNCODED, is_valid=False, is_done=False, why=why)
    if problem.reason == "unknown_code":
        why = "its `type` is none of the fourteen codes"
        return Verdict(meaning=Meaning.UNCODED, is_valid=False, is_done=False, why=why)
    later = "; it is tried again later" if reply.status in _LATER else ""
    why = f"{problem.code.value}, {problem.reason}{later}"
    return Verdict(meaning=Meaning.PROBLEM, is_valid=True, is_done=False, why=why)


def judge_repeat(first: Reply, again: Reply, level: Level) -> Verdict:
    """Say what the answer to a repeat means beside the first one: the stored receipt, marked, from L1 on."""
    verdict = judge_answer(again, level)
    if level is Level.L0 or verdict.meaning is not Meaning.RECEIPT or not first.accepted:
        return verdict
    if again.body != first.body:
        why = "the receipts of one delivery differ"
    elif not again.is_marked:
        why = "a repeat lacks `waybill-repeat: true`"
    else:
        why = "the stored receipt, marked"
        return Verdict(meaning=Meaning.RECEIPT, is_valid=True, is_done=verdict.is_done, why=why)
    return Verdict(meaning=Meaning.DIFFERS, is_valid=False, is_done=False, why=why)
