"""The verdict of a conformance run, as a table: what was seen, and what each check says of it."""

import json
from xml.etree import ElementTree as ET

import pytest

from waybill.conformance.core.checks import BURST, CHECKS, checks_for
from waybill.conformance.core.evidence import FORGERIES, Reply, Seen, Step
from waybill.conformance.core.judging import Result
from waybill.conformance.core.scorecard import Scorecard, render_junit, score
from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import Level, Profile
from waybill.contracts.problem import CONTENT_TYPE, Problem, render_problem

ID = "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
RECEIPT = {"status": "done", "delivery_id": ID, "source_version": "1", "count": 1, "evidence": "e"}
DURABLE = Profile.DURABLE_IDEMPOTENT


def taken(*, body: bytes = json.dumps(RECEIPT).encode(), marked: bool = False, status: int = 200) -> Reply:
    return Reply(status=status, body=body, content_type="application/json", is_marked=marked, delivery_id=ID)


def no(code: ErrorCode, reason: str, status: int = 0, expected: int | None = None) -> Reply:
    problem = Problem(code=code, reason=reason, status=status, expected_sequence=expected)
    return Reply(status=problem.status, body=render_problem(problem), content_type=CONTENT_TYPE, delivery_id=ID)


def seen(*replies: Reply, effects: int | None = 0) -> Seen:
    return Seen(replies=replies, effects=effects)


def said(status: str, **more: object) -> Reply:
    return taken(body=json.dumps({"query_id": ID, "delivery_id": ID, "status": status, **more}).encode())


AUTH = no(ErrorCode.AUTH, "signature_mismatch")
CONFLICT = no(ErrorCode.VERSION_CONFLICT, "body_differs")
RIGHT: dict[Step, Seen] = {
    Step.FIRST: seen(taken(), effects=1),
    Step.REPEAT: seen(taken(marked=True)),
    Step.OTHER_BODY: seen(CONFLICT),
    **{step: seen(AUTH) for step in FORGERIES},
    Step.KEY_LIST: seen(taken(), effects=1),
    Step.RAW_BYTES: seen(taken(), effects=1),
    Step.OTHER_TENANT: seen(no(ErrorCode.AUTHZ, "tenant")),
    Step.OTHER_DESTINATION: seen(no(ErrorCode.AUTHZ, "destination")),
    Step.EXPIRED: seen(no(ErrorCode.POLICY_BLOCK, "expired")),
    Step.UNSUPPORTED: seen(no(ErrorCode.PERMANENT_UNSUPPORTED, "command_type")),
    Step.BLOCKED: seen(no(ErrorCode.POLICY_BLOCK, "legal_hold")),
    Step.CONCURRENT: seen(taken(), taken(marked=True), no(ErrorCode.SOURCE_UNAVAILABLE, "store"), effects=1),
    Step.OPERATION: seen(taken(), effects=1),
    Step.OPERATION_AGAIN: seen(taken(marked=True)),
    Step.GAP: seen(no(ErrorCode.SOURCE_UNAVAILABLE, "gap", 425, 2)),
    Step.GAP_FILLED: seen(taken(), taken(), effects=2),
    Step.OLDER: seen(no(ErrorCode.VERSION_CONFLICT, "older_sequence")),
    Step.FINAL: seen(taken(), taken(), taken(), effects=2),
    Step.DEFERRED: seen(taken(), taken(), effects=1),
    Step.DEFERRED_CAME: seen(taken(), effects=1),
    Step.ASKED_DONE: seen(said("done", receipt=RECEIPT)),
    Step.ASKED_UNKNOWN: seen(said("not_done")),
    Step.KILLED_AFTER: seen(taken(), effects=1),
    Step.REPEAT_AFTER_KILL: seen(taken(marked=True)),
    Step.KILLED_AMID: seen(taken(), Reply(status=0), effects=2),
    Step.REPEATS_AMID: seen(*[taken()] * BURST, effects=BURST),
}


def outcome(card: Scorecard, result: Result) -> set[str]:
    return {line.check.name for line in card.lines if line.finding.result is result}


def test_a_listener_that_keeps_everything_passes_everything():
    card = score(RIGHT, Level.L3, DURABLE)

    assert outcome(card, Result.PASSED) == {check.name for check in CHECKS}
    assert card.reached is Level.L3


@pytest.mark.parametrize(
    ("step", "instead", "failing"),
    [
        (Step.REPEAT, seen(taken(marked=True), effects=1), {"repeat_unapplied"}),
        (Step.REPEAT, seen(taken(marked=False)), {"repeat_receipt"}),
        (Step.REPEAT, seen(taken(body=b'{"status":"done"}', marked=True)), {"repeat_receipt"}),
        (Step.REPEAT, seen(CONFLICT), {"repeat"}),
        (Step.OTHER_BODY, seen(taken(), effects=0), {"other_body"}),
        (Step.OTHER_BODY, seen(CONFLICT, effects=1), {"other_body_unapplied"}),
        (Step.LATE_CLOCK, seen(taken(), effects=1), {"late_clock", "forgeries_unapplied"}),
        (Step.LATE_CLOCK, seen(Reply(status=500)), {"late_clock"}),
        (Step.UNSIGNED, seen(Reply(status=401)), {"auth"}),
        (Step.FORGED_GARBAGE, seen(no(ErrorCode.VALIDATION, "envelope")), {"verifies_first", "auth"}),
        (Step.RAW_BYTES, seen(AUTH), {"raw_bytes"}),
        (Step.CONCURRENT, seen(taken(), taken(), effects=2), {"concurrent_once"}),
        (Step.CONCURRENT, seen(taken(), Reply(status=500), effects=1), {"concurrent"}),
        (Step.CONCURRENT, seen(taken(), taken(body=b'{"status":"done"}'), effects=1), {"concurrent_receipt"}),
        (Step.OPERATION_AGAIN, seen(taken(), effects=1), {"operation_once"}),
        (Step.OTHER_TENANT, seen(AUTH), {"tenant"}),
        (Step.OTHER_DESTINATION, seen(taken(), effects=1), {"destination", "foreign_unapplied"}),
        (Step.KILLED_AFTER, seen(taken(), effects=0), {"committed_first"}),
        (Step.REPEAT_AFTER_KILL, seen(taken(marked=True), effects=1), {"remembers_once"}),
        (Step.KILLED_AMID, seen(taken(), taken(), effects=1), {"amid_kept"}),
        (Step.REPEATS_AMID, seen(*[taken()] * BURST, effects=BURST - 1), {"amid_once"}),
        (Step.GAP, seen(no(ErrorCode.SOURCE_UNAVAILABLE, "gap", 425, 3)), {"gap"}),
        (Step.GAP, seen(no(ErrorCode.SOURCE_UNAVAILABLE, "later", 425, 2)), {"gap"}),
        (Step.OLDER, seen(taken(), effects=1), {"older", "older_unapplied"}),
        (Step.BLOCKED, seen(taken(), effects=1), {"policy", "policy_unapplied"}),
        (Step.ASKED_DONE, seen(said("done")), {"query_done"}),
        (Step.ASKED_DONE, seen(said("not_done")), {"query_done"}),
        (Step.ASKED_UNKNOWN, seen(Reply(status=404)), {"query_not_done"}),
        (Step.ASKED_UNKNOWN, seen(said("not_done"), effects=1), {"query_unapplied"}),
    ],
)
def test_each_fault_is_named_by_its_check(step: Step, instead: Seen, failing: set[str]):
    card = score({**RIGHT, step: instead}, Level.L3, DURABLE)

    assert outcome(card, Result.FAILED) == failing


@pytest.mark.parametrize("field", ["status", "source_version", "count", "evidence"])
@pytest.mark.requirement("DC-17")
def test_a_receipt_that_lacks_one_thing_fails(field: str):
    body = json.dumps({name: value for name, value in RECEIPT.items() if name != field}).encode()

    card = score({**RIGHT, Step.FIRST: seen(taken(body=body), effects=1)}, Level.L1, DURABLE)

    assert "receipt" in outcome(card, Result.FAILED)


def test_what_is_not_counted_is_not_tested():
    blind = {step: Seen(replies=found.replies, effects=None) for step, found in RIGHT.items()}

    card = score(blind, Level.L3, DURABLE)

    assert outcome(card, Result.FAILED) == set()
    assert outcome(card, Result.NOT_TESTED) >= {"applies", "concurrent_once", "committed_first", "forgeries_unapplied"}
    assert card.reached is None


def test_what_was_not_made_is_not_tested():
    kills = {Step.KILLED_AFTER, Step.REPEAT_AFTER_KILL, Step.KILLED_AMID, Step.REPEATS_AMID}
    card = score({step: found for step, found in RIGHT.items() if step not in kills}, Level.L1, DURABLE)

    assert outcome(card, Result.NOT_TESTED) == {
        "committed_first", "remembers", "remembers_once", "amid_kept", "amid_repeats", "amid_once", "remembers_receipt",
    }  # fmt: skip


def test_who_takes_nothing_has_proven_nothing_by_refusing():
    card = score({step: seen(AUTH) for step in RIGHT}, Level.L3, DURABLE)

    assert outcome(card, Result.FAILED) == {"accepts"}
    assert outcome(card, Result.PASSED) == {"never_redirects"}


def test_a_redirect_is_named():
    card = score({Step.FIRST: seen(Reply(status=307))}, Level.L0, DURABLE)

    assert outcome(card, Result.FAILED) == {"accepts", "never_redirects"}


def test_a_profile_is_asked_for_what_it_claims():
    forgetful = {check.name for check in checks_for(Level.L3, Profile.NON_IDEMPOTENT)}
    bounded = {check.name for check in checks_for(Level.L3, Profile.BOUNDED_DEDUPLICATION)}

    assert "repeat_unapplied" not in forgetful
    assert "committed_first" not in bounded
    assert {"repeat_unapplied", "concurrent_once"} <= bounded


def test_a_level_is_reached_only_over_those_below():
    card = score({**RIGHT, Step.GAP: seen(taken(), effects=1)}, Level.L3, DURABLE)

    assert card.reached is Level.L1


def test_junit_counts_what_failed_and_what_was_not_tested():
    evidence = {**RIGHT, Step.UNSIGNED: seen(taken(), effects=None)}

    document = ET.fromstring(render_junit(score(evidence, Level.L1, DURABLE)))

    suite = document.find("testsuite[@name='L0']")
    assert suite is not None
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    assert [case.get("name", "").partition(":")[0] for case in suite.iter("testcase") if len(case)] == [
        "unsigned",
        "forgeries_unapplied",
    ]
