"""What one answer means at a declared level, as a table."""

import json

import pytest

from waybill.conformance.core.answering import Meaning, judge_answer, judge_repeat
from waybill.conformance.core.evidence import Reply
from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import Level
from waybill.contracts.problem import CONTENT_TYPE, Problem, render_problem

ID = "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
COMPLETE = {"status": "done", "delivery_id": ID, "source_version": "1", "count": 1, "evidence": "e"}


def taken(*, is_marked: bool = False, status: int = 200, status_word: str = "done", **changes: object) -> Reply:
    body = json.dumps({**COMPLETE, "status": status_word, **changes}).encode()
    return Reply(status=status, body=body, content_type="application/json", is_marked=is_marked, delivery_id=ID)


def no(body: bytes, status: int = 422, kind: str = CONTENT_TYPE) -> Reply:
    return Reply(status=status, body=body, content_type=kind, delivery_id=ID)


BLOCKED = render_problem(Problem(code=ErrorCode.POLICY_BLOCK, reason="legal_hold"))
INVENTED = b'{"type": "urn:waybill:error:FIFTEENTH", "reason": "new"}'


@pytest.mark.parametrize(
    ("reply", "level", "meaning", "is_valid", "is_done"),
    [
        (taken(), Level.L1, Meaning.RECEIPT, True, True),
        (taken(), Level.L0, Meaning.RECEIPT, True, True),
        # A 2xx proves by its receipt only, unless no receipt was declared.
        (Reply(status=204, delivery_id=ID), Level.L1, Meaning.UNPROVEN, False, False),
        (Reply(status=204, delivery_id=ID), Level.L0, Meaning.ACKNOWLEDGED, True, True),
        (taken(evidence=""), Level.L1, Meaning.UNPROVEN, False, False),
        (taken(delivery_id="another"), Level.L1, Meaning.UNPROVEN, False, False),
        (taken(status=202), Level.L1, Meaning.UNPROVEN, False, False),
        # That it is not there is no proof by itself.
        (taken(status_word="absent", count=0), Level.L1, Meaning.RECEIPT, True, False),
        (taken(status_word="absent"), Level.L1, Meaning.UNPROVEN, False, False),
        # A refusal keeps the wire when it names a code; it is never done.
        (no(BLOCKED), Level.L1, Meaning.PROBLEM, True, False),
        (no(BLOCKED), Level.L0, Meaning.PROBLEM, True, False),
        (no(BLOCKED, kind="application/json"), Level.L1, Meaning.UNCODED, False, False),
        (no(INVENTED), Level.L1, Meaning.UNCODED, False, False),
        (no(b"go away", kind="text/plain"), Level.L1, Meaning.UNCODED, False, False),
        (no(b"go away", kind="text/plain"), Level.L0, Meaning.REFUSED, True, False),
        # A redirect is neither, at any level, whatever its body says.
        (taken(status=307), Level.L0, Meaning.REDIRECT, False, False),
    ],
)
@pytest.mark.requirement("AM-4", "DC-3", "DC-17")
def test_an_answer_means_what_its_level_makes_of_it(
    reply: Reply, level: Level, meaning: Meaning, is_valid: bool, is_done: bool
):
    verdict = judge_answer(reply, level)

    assert (verdict.meaning, verdict.is_valid, verdict.is_done) == (meaning, is_valid, is_done)
    assert verdict.why


@pytest.mark.parametrize(
    ("again", "level", "meaning"),
    [
        (taken(is_marked=True), Level.L1, Meaning.RECEIPT),
        (taken(is_marked=False), Level.L1, Meaning.DIFFERS),
        (taken(is_marked=True, evidence="other"), Level.L1, Meaning.DIFFERS),
        (taken(is_marked=False, evidence="other"), Level.L0, Meaning.RECEIPT),
        (no(BLOCKED), Level.L1, Meaning.PROBLEM),
    ],
)
@pytest.mark.requirement("GW-4")
def test_a_repeat_is_held_to_the_stored_receipt(again: Reply, level: Level, meaning: Meaning):
    assert judge_repeat(taken(), again, level).meaning is meaning
