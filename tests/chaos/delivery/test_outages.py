"""Listeners, databases and workers go away and come back."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.worker_world import ShiftedClock, Switch, WorkerWorld

from waybill.contracts.fabric import RetryPolicy
from waybill.testing.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(200)]
QUICK = RetryPolicy(base_s=0.05, cap_s=0.3, hot_attempts=1)


def _acknowledged(world: WorkerWorld) -> set[str]:
    return {key for key, state in world.states().items() if state["state"] == "acknowledged"}


@pytest.mark.requirement("GW-17", "GW-9", "RS-6")
def test_a_listener_down_for_an_hour_gets_everything_in_order_and_its_neighbour_never_waits(
    world: WorkerWorld, destination: FakeListener
) -> None:
    clock = ShiftedClock()
    is_up = {"sick": False}

    def behave(_: Arrival) -> Reply | None:
        return receipt() if is_up["sick"] else (503, {}, b"")

    with FakeListener(behave=behave).serving() as sick:
        world.add_destination(sick.url, "sick", retry=RetryPolicy(base_s=1.0, cap_s=600.0, hot_attempts=1))
        world.add_destination(destination.url, "well")
        plan = [(f"subject/{n % 8}", n // 8 + 1) for n in range(40)]
        with world.running(clock=clock, with_intake=False):
            sent = world.emit(plan, destinations=["sick", "well"])
            eventually(lambda: {str(s.delivery("well")) for s in sent} <= _acknowledged(world), 40)
            eventually(lambda: world.committed("sick") >= len(plan), 40)
            for _ in range(6):
                clock.advance(timedelta(minutes=10))
                later = len(sick.arrivals)
                eventually(lambda seen=later: len(sick.arrivals) > seen, 20)
            assert not {str(s.delivery("sick")) for s in sent} & _acknowledged(world)
            is_up["sick"] = True
            clock.advance(timedelta(minutes=10))
            eventually(lambda: {str(s.delivery("sick")) for s in sent} <= _acknowledged(world), 60)

    assert sick.by_aggregate() == {f"subject/{n}": [1, 2, 3, 4, 5] for n in range(8)}


@pytest.fixture
def switch(world: WorkerWorld) -> Iterator[Switch]:
    """A cut-able way to the control database."""
    found = Switch(world.stack.postgres_host, world.stack.postgres_port)
    world.dsn = world.dsn.replace(f":{world.stack.postgres_port}/", f":{found.port}/")
    yield found
    found.close()


@pytest.mark.requirement("DC-22", "RS-3")
def test_while_the_database_is_away_happy_lanes_go_on_and_the_others_wait_for_their_row(
    world: WorkerWorld, destination: FakeListener, switch: Switch
) -> None:
    failures = {"n": 0}

    def behave(arrival: Arrival) -> Reply | None:
        if arrival.aggregate == "subject/sick" and failures["n"] < 4:
            failures["n"] += 1
            return 503, {}, b""
        return receipt()

    destination.behave = behave
    world.add_destination(destination.url, retry=QUICK)
    first = world.emit([("subject/warm", 1)])
    with world.running(with_intake=False):
        eventually(lambda: len(_acknowledged(world)) == len(first), 40)
        switch.cut()
        world.emit([("subject/sick", n) for n in (1, 2, 3)])
        healthy = world.emit([(f"subject/{n % 5}", n // 5 + 1) for n in range(50)])
        eventually(lambda: {str(h.delivery()) for h in healthy} <= _acknowledged(world), 40)
        assert destination.by_aggregate()["subject/sick"] == [1], "its followers wait"
        switch.mend()
        eventually(lambda: len(_acknowledged(world)) == 54, 40)

    assert destination.by_aggregate()["subject/sick"] == [1, 2, 3]


@pytest.mark.requirement("DC-22")
def test_one_poison_among_ten_thousand_blocks_nobody(world: WorkerWorld, destination: FakeListener) -> None:
    world.add_destination(destination.url)
    plan = [(f"subject/{n % 500}", n // 500 + 1) for n in range(10_000)]
    world.emit(plan[:5000])
    world.produce_raw(b"\xff\xfe", {"ce_sequences": b"{"}, b"nonsense", partition=1)
    world.emit([("subject/poisoned", 1)], change=lambda headers: headers.update(ce_expiresat="soon"))
    world.emit([("subject/lost", 1)], destinations=["nobody"])
    world.emit(plan[5000:])

    with world.running():
        eventually(lambda: len({a.delivery_id for a in list(destination.arrivals)}) == 10_000, 100)
        eventually(lambda: world.committed() >= 10_000, 20)
        letters = eventually(lambda: found if len(found := world.dead_letters()) >= 3 else None, 30)

    by_cause = {letter["cause"]: letter for letter in letters}
    assert set(by_cause) == {"unreadable", "unknown_destination"}
    places = {(letter["topic"], letter["partition"], letter["offset"]) for letter in letters}
    assert len(places) == 3
    assert {letter["destination"] for letter in letters} == {None, "crm", "nobody"}
    assert "nonsense" not in str(letters)
    (poisoned,) = [row for row in world.rows() if row["aggregate"] == "subject/poisoned"]
    assert (poisoned["state"], poisoned["error_code"], poisoned["blocks"]) == ("failed", "VALIDATION", True)
    assert all(order == list(range(1, 21)) for order in destination.by_aggregate().values())


@pytest.mark.requirement("DC-23", "OB-4")
def test_workers_that_come_and_go_under_load_double_and_reorder_nothing(
    world: WorkerWorld, destination: FakeListener
) -> None:
    destination.delay_s = lambda _: 0.01
    world.add_destination(destination.url, concurrency=8)
    plan = [(f"subject/{n % 40}", n // 40 + 1) for n in range(2000)]
    world.emit(plan)

    with world.running("first", with_intake=False):
        eventually(lambda: len(destination.arrivals) > 200, 40)
        with world.running("second", with_intake=False):
            eventually(lambda: len(destination.arrivals) > 700, 40)
        started = time.monotonic()
        eventually(lambda: len(_acknowledged(world)) == len(plan), 90)
        assert time.monotonic() - started < 90

    assert destination.by_aggregate() == {f"subject/{n}": list(range(1, 51)) for n in range(40)}
    assert len(destination.arrivals) == len(plan), "a drained partition is handed over without a repeat"
