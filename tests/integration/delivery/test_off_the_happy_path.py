"""What is not acknowledged at once: retries, rows, halts, expiry, poison."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.worker_world import WorkerWorld

from waybill.contracts.fabric import RetryPolicy, Timeouts
from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.05, cap_s=0.3, hot_attempts=1)


@pytest.mark.requirement("RS-6", "GW-2", "GW-3", "GW-9", "DC-16", "DC-19")
def test_a_head_that_fails_is_retried_from_its_row_and_holds_its_followers_only(
    world: WorkerWorld, destination: FakeListener
) -> None:
    failures = {"n": 0}

    def behave(arrival: Arrival) -> Reply:
        if arrival.aggregate == "subject/sick" and arrival.sequence == 1 and failures["n"] < 5:
            failures["n"] += 1
            return 503, {}, b""
        return receipt()

    destination.behave = behave
    world.add_destination(destination.url, retry=QUICK)
    sick = world.emit([("subject/sick", n) for n in (1, 2, 3)])
    healthy = world.emit([("subject/well", n) for n in (1, 2, 3)])

    with world.running():
        eventually(lambda: len(world.states()) == 6 and _all(world, "acknowledged"), 40)

    first = sick[0].delivery()
    assert destination.by_aggregate() == {"subject/sick": [1, 2, 3], "subject/well": [1, 2, 3]}
    assert destination.attempts(first) == 6
    bodies = {arrival.body for arrival in destination.arrivals if arrival.delivery_id == str(first)}
    assert len(bodies) == 1
    assert _signed_apart(destination, first), "every attempt has a timestamp and a signature of its own"
    outcomes = [o for o in world.outcomes() if o["delivery_id"] == str(first)]
    moves = sorted(o["version"] for o in outcomes if o["outcome_id"])
    assert moves == list(range(1, len(moves) + 1)), "versions rise by one"
    assert [o["kind"] for o in outcomes].count("attempt") == 6
    rows = world.rows()
    assert {row["state"] for row in rows} == {"acknowledged"}
    assert not any(row["blocks"] or row["pending_outcome"] for row in rows)
    assert not {str(row["delivery_id"]) for row in rows} & {str(command.delivery()) for command in healthy}


@pytest.mark.requirement("GW-5", "ET-2", "RS-8")
def test_a_refusal_ends_failed_and_halts_its_aggregate_alone(world: WorkerWorld, destination: FakeListener) -> None:
    destination.behave = lambda arrival: (
        (409, {}, b"") if (arrival.aggregate, arrival.sequence) == ("subject/a", 1) else receipt()
    )
    world.add_destination(destination.url, retry=QUICK)
    a = world.emit([("subject/a", n) for n in (1, 2, 3)])
    world.emit([("subject/b", n) for n in (1, 2, 3)])

    with world.running():
        eventually(lambda: len(world.states()) == 4, 30)
        eventually(lambda: world.committed() >= 6, 10)

    states = world.states()
    assert states[str(a[0].delivery())]["state"] == "failed"
    assert states[str(a[0].delivery())]["error_code"] == "VERSION_CONFLICT"
    assert destination.by_aggregate() == {"subject/a": [1], "subject/b": [1, 2, 3]}
    assert [(r["sequence"], r["state"], r["blocks"]) for r in world.rows()] == [
        (1, "failed", True),
        (2, "queued", True),
        (3, "queued", True),
    ]


@pytest.mark.requirement("DC-8")
def test_an_expired_delivery_is_never_sent_and_visible_to_its_owner(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    (sent,) = world.emit([("subject/a", 1)], expires_at=datetime.now(UTC) - timedelta(seconds=1))

    with world.running():
        state = eventually(lambda: world.states().get(str(sent.delivery())), 30)

    assert (state["state"], state["error_code"], state["detail"]) == ("failed", "POLICY_BLOCK", "expired")
    assert state["owner"] == "team-crm"
    assert destination.attempts(sent.delivery()) == 0


def test_an_expiry_after_a_byte_may_have_left_is_ambiguous(world: WorkerWorld, destination: FakeListener) -> None:
    destination.behave = lambda _: None
    world.add_destination(destination.url, retry=QUICK)
    (sent,) = world.emit([("subject/a", 1)], expires_at=datetime.now(UTC) + timedelta(seconds=6))

    with world.running():
        eventually(lambda: destination.arrivals, 30)
        state = eventually(lambda: _in(world, sent.delivery(), "ambiguous"), 30)

    assert (state["error_code"], state["detail"]) == ("AMBIGUOUS_RESULT", "expired")


@pytest.mark.requirement("DC-3", "DC-17")
def test_a_bare_200_closes_nothing(world: WorkerWorld, destination: FakeListener) -> None:
    destination.behave = lambda _: (200, {}, b"")
    world.add_destination(destination.url)
    (sent,) = world.emit([("subject/a", 1)])

    with world.running():
        state = eventually(lambda: world.states().get(str(sent.delivery())), 30)

    assert (state["state"], state["error_code"]) == ("failed", "VALIDATION")


def test_an_attempt_slower_than_two_seconds_gets_its_row_so_that_the_offset_moves_on(
    world: WorkerWorld, destination: FakeListener
) -> None:
    destination.delay_s = lambda arrival: 8.0 if arrival.aggregate == "subject/slow" else 0.0
    world.add_destination(destination.url, timeouts=Timeouts(total_s=20))
    (slow,) = world.emit([("subject/slow", 1)])
    world.emit([(f"subject/{n}", 1) for n in range(10)])

    with world.running():
        eventually(lambda: world.committed() >= 11, 20)
        assert str(slow.delivery()) not in world.states()
        assert [(row["state"], row["sent"]) for row in world.rows()] == [("queued", True)]
        eventually(lambda: _in(world, slow.delivery(), "acknowledged"), 20)

    assert destination.attempts(slow.delivery()) == 1
    assert [(row["state"], row["blocks"]) for row in world.rows()] == [("acknowledged", False)]


@pytest.mark.requirement("AT-2")
def test_a_repeat_of_the_relay_is_one_more_audited_entry_and_moves_nothing(
    world: WorkerWorld, destination: FakeListener
) -> None:
    destination.behave = lambda _: (409, {}, b"")
    world.add_destination(destination.url)
    identity = {}

    def same(headers: dict[str, str]) -> None:
        identity.setdefault("id", headers["ce_id"])
        headers["ce_id"] = identity["id"]

    world.emit([("subject/a", 1)], change=same)
    with world.running():
        eventually(lambda: len(world.states()) == 1, 30)
        world.emit([("subject/a", 1)], change=same)
        eventually(lambda: any(o["kind"] == "repeat" for o in world.outcomes()), 20)

    assert len(destination.arrivals) == 1
    assert len(world.rows()) == 1
    (repeat,) = [o for o in world.outcomes() if o["kind"] == "repeat"]
    assert (repeat["outcome_id"], repeat["state_before"], repeat["state_after"]) == (None, "failed", "failed")
    assert repeat["attempt_id"]


@pytest.mark.requirement("GW-3", "AT-2")
def test_a_copy_right_behind_its_original_is_signed_in_another_second(
    world: WorkerWorld, destination: FakeListener
) -> None:
    command_id = CommandId(uuid.uuid4())
    delivery = delivery_id(command_id, DestinationName("crm"))
    world.add_destination(destination.url)
    world.emit([("subject/a", 1), ("subject/a", 1)], change=lambda headers: headers.update(ce_id=str(command_id)))

    with world.running():
        eventually(lambda: destination.attempts(delivery) == 2, 30)

    assert _signed_apart(destination, delivery)


def _signed_apart(destination: FakeListener, delivery: object) -> bool:
    arrivals = [arrival for arrival in destination.arrivals if arrival.delivery_id == str(delivery)]
    stamps = {arrival.headers["webhook-timestamp"] for arrival in arrivals}
    signatures = {arrival.headers["webhook-signature"] for arrival in arrivals}
    return len(stamps) == len(signatures) == len(arrivals) > 1


def _in(world: WorkerWorld, delivery: object, state: str) -> dict[str, object] | None:
    found = world.states().get(str(delivery))
    return found if found is not None and found["state"] == state else None


def _all(world: WorkerWorld, state: str) -> bool:
    return {found["state"] for found in world.states().values()} == {state}
