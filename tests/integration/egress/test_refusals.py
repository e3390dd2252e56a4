"""A destination Waybill does not go to: its deliveries end with the rule that refused them, and nobody else waits."""

import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import WorkerWorld

from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.mark.requirement("GW-17", "ET-2")
def test_a_refused_destination_ends_its_deliveries_by_rule_and_blocks_no_partition(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    world.add_destination(destination.url.replace("127.0.0.1", "127.0.0.2"), "inside")  # opened is 127.0.0.1/32
    plan = [(f"subject/{key}", sequence) for key in range(4) for sequence in (1, 2)]
    sent = world.emit(plan, destinations=("crm", "inside"))

    with world.running():
        eventually(lambda: len(world.states()) == 8 + 4, 40)
        eventually(lambda: world.committed() == world.committed("inside") == len(sent), 20)

    told = [
        (state["state"], state["error_code"], state["detail"])
        for state in world.states().values()
        if state["destination"] == "inside"
    ]
    assert told == [("failed", "POLICY_BLOCK", "egress_loopback")] * 4, "the heads; what follows them waits in rows"
    outcomes = [outcome for outcome in world.outcomes() if outcome["destination"] == "inside"]
    assert {outcome["phase"] for outcome in outcomes if outcome["kind"] == "attempt"} == {"before_sending"}
    assert destination.by_aggregate() == {f"subject/{key}": [1, 2] for key in range(4)}
