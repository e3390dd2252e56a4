"""The road of a command through the worker, on the real stack."""

import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import WorkerWorld

from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.mark.requirement("DC-6", "GW-1", "RS-5")
def test_commands_in_a_topic_are_acknowledged_in_order_with_one_outcome_each(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    sent = world.emit([(f"subject/{n % 5}", n // 5 + 1) for n in range(50)])

    with world.running():
        eventually(lambda: len(destination.arrivals) == 50, 30)
        eventually(lambda: len(world.states()) == 50, 15)

    assert {a: list(range(1, 11)) for a in (f"subject/{n}" for n in range(5))} == destination.by_aggregate()
    states = world.states()
    assert {"acknowledged"} == {state["state"] for state in states.values()}
    assert {str(command.delivery()) for command in sent} == set(states)
    assert sorted(str(command.delivery()) for command in sent) == sorted(o["delivery_id"] for o in world.outcomes())
    assert world.committed() >= 50
    assert world.rows() == []
