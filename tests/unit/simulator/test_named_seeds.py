"""The histories the engine was designed against, each played on the worker itself."""

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.states import State
from waybill.delivery.actor import PartitionActor
from waybill.delivery.beacons import statements as sql
from waybill.simulator.listener import Fate
from waybill.simulator.network import CALM, Weather
from waybill.simulator.orders import TENANT, Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"


def state(world: World, order: Order) -> str:
    """What the topic says of a delivery."""
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def row(world: World, order: Order) -> dict[str, object] | None:
    return world.database.find("crm", order.delivery_id("crm"))


def done(world: World) -> list[int]:
    """The sequences of what took effect, in order."""
    orders = (world.orders.delivery(*delivery) for delivery in world.laws.effects)
    return [order.sequences["crm"] for order in orders if order is not None]


@pytest.mark.requirement("AT-2", "DC-1")
def test_the_relay_repeats_what_was_acknowledged(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    before = world.laws.attempts

    world.relay.repeat(order)
    at_rest(world)

    assert world.laws.attempts == before + 1, "answered from the listener's store, as one more attempt"
    assert (done(world), row(world, order)) == ([1], None)


@pytest.mark.requirement("GW-17", "DC-22")
def test_a_slow_delivery_gets_its_row_while_one_waits_in_memory_and_another_arrives(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.SLOW)
    reached(world, lambda: world.laws.attempts == 1)
    second = world.relay.emit(A)
    reached(world, lambda: row(world, second) is not None, 4.0)
    third = world.relay.emit(A)
    at_rest(world)

    assert done(world) == [1, 2, 3]
    assert all(row(world, order) is not None for order in (first, second, third)), "the lane feeds from rows"


@pytest.mark.requirement("DC-1", "DC-23")
def test_a_worker_is_killed_after_the_answer_and_another_takes_over(make_world: MakeWorld) -> None:
    world = make_world(workers=2, strikes={("w0", "answered", 1): None})
    world.start("w0")
    order = world.relay.emit(A)
    world.relay.emit(A)
    reached(world, lambda: not world.processes["w0"].is_alive)
    assert done(world) == [1]
    world.start("w1")
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED, 30.0)
    at_rest(world)

    assert done(world) == [1, 2]


@pytest.mark.requirement("DC-8")
def test_a_worker_is_killed_after_the_answer_and_another_takes_over_after_expiry(make_world: MakeWorld) -> None:
    world = make_world(workers=2, strikes={("w0", "answered", 1): None})
    world.start("w0")
    order = world.relay.emit(A, life=timedelta(seconds=2))
    reached(world, lambda: not world.processes["w0"].is_alive)
    world.start("w1")
    reached(world, lambda: state(world, order) != "unsaid", 30.0)

    assert state(world, order) == State.AMBIGUOUS, "it was done, and nobody may say that it was not"


@pytest.mark.requirement("RS-1", "AT-2")
def test_what_was_settled_beyond_a_slow_record_is_not_told_again_after_expiry(make_world: MakeWorld) -> None:
    world = make_world(workers=2)
    world.start("w0")
    slow = world.relay.emit(A)
    world.script(slow, Fate.SLOW)
    quick = world.relay.emit("subject/2", life=timedelta(seconds=4))
    reached(world, lambda: state(world, quick) == State.ACKNOWLEDGED, 2.0)
    assert world.broker.offsets[world.group(0), 0][0] == slow.offset, "the offset waits for the slow one"
    world.processes["w0"].kill()
    world.timeline.run_for(6.0)
    world.start("w1")
    at_rest(world)

    assert state(world, quick) == State.ACKNOWLEDGED
    assert world.laws.audited["crm", quick.delivery_id("crm")] == ["attempt"]


@pytest.mark.requirement("DC-8")
def test_an_attempt_from_a_row_is_under_way_when_its_partition_is_lost_and_its_time_is_over(
    make_world: MakeWorld,
) -> None:
    world = make_world(workers=2, hot_attempts=0, strikes={("w0", "answered", 2): None})
    world.start("w0")
    order = world.relay.emit(A, life=timedelta(seconds=5))
    world.script(order, Fate.NOT_CONNECTED)
    reached(world, lambda: not world.processes["w0"].is_alive, 5.0)
    assert done(world) == [1], "its row does not know of the attempt"
    world.timeline.run_for(6.0)
    world.start("w1")
    reached(world, lambda: state(world, order) in {State.AMBIGUOUS, State.FAILED}, 30.0)

    assert state(world, order) == State.AMBIGUOUS, "it was done, and nobody may say that it was not"


@pytest.mark.requirement("AT-2", "RS-1")
def test_the_relay_repeats_what_was_acknowledged_and_its_listener_is_gone(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    world.relay.repeat(order)
    world.script(order, *[Fate.NOT_CONNECTED] * 4)
    world.timeline.run_for(3.0)

    assert state(world, order) == State.ACKNOWLEDGED, "acknowledged never moves back"


@pytest.mark.requirement("DC-22", "DC-16")
def test_a_poison_record_of_a_healthy_aggregate(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    healthy = world.relay.emit(A)
    poison = world.relay.emit(A, expiresat="soon")
    behind = world.relay.emit(A)
    neighbour = world.relay.emit("subject/2")
    at_rest(world)

    assert [state(world, order) for order in (healthy, poison, neighbour)] == ["acknowledged", "failed", "acknowledged"]
    found = row(world, behind)
    assert found is not None
    assert (found["state"], found["blocks"]) == ("queued", True), "visibly open behind it"
    (letter,) = world.laws.letters.values()
    assert letter["delivery_id"] == poison.delivery_id("crm")


@pytest.mark.requirement("DC-23")
def test_an_owner_is_frozen_between_flush_and_commit(make_world: MakeWorld) -> None:
    world = make_world(workers=2, strikes={("w0", "flushed", 2): 20.0})
    world.start("w0")
    orders = [world.relay.emit(A) for _ in range(3)]
    reached(world, lambda: world.processes["w0"].loop.is_frozen)
    flushed = len(done(world))
    world.start("w1")
    reached(world, lambda: all(state(world, order) == State.ACKNOWLEDGED for order in orders), 19.0)
    published = len(world.broker.published)
    reached(world, lambda: not world.processes["w0"].loop.is_frozen, 20.0)
    world.timeline.run_for(2.0)

    assert flushed > 0
    assert len(world.broker.published) == published, "what it had flushed does not land"
    at_rest(world)
    assert done(world) == [1, 2, 3]


@pytest.mark.requirement("DC-23")
def test_an_owner_frozen_before_it_writes_a_row_writes_none_when_it_wakes_up(make_world: MakeWorld) -> None:
    world = make_world(workers=2, hot_attempts=0, strikes={("w0", "before_row", 1): 8.0})
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: world.processes["w0"].loop.is_frozen)
    world.start("w1")
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED, 7.5)
    world.timeline.run_for(3.0)

    assert row(world, order) is None
    at_rest(world)


@pytest.mark.requirement("DC-23")
def test_a_frozen_holder_of_the_owners_row_does_not_block_the_next(make_world: MakeWorld) -> None:
    world = make_world(workers=2)
    world.start("w0")
    order = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    world.processes["w0"].kill()
    world.database.hold_share((TENANT, "crm", 0))
    world.start("w1")
    later = world.relay.emit(A)
    reached(world, lambda: state(world, later) == State.ACKNOWLEDGED, 8.0)
    at_rest(world)


@pytest.mark.requirement("DC-23")
def test_a_kept_and_a_lost_partition_in_one_batch(make_world: MakeWorld) -> None:
    def slow_down() -> None:
        world.network.broker_s = lambda: 4.0  # type: ignore[method-assign] # for the transaction under way
        world.timeline.after(0.001, setattr, world.network, "broker_s", lambda: 0.002)

    world = make_world(workers=2, partitions=2, strikes={("w0", "flushed", 3): slow_down})
    world.start("w0")
    reached(world, lambda: len(_taken(world, "w0")) == 2)
    orders = [world.relay.emit(f"subject/{number}") for number in range(6)]
    assert {order.partition for order in orders} == {0, 1}
    reached(world, lambda: ("w0", "flushed") in world.workers.passages and world.workers.passages["w0", "flushed"] == 3)
    kept = _taken(world, "w0")
    world.start("w1")
    at_rest(world)

    (left,) = _taken(world, "w0").items()
    assert left[1] is kept[left[0]], "the kept partition has the owner it had"
    assert any("refuses waybill.w0" in line for line in world.trace.lines()), "the lost one was refused"
    assert len(done(world)) == 6


@pytest.mark.requirement("DC-22", "RS-3")
def test_while_the_database_is_away_happy_lanes_go_on_and_the_others_wait(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=0)
    world.start("w0")
    reached(world, lambda: len(_taken(world, "w0")) == 1)
    world.network.weather = world.network.weather.with_database_away()
    sick = world.relay.emit(A)
    world.script(sick, Fate.BUSY)
    behind, healthy = world.relay.emit(A), world.relay.emit("subject/2")
    reached(world, lambda: state(world, healthy) == State.ACKNOWLEDGED)
    world.timeline.run_for(2.0)

    assert (state(world, sick), state(world, behind), row(world, sick)) == ("unsaid", "unsaid", None)
    assert world.laws.attempts == 2, "its follower waits"
    at_rest(world)
    assert state(world, behind) == State.ACKNOWLEDGED


@pytest.mark.requirement("DC-23")
def test_a_partition_given_back_while_it_is_taken_does_not_shut_out_its_next_owner(make_world: MakeWorld) -> None:
    world = make_world(workers=2, partitions=2)
    world.start("w0")
    reached(world, lambda: len(world.groups.members()) == 1)
    world.network.database_s = lambda: 0.6  # type: ignore[method-assign] # its new epochs travel for long
    reached(world, lambda: sum("looks at" in line for line in world.trace.lines()) == 2)
    world.timeline.run_for(0.01)
    world.network.database_s = lambda: 0.002  # type: ignore[method-assign] # and its neighbour's do not
    world.start("w1")
    orders = [world.relay.emit(f"subject/{number}") for number in range(6)]
    reached(world, lambda: all(state(world, order) == State.ACKNOWLEDGED for order in orders), 20.0)
    at_rest(world)

    for name in world.processes:
        for partition, actor in _taken(world, name).items():
            owned = actor.owned
            key = (TENANT, "crm", partition)
            assert world.database.is_newest(key, owned.epoch, owned.beacons.newest), f"{name} is shut out"


@pytest.mark.requirement("AT-2", "DC-22")
def test_the_relay_repeats_what_a_row_holds(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=0)
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    before = world.laws.attempts

    world.relay.repeat(order)
    at_rest(world)

    assert world.laws.attempts == before, "nothing is sent"
    assert world.laws.audited["crm", order.delivery_id("crm")][-1] == "repeat"


@pytest.mark.requirement("AT-2", "DC-22")
def test_the_relay_repeats_what_a_row_of_a_former_owner_holds(make_world: MakeWorld) -> None:
    world = make_world(workers=2, hot_attempts=0)
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    world.timeline.run_for(0.5)
    world.processes["w0"].kill()
    before = world.laws.attempts

    world.start("w1")
    world.relay.repeat(order)
    at_rest(world)

    assert world.laws.attempts == before, "nothing is sent"


@pytest.mark.requirement("DC-23")
@pytest.mark.parametrize("seed", [12, 14, 30])
def test_a_new_epoch_waits_for_a_row_that_is_being_written(make_world: MakeWorld, seed: int) -> None:
    def slow_down() -> None:
        world.network.weather = Weather(slow=1.0)
        world.timeline.after(0.001, setattr, world.network, "weather", CALM)
        world.groups.evict(*world.groups.members()[0], 1.0)

    world = make_world(seed=seed, workers=2, hot_attempts=0, strikes={("w0", "before_row", 1): slow_down})
    world.start("w0")
    world.timeline.run_for(1.0)
    world.start("w1")
    world.timeline.run_for(1.0)
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: any("w1 owns" in line for line in world.trace.lines()))
    world.timeline.run_for(1.0)
    at_rest(world)

    assert done(world) == [1]


@pytest.mark.requirement("DC-23")
def test_a_partition_that_comes_straight_back_waits_for_its_own_old_attempt(make_world: MakeWorld) -> None:
    world = make_world(total_s=5.0)
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.VANISHED)
    reached(world, lambda: world.laws.attempts == 1)
    ((group, member),) = world.groups.members()
    world.groups.evict(group, member, 0.0)
    world.timeline.run_for(4.5)

    assert world.laws.attempts == 1
    at_rest(world)
    assert done(world) == [1]


@pytest.mark.requirement("GW-17")
def test_an_owner_that_is_refused_and_then_lost_waits_for_its_attempt_once(make_world: MakeWorld) -> None:
    world = make_world(total_s=5.0)
    world.start("w0")
    stuck = world.relay.emit(A)
    world.script(stuck, Fate.VANISHED)
    reached(world, lambda: world.laws.attempts == 1)
    world.timeline.run_for(0.5)
    ((group, member),) = world.groups.members()
    world.relay.emit("subject/2")
    world.groups.evict(group, member, 0.2)
    reached(world, lambda: any("refuses" in line for line in world.trace.lines()), 0.2)
    at_rest(world)

    assert state(world, stuck) == State.ACKNOWLEDGED, "it went on once its old attempt had ended"


@pytest.mark.requirement("DC-22")
def test_intake_waits_for_the_configuration_a_command_was_resolved_against(make_world: MakeWorld) -> None:
    world = make_world(with_intake=True)
    world.start("w0")
    stray = world.relay.emit(A, destinations=["crm", "nobody"])
    reached(world, lambda: len(world.laws.letters) == 1)
    world.apply(seen_after_s=2.0, newcomer="late")
    order = world.relay.emit("subject/2", destinations=["late"])
    world.timeline.run_for(1.0)
    at_rest(world)

    (letter,) = world.laws.letters.values()
    assert (letter["destination"], letter["aggregate"]) == ("nobody", stray.aggregate)
    assert ("late", order.delivery_id("late")) in world.laws.effects


@pytest.mark.requirement("DC-23")
def test_an_owner_that_is_shut_out_while_it_takes_over_asks_the_brokers_and_takes_again(make_world: MakeWorld) -> None:
    world = make_world(workers=2, hot_attempts=0, strikes={("w0", "after_row", 1): None})
    world.start("w0")
    order = world.relay.emit(A)
    world.script(order, Fate.BUSY)
    reached(world, lambda: not world.processes["w0"].is_alive)
    world.start("w1")
    reached(world, lambda: any("w1 owns" in line for line in world.trace.lines()))
    values = {
        "tenant": TENANT,
        "destination": "crm",
        "partition": 0,
        "epoch": uuid.UUID(int=1),
        "owner": "w0",
        "now": None,
        "beacon": None,
        "fresh": uuid.UUID(int=2),
        "committed": 0,
    }
    world.database.execute(sql.TAKE, values, 0.0, lambda _: None)
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED, 20.0)
    at_rest(world)

    assert world.processes["w1"].life == 1, "being shut out ends no process"


@pytest.mark.requirement("DC-23", "RS-3")
def test_what_a_dropped_owner_left_on_its_way_takes_no_offset_back(make_world: MakeWorld) -> None:
    def slow_down() -> None:
        world.network.broker_s = lambda: 2.0  # type: ignore[method-assign] # for the transaction under way
        world.timeline.after(0.001, setattr, world.network, "broker_s", lambda: 0.002)

    world = make_world(hot_attempts=0, strikes={("w0", "flushed", 2): slow_down})
    world.start("w0")
    world.relay.emit(A)
    reached(world, lambda: world.workers.passages.get(("w0", "flushed")) == 2)
    values = {
        "tenant": TENANT,
        "destination": "crm",
        "partition": 0,
        "epoch": uuid.UUID(int=1),
        "owner": "w0",
        "now": None,
        "beacon": None,
        "fresh": uuid.UUID(int=2),
        "committed": 0,
    }
    world.database.execute(sql.TAKE, values, 0.0, lambda _: None)
    sick = world.relay.emit("subject/2")
    world.script(sick, Fate.BUSY)
    world.timeline.run_for(1.0)
    at_rest(world)

    assert sorted(done(world)) == [1, 1]


def _taken(world: World, name: str) -> dict[int, PartitionActor]:
    worker = world.processes[name].worker
    groups = [] if worker is None else list(worker.groups.values())
    return {actor.partition: actor for group in groups for actor in group.actors.values() if actor.is_taken}
