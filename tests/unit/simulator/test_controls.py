"""What keeps a whole destination back, played on the worker itself."""

from collections.abc import Callable

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.simulator.listener import Fate
from waybill.simulator.world import World

MakeWorld = Callable[..., World]


LIMITED, BUSY = Fate.LIMITED, Fate.BUSY


@pytest.mark.requirement("GW-10", "ET-2")
def test_a_429_holds_back_every_lane_until_its_time(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=3)
    world.start("w0")
    told = world.relay.emit("subject/1")
    world.script(told, LIMITED)
    reached(world, lambda: world.database.find("crm", told.delivery_id("crm")) is not None)
    since = world.timeline.now
    others = [world.relay.emit(f"subject/{n}") for n in range(2, 6)]
    world.timeline.run_for(0.7)
    assert world.laws.attempts == 1, "the others wait for the destination's second too"

    reached(world, lambda: len(world.laws.effects) == len(others) + 1, 10.0)
    assert world.timeline.now - since > 1.0
    at_rest(world)


#: What becomes of the requests of one delivery before one is served; then attempts made, and those that were spent.
SPENT = {
    "a 429": ((LIMITED,), 2, 1),
    "nine of them": ((LIMITED,) * 9, 10, 1),
    "a 503": ((BUSY,) * 4, 5, 5),
    "a 503 between": ((LIMITED, BUSY, LIMITED), 4, 2),
    "a 503 after": ((LIMITED, LIMITED, BUSY, BUSY), 5, 3),
}


@pytest.mark.requirement("GW-10", "ET-2")
@pytest.mark.parametrize(("fates", "made", "spent"), SPENT.values(), ids=SPENT)
def test_429_without_attempts_spent(make_world: MakeWorld, fates: tuple[Fate, ...], made: int, spent: int) -> None:
    world = make_world(hot_attempts=0)
    world.start("w0")
    order = world.relay.emit("subject/1")
    world.script(order, *fates)
    reached(world, lambda: bool(world.laws.effects), 60.0)
    at_rest(world)

    row = world.database.find("crm", order.delivery_id("crm"))
    assert row is not None
    assert (row["attempt"], row["attempt"] - row["throttled"]) == (made, spent)
