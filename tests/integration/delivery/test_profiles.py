"""Destinations that cannot bear every repeat: what is sent, what is not sent again, what is left to people."""

import socket
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from fixtures.fake_listener import FakeListener, receipt
from fixtures.worker_world import Sent, Switch, WorkerWorld

from waybill.contracts.fabric import Profile, RepeatBound, RetryPolicy
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.05, cap_s=0.3, hot_attempts=3)
NEVER, BOUNDED = Profile.NON_IDEMPOTENT, Profile.BOUNDED_DEDUPLICATION


def states(world: WorkerWorld, sent: Sequence[Sent]) -> list[str | None]:
    known = world.states()
    return [known[str(one.delivery())]["state"] if str(one.delivery()) in known else None for one in sent]


def intents(world: WorkerWorld) -> list[dict[str, Any]]:
    with psycopg.connect(world.dsn, row_factory=psycopg.rows.dict_row) as connection:
        query = "SELECT * FROM delivery.intent WHERE tenant = %s ORDER BY record_offset"
        return connection.execute(query, (world.tenant,)).fetchall()


@pytest.mark.requirement("AM-1", "AT-1", "GW-12", "GW-13")
def test_an_answer_that_never_came_is_ambiguous_after_one_attempt_and_halts_its_aggregate_alone(
    world: WorkerWorld, destination: FakeListener
) -> None:
    destination.behave = lambda arrival: None if arrival.aggregate == "unit/sick" else receipt()
    world.add_destination(destination.url, profile=NEVER, retry=QUICK)
    sick = world.emit([("unit/sick", n) for n in (1, 2)])
    well = world.emit([("unit/well", n) for n in (1, 2, 3)])

    with world.running():
        eventually(lambda: states(world, well) == ["acknowledged"] * 3 and states(world, sick)[0] == "ambiguous", 40)

    assert [destination.attempts(one.delivery()) for one in (*sick, *well)] == [1, 0, 1, 1, 1]
    (outcome,) = [o for o in world.outcomes() if o["delivery_id"] == str(sick[0].delivery())]
    assert (outcome["error_code"], outcome["phase"], outcome["profile"]) == (
        "TRANSIENT_NETWORK",
        "during_sending",
        "non_idempotent",
    )
    assert world.states()[str(sick[0].delivery())]["error_code"] == "AMBIGUOUS_RESULT"
    assert all(one["answer"] for one in intents(world)), "an attempt is answered before its lane goes on"


@pytest.mark.requirement("GW-12", "AM-5")
def test_a_refused_connection_is_tried_again_until_somebody_listens(world: WorkerWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    listener = FakeListener(port=port)
    world.add_destination(listener.url, profile=NEVER, retry=QUICK)
    sent = world.emit([("unit/1", n) for n in (1, 2)])

    with world.running():
        eventually(lambda: any(row["attempt"] >= 2 for row in world.rows()), 40)
        with listener.serving():
            eventually(lambda: states(world, sent) == ["acknowledged"] * 2, 40)

    assert [listener.attempts(one.delivery()) for one in sent] == [1, 1]
    assert [(one["sends"], one["attempts"] > 1) for one in intents(world)] == [(1, True), (1, False)]


@pytest.mark.requirement("GW-12")
@pytest.mark.parametrize(("declared", "attempts", "state"), [({503}, 3, "acknowledged"), (set(), 1, "ambiguous")])
def test_a_refusal_for_now_is_tried_again_only_where_it_is_declared_to_mean_not_done(
    world: WorkerWorld, destination: FakeListener, declared: set[int], attempts: int, state: str
) -> None:
    destination.behave = lambda arrival: (503, {}, b"") if destination.attempts(arrival.delivery_id) < 3 else receipt()
    world.add_destination(destination.url, profile=NEVER, retry=QUICK, not_done=frozenset(declared))
    (sent,) = world.emit([("unit/1", 1)])

    with world.running():
        eventually(lambda: states(world, [sent]) == [state], 40)

    assert destination.attempts(sent.delivery()) == attempts


@pytest.mark.requirement("GW-11")
def test_a_bounded_destination_gets_no_attempt_beyond_its_count(world: WorkerWorld, destination: FakeListener) -> None:
    destination.behave = lambda _: None
    world.add_destination(destination.url, profile=BOUNDED, retry=QUICK, repeats=RepeatBound(max_attempts=3))
    (sent,) = world.emit([("unit/1", 1)])

    with world.running():
        eventually(lambda: states(world, [sent]) == ["ambiguous"], 40)

    assert destination.attempts(sent.delivery()) == 3


@pytest.mark.requirement("AT-2", "AM-1", "DC-12")
def test_a_repeat_of_the_relay_is_audited_and_not_sent(world: WorkerWorld, destination: FakeListener) -> None:
    world.add_destination(destination.url, profile=NEVER, retry=QUICK)
    again: dict[str, str] = {}

    def remember(headers: dict[str, str]) -> None:
        headers["ce_id"] = again.setdefault("ce_id", headers["ce_id"])

    (sent,) = world.emit([("unit/1", 1)], change=remember)
    with world.running():
        eventually(lambda: states(world, [sent]) == ["acknowledged"], 40)
        world.emit([("unit/1", 1)], change=remember)
        after = world.emit([("unit/1", 2)])
        eventually(lambda: states(world, after) == ["acknowledged"], 40)

    assert destination.attempts(sent.delivery()) == 1
    kinds = [o["kind"] for o in world.outcomes() if o["delivery_id"] == str(sent.delivery())]
    assert sorted(kinds) == ["attempt", "repeat"]


@pytest.mark.requirement("AM-1")
def test_nothing_is_sent_while_no_attempt_can_be_written_down(world: WorkerWorld, destination: FakeListener) -> None:
    switch = Switch(world.stack.postgres_host, world.stack.postgres_port)
    world.dsn = world.dsn.replace(f":{world.stack.postgres_port}/", f":{switch.port}/")
    world.add_destination(destination.url, profile=NEVER, retry=QUICK)
    first = world.emit([("unit/1", 1)])
    try:
        with world.running():
            eventually(lambda: states(world, first) == ["acknowledged"], 40)
            switch.cut()
            later = world.emit([(f"unit/{n}", 1) for n in range(2, 6)])
            eventually(lambda: world.committed() >= 1, 20)
            assert not [one for one in later if destination.attempts(one.delivery())]
            switch.mend()
            eventually(lambda: states(world, later) == ["acknowledged"] * 4, 60)
    finally:
        switch.close()

    assert [destination.attempts(one.delivery()) for one in later] == [1] * 4
