"""What comes behind a delivery that ended without acknowledgement: one gap resolution, then the next."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.envelope import GapResolution, Resolution
from waybill.contracts.fabric import OnUnsettled
from waybill.contracts.states import State
from waybill.delivery.core.gaps import resolution_id
from waybill.simulator.listener import Fate
from waybill.simulator.orders import Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"
CONTINUE = OnUnsettled.CONTINUE


def state(world: World, order: Order) -> str:
    """What the topic says of a delivery."""
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def told(world: World) -> list[GapResolution]:
    """The gap resolutions that were sent, each once."""
    return list(world.laws._tellings.values())


def told_by(order: Order) -> str:
    """The identity of the resolution that tells the first end of a delivery."""
    return str(resolution_id(order.delivery_id("crm"), 1))


@pytest.mark.requirement("DC-13")
def test_a_refused_head_is_told_before_the_next_one_is_sent(make_world: MakeWorld) -> None:
    world = make_world(on_unsettled=CONTINUE)
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    second = world.relay.emit(A)
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED)
    at_rest(world)

    assert state(world, first) == State.FAILED
    (resolution,) = told(world)
    (entry,) = resolution.entries
    assert (entry.sequence, str(entry.delivery_id)) == (1, first.delivery_id("crm"))
    assert entry.resolution is Resolution.DEFERRED, "people may redrive it"
    assert world.laws.states["crm", str(resolution.resolution_id)]["state"] == State.ACKNOWLEDGED


@pytest.mark.requirement("DC-8", "DC-13")
def test_an_expired_head_does_not_halt_its_aggregate(make_world: MakeWorld) -> None:
    world = make_world(max_records=50)
    first = world.relay.emit(A, life=timedelta(seconds=0))
    second = world.relay.emit(A)
    world.timeline.run_for(1.0)
    world.start("w0")
    at_rest(world)

    assert (state(world, first), state(world, second)) == (State.FAILED, State.ACKNOWLEDGED)
    assert [entry.resolution for found in told(world) for entry in found.entries] == [Resolution.FINAL]


@pytest.mark.requirement("DC-13", "DC-19")
def test_a_resolution_is_tried_again_until_it_is_acknowledged(make_world: MakeWorld) -> None:
    world = make_world(on_unsettled=CONTINUE)
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    world.listener().script[told_by(first)] = [Fate.BUSY, Fate.RESET_BEFORE, Fate.VANISHED, Fate.BUSY]
    second = world.relay.emit(A)
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED, 30.0)
    at_rest(world)

    assert len(told(world)) == 1, "one identity, however often it is offered"


@pytest.mark.requirement("DC-13")
def test_a_resolution_that_is_refused_for_good_halts_the_lane(make_world: MakeWorld) -> None:
    world = make_world(on_unsettled=CONTINUE)
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    world.listener().script[told_by(first)] = [Fate.REFUSED]
    second = world.relay.emit(A)
    reached(world, lambda: ("crm", told_by(first)) in world.laws.states)
    at_rest(world)

    assert world.laws.states["crm", told_by(first)]["state"] == State.FAILED
    assert state(world, second) == "unsaid", "nothing is told by another resolution"
    assert len(told(world)) == 1


@pytest.mark.requirement("DC-13", "DC-23")
@pytest.mark.parametrize("step", ["before_row", "after_row", "before_publish", "after_publish", "before_send"])
@pytest.mark.parametrize("passage", [1, 2, 3])
def test_a_worker_killed_anywhere_tells_it_once_and_before_the_next(
    make_world: MakeWorld, step: str, passage: int
) -> None:
    world = make_world(workers=2, on_unsettled=CONTINUE, strikes={("w0", step, passage): None})
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    second = world.relay.emit(A)
    world.timeline.run_for(3.0)
    world.start("w1")
    at_rest(world)

    assert state(world, second) == State.ACKNOWLEDGED
    assert len({found.resolution_id for found in told(world)}) <= 1
