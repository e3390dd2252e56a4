"""What people decide on the command line, carried by the relay of the control database to a worker on the real stack."""

from collections.abc import Callable
from typing import Any

import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.worker_world import Sent, WorkerWorld

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import GapResolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.fabric import RetryPolicy
from waybill.contracts.problem import CONTENT_TYPE, Problem, render_problem
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.05, cap_s=0.3, hot_attempts=1)
Run = Callable[..., Any]


@pytest.fixture
def run(people: Run) -> Run:
    """Run a command line that decides; returns the decisions it prints."""

    def call(*words: str, code: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = people(*words, code=code)["decisions"]
        return found

    return call


def state(world: WorkerWorld, sent: Sent) -> tuple[str, str | None]:
    found = world.states().get(str(sent.delivery()))
    return ("unsaid", None) if found is None else (found["state"], found["detail"])


@pytest.mark.requirement("DC-2", "DC-13", "DC-21", "RS-2")
def test_people_cancel_redrive_and_skip(world: WorkerWorld, destination: FakeListener, run: Run) -> None:
    busy, refusals = {"subject/a"}, {("subject/b", 1), ("subject/c", 1)}

    def behave(arrival: Arrival) -> Reply:
        if arrival.aggregate in busy:
            return 503, {}, b""
        if (arrival.aggregate, arrival.sequence) in refusals:
            return 409, {}, b""
        return receipt()

    destination.behave = behave
    world.add_destination(destination.url, retry=QUICK)
    a1, a2, a3 = world.emit([("subject/a", n) for n in (1, 2, 3)])
    b1, b2 = world.emit([("subject/b", n) for n in (1, 2)])
    c1, c2 = world.emit([("subject/c", n) for n in (1, 2)])
    why = ("--why", "asked for by its owner", "--by", "ada", "--wait", "40")

    with world.running():
        eventually(lambda: {state(world, one)[0] for one in (b1, c1)} == {"failed"}, 40)
        (cancelled,) = run("cancel", str(a2.delivery()), *why)
        assert (cancelled["verdict"], cancelled["decided_by"], cancelled["aggregate"]) == (
            "applied",
            "ada",
            "subject/a",
        )
        assert [again["decision_id"] for again in run("cancel", str(a2.delivery()), *why)] == [cancelled["decision_id"]]
        (late,) = run("cancel", str(a1.delivery()), *why, code=1)
        assert (late["verdict"], late["detail"]) == ("void", "may_have_been_sent")

        refusals.discard(("subject/b", 1))
        run("deliveries", "redrive", str(b1.delivery()), *why)
        run("deliveries", "skip", str(c1.delivery()), *why)
        busy.clear()
        for sent in (a1, a3, b1, b2, c2):
            eventually(lambda sent=sent: state(world, sent)[0] == "acknowledged", 40)
        (stale,) = run("deliveries", "redrive", str(b1.delivery()), *why, "--version", "1", code=0)
        assert stale["verdict"] == "applied", "the same decision again is the one that was carried out"
        (void,) = run("deliveries", "redrive", str(b1.delivery()), *why, "--version", "2", code=1)
        assert (void["verdict"], void["detail"]) == ("void", "version_moved")

        lost = ("--hole", world.tenant, "crm", "subject/d", "2")
        (nothing,) = run("deliveries", "skip", *lost, *why, code=1)
        assert nothing["detail"] == "nothing_waits_behind"

    assert (state(world, a2), state(world, c1)[0]) == (("failed", "cancelled"), "failed")
    assert destination.by_aggregate()["subject/a"] == [1, 0, 3], "the second was never sent; its number was told"
    assert destination.by_aggregate()["subject/c"] == [1, 0, 2]
    listed = run("deliveries", "decisions", "--tenant", world.tenant)
    assert {(one["kind"], one["verdict"]) for one in listed} == {
        ("cancel", "applied"),
        ("cancel", "void"),
        ("redrive", "applied"),
        ("redrive", "void"),
        ("skip", "applied"),
        ("skip", "void"),
    }
    audited = {o["detail"]: o["evidence"] for o in world.outcomes() if o["kind"] == "transition"}
    assert audited["cancelled"] == f"urn:waybill:decision:{cancelled['decision_id']}"
    assert {"redriven", "skipped", "decision_void:may_have_been_sent", "decision_void:version_moved"} <= set(audited)


@pytest.mark.requirement("AM-2", "AM-6")
def test_people_acknowledge_what_they_have_seen_done(world: WorkerWorld, destination: FakeListener, run: Run) -> None:
    destination.behave = lambda arrival: (409, {}, b"") if arrival.sequence == 1 else receipt()
    world.add_destination(destination.url, retry=QUICK)
    first, second = world.emit([("subject/a", 1), ("subject/a", 2)])
    digest = f"sha256:{'9f' * 32}"
    seen = ("--evidence", "ticket:4711", "--digest", digest, "--why", "done by hand", "--by", "ada", "--wait", "40")

    with world.running():
        eventually(lambda: state(world, first)[0] == "failed", 40)
        (decided,) = run("deliveries", "acknowledge", str(first.delivery()), *seen)
        eventually(lambda: state(world, second)[0] == "acknowledged", 40)

    assert (decided["verdict"], decided["evidence"], decided["evidence_digest"]) == ("applied", "ticket:4711", digest)
    assert state(world, first) == ("acknowledged", "acknowledged_by_people")
    assert world.states()[str(first.delivery())]["proof_level"] is None
    assert destination.by_aggregate()["subject/a"] == [1, 0, 2]
    (told,) = [o for o in world.outcomes() if o["detail"] == "acknowledged_by_people"]
    assert (told["evidence"], told["digest"]) == (f"urn:waybill:decision:{decided['decision_id']}", digest)


@pytest.mark.requirement("DC-13")
def test_people_skip_a_number_whose_record_was_lost(world: WorkerWorld, destination: FakeListener, run: Run) -> None:
    told: list[int] = []

    def behave(arrival: Arrival) -> Reply:
        if arrival.sequence == 0:
            found = parse(arrival.body)
            assert isinstance(found, GapResolution)
            told.extend(entry.sequence for entry in found.entries)
        elif arrival.sequence == 3 and told != [2]:
            gap = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="gap", status=425, expected_sequence=2)
            return 425, {"content-type": CONTENT_TYPE}, render_problem(gap)
        return receipt()

    destination.behave = behave
    world.add_destination(destination.url, retry=QUICK)
    first, third = world.emit([("subject/a", 1), ("subject/a", 3)])
    with world.running():
        eventually(lambda: state(world, first)[0] == "acknowledged" and state(world, third) == ("retrying", "gap"), 40)
        hole = ("--hole", world.tenant, "crm", "subject/a", "2")
        (decided,) = run("deliveries", "skip", *hole, "--why", "lost with its database", "--wait", "40")
        eventually(lambda: state(world, third)[0] == "acknowledged", 40)

    assert (decided["verdict"], decided["sequence"], told) == ("applied", 2, [2])
