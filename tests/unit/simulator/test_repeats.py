"""Copies of what was acknowledged without a row, played on the worker itself: a failure of theirs is not told."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.states import State
from waybill.simulator.listener import Fate
from waybill.simulator.orders import Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"


def state(world: World, order: Order) -> str:
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def audited(world: World, order: Order) -> list[str]:
    return world.laws.audited["crm", order.delivery_id("crm")]


@pytest.mark.requirement("AT-2", "RS-2", "DC-8")
def test_a_copy_of_what_was_acknowledged_expires_and_is_no_refusal(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    order = world.relay.emit(A, life=timedelta(seconds=3))
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    world.timeline.run_for(3.0)

    world.relay.repeat(order)
    behind = world.relay.emit(A)
    reached(world, lambda: state(world, behind) == State.ACKNOWLEDGED)
    at_rest(world)

    assert (state(world, order), audited(world, order)) == ("acknowledged", ["attempt", "repeat"])
    assert world.database.find("crm", order.delivery_id("crm")) is None, "no row is left of it"


@pytest.mark.requirement("AT-2", "RS-2")
def test_a_copy_of_what_was_acknowledged_behind_a_row_ends_where_the_delivery_stands(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=0)
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    sick = world.relay.emit(A)
    world.script(sick, Fate.BUSY)
    reached(world, lambda: state(world, sick) == State.RETRYING)
    world.script(order, Fate.NOT_CONNECTED)
    world.relay.repeat(order)
    reached(world, lambda: "repeat" in audited(world, order))
    at_rest(world)

    assert (state(world, order), state(world, sick)) == ("acknowledged", "acknowledged")
    row = world.database.find("crm", order.delivery_id("crm"))
    assert row is not None
    assert (row["state"], row["blocks"]) == ("acknowledged", False)


@pytest.mark.requirement("DC-22", "GW-17")
def test_a_failure_is_told_although_the_read_model_stands_still(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=0)
    world.start("w0")
    reached(world, lambda: len(world.groups.members()) == 1)
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    world.is_folded = False
    reached(world, lambda: state(world, order) == State.RETRYING, 20.0)
    later = world.relay.emit("subject/2")
    world.script(later, Fate.BUSY)

    reached(world, lambda: state(world, later) == State.RETRYING, 1.0)
    at_rest(world)
