"""Destinations that cannot bear every repeat, played on the worker itself: what is not sent again."""

from collections.abc import Callable

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.fabric import Profile
from waybill.contracts.states import State
from waybill.simulator.laws import BOUND
from waybill.simulator.listener import Fate
from waybill.simulator.orders import Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"


def state(world: World, order: Order) -> str:
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


@pytest.mark.requirement("GW-11", "DC-23")
def test_a_retry_that_nobody_made_in_time_is_not_made_by_the_next_owner(make_world: MakeWorld) -> None:
    world = make_world(workers=2, profile=Profile.BOUNDED_DEDUPLICATION)
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.RESET_AFTER)
    reached(world, lambda: state(world, order) == State.RETRYING)
    world.processes["w0"].kill()
    attempts = world.laws.attempts
    world.timeline.run_for(BOUND.max_age_s)

    world.start("w1")
    reached(world, lambda: state(world, order) == State.AMBIGUOUS, 20.0)
    at_rest(world)

    assert world.laws.attempts == attempts, "its destination may have forgotten the first one"
    assert world.laws.states["crm", order.delivery_id("crm")]["detail"] == "repeat_bound_passed"


@pytest.mark.requirement("AM-1", "AM-2", "GW-12", "DC-23")
@pytest.mark.parametrize(("fate", "attempts"), [(Fate.RESET_AFTER, 1), (Fate.VANISHED, 2)])
def test_a_killed_attempt_is_asked_about_and_made_again_only_when_it_was_not_done(
    make_world: MakeWorld, fate: Fate, attempts: int
) -> None:
    strikes = {("w0", "before_answer", 1): None}
    world = make_world(workers=2, profile=Profile.NON_IDEMPOTENT, settle_after_s=5.0, strikes=strikes)
    world.start("w0")
    order, behind = world.relay.emit(A), world.relay.emit(A)
    world.script(order, fate)
    reached(world, lambda: not world.processes["w0"].is_alive)
    world.start("w1")

    reached(world, lambda: state(world, behind) == State.ACKNOWLEDGED, 60.0)
    at_rest(world)

    assert (world.laws.attempts, state(world, order)) == (attempts + 1, "acknowledged")


@pytest.mark.requirement("AM-1", "GW-12")
def test_a_killed_attempt_is_left_to_people_where_nobody_can_be_asked(make_world: MakeWorld) -> None:
    strikes = {("w0", "before_answer", 1): None}
    world = make_world(workers=2, profile=Profile.NON_IDEMPOTENT, strikes=strikes)
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: not world.processes["w0"].is_alive)
    world.start("w1")
    reached(world, lambda: state(world, order) == State.AMBIGUOUS, 60.0)
    at_rest(world)

    assert world.laws.attempts == 1
