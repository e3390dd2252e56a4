"""The control database is set back under the worker: it is noticed, nothing is guessed, and a rebuild makes it whole."""

from collections.abc import Callable, Iterator

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.states import State
from waybill.delivery.actor import PartitionActor
from waybill.simulator.listener import Fate
from waybill.simulator.orders import Order
from waybill.simulator.rewinding import rebuild, set_back
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A, B, C = "subject/1", "subject/2", "subject/3"


def state(world: World, order: Order) -> str:
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def actors(world: World) -> Iterator[PartitionActor]:
    for process in world.processes.values():
        if process.is_running and process.worker is not None:
            for group in process.worker.groups.values():
                yield from group.actors.values()


def problems(world: World) -> list[str]:
    return [actor.problem for actor in actors(world) if actor.problem is not None]


def stands_still(world: World) -> bool:
    found = list(actors(world))
    return bool(found) and all(actor.problem for actor in found)


def ten_minutes_of_trouble(world: World) -> list[Order]:
    """Work before the copy is made, and in the ten minutes after it: retried, halted, waiting and done."""
    world.start_all()
    before = [world.relay.emit(A), world.relay.emit(B)]
    world.script(before[0], *[Fate.BUSY] * 40)
    world.script(before[1], Fate.BUSY, Fate.BUSY)
    reached(world, lambda: all(world.database.find("crm", each.delivery_id("crm")) for each in before))
    copy = world.database.copy()
    after = []
    for number in range(40):
        aggregate = (A, B, C)[number % 3]
        after.append(world.relay.emit(aggregate))
        if number % 7 == 0:
            world.script(after[-1], *[Fate.RESET_AFTER] * (1 + number % 4))
        elif number == 30:
            world.script(after[-1], Fate.REFUSED)
        world.timeline.run_for(15.0)
    set_back(world, copy)
    return [*before, *after]


@pytest.mark.requirement("DC-1", "DC-12", "RS-3", "RS-6")
def test_database_rewound_ten_minutes(make_world: MakeWorld) -> None:
    world = make_world(workers=2, partitions=2, hot_attempts=0)
    orders = ten_minutes_of_trouble(world)
    reached(world, lambda: bool(problems(world)), 10.0)
    world.relay.emit(A)

    found = rebuild(world)
    at_rest(world)

    assert sum(each.rows for each in found) > 0
    assert not problems(world)
    halted = next(each for each in orders if state(world, each) == State.FAILED)
    behind = [each for each in orders if each.aggregate == halted.aggregate and state(world, each) == "unsaid"]
    assert all(state(world, each) == State.ACKNOWLEDGED for each in orders if each not in {halted, *behind})


@pytest.mark.requirement("DC-12", "GW-17")
def test_a_set_back_database_stops_what_it_held_and_says_what_to_run(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, hot_attempts=0)
    world.start("w0")
    copy = world.database.copy()
    sick = world.relay.emit(A)
    world.script(sick, *[Fate.BUSY] * 8)
    reached(world, lambda: world.database.find("crm", sick.delivery_id("crm")) is not None)
    reached(world, lambda: world.broker.offsets[world.group(0), 0][0] == world.orders.end(0))
    set_back(world, copy)
    reached(world, lambda: stands_still(world), 10.0)
    attempts, offset = world.laws.attempts, world.broker.offsets[world.group(0), 0][0]
    world.relay.emit(A)
    world.relay.emit(B)
    world.timeline.run_for(30.0)

    (problem,) = problems(world)
    assert "waybill tasks rebuild --tenant acme --destination crm --partition 0" in problem
    worker = world.processes["w0"].worker
    assert worker is not None
    assert worker.is_ready()["database"] is False
    assert (world.laws.attempts, world.broker.offsets[world.group(0), 0][0]) == (attempts, offset)

    rebuild(world)
    at_rest(world)
    assert state(world, sick) == State.ACKNOWLEDGED


@pytest.mark.requirement("GW-17")
def test_an_idle_owner_notices_by_itself_and_goes_on_when_it_is_whole(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    copy = world.database.copy()
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    set_back(world, copy)

    reached(world, lambda: stands_still(world), 10.0)
    (found,) = rebuild(world)
    assert (found.rows, found.ambiguous, found.notes) == (0, 0, 0), "the happy path left nothing to lose"
    reached(world, lambda: not problems(world))
    at_rest(world)


@pytest.mark.requirement("DC-1", "RS-3")
def test_a_rebuild_that_ends_half_way_is_finished_by_the_next(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1, hot_attempts=0)
    ten_minutes_of_trouble(world)
    written = world.database.replace
    left = [3]

    def replace(row: dict[str, object]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ConnectionError("killed")
        written(row)

    with monkeypatch.context() as patch:
        patch.setattr(world.database, "replace", replace)
        with pytest.raises(ConnectionError):
            rebuild(world)
    world.timeline.run_for(20.0)
    assert stands_still(world), "the beacon comes last"

    rebuild(world)
    at_rest(world)


def test_a_database_that_was_not_set_back_is_left_alone(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, hot_attempts=0)
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)

    assert rebuild(world) == []
    at_rest(world)
