"""What keeps a whole destination back, played on the worker itself."""

from collections.abc import Callable

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.fabric import FlowLimits
from waybill.delivery.controls.valve import Kept
from waybill.delivery.core.controls.standing import WHOLE_TENANT, Standing
from waybill.simulator.listener import Fate
from waybill.simulator.orders import TENANT, Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]


LIMITED, BUSY = Fate.LIMITED, Fate.BUSY


@pytest.mark.requirement("GW-10", "ET-2")
def test_a_429_holds_back_every_lane_until_its_time(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=3)
    world.start("w0")
    told = world.relay.emit("subject/1")
    world.script(told, LIMITED)
    reached(world, lambda: world.laws.attempts == 1)
    since = world.timeline.now
    world.timeline.run_for(0.1)
    others = [world.relay.emit(f"subject/{n}") for n in range(2, 6)]
    world.timeline.run_for(0.6)
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


def emit(world: World, count: int, first: int = 1) -> list[Order]:
    """Commit one command for each of so many aggregates."""
    return [world.relay.emit(f"subject/{number}") for number in range(first, first + count)]


def effects(world: World) -> int:
    return len(world.laws.effects)


def test_a_paused_destination_is_left_alone_within_five_seconds_and_loses_nothing(make_world: MakeWorld) -> None:
    world = make_world(workers=2, partitions=2, max_records=6)
    world.start_all()
    emit(world, 4)
    reached(world, lambda: effects(world) == 4)

    world.control(Standing.PAUSED)
    world.timeline.run_for(5.0)
    made = world.laws.attempts
    emit(world, 120, 10)
    world.timeline.run_for(20.0)
    assert world.laws.attempts == made
    held = [
        actor.lanes.memory.records
        for process in world.processes.values()
        if process.worker is not None
        for group in process.worker.groups.values()
        for actor in group.actors.values()
    ]
    assert 6 <= max(held) <= 6 + 2 * world.setup.most, "reading stopped at the bound; Kafka is the buffer"

    world.control(Standing.RUNNING)
    reached(world, lambda: effects(world) == 124, 30.0)
    at_rest(world)


def test_a_pause_survives_the_workers(make_world: MakeWorld) -> None:
    world = make_world()
    world.control(Standing.PAUSED)
    world.start("w0")
    emit(world, 3)
    world.timeline.run_for(5.0)
    world.processes["w0"].kill()
    world.start("w0")
    world.timeline.run_for(20.0)
    assert world.laws.attempts == 0

    world.control(Standing.RUNNING)
    reached(world, lambda: effects(world) == 3, 30.0)


def test_nothing_is_attempted_before_controls_are_known(make_world: MakeWorld) -> None:
    world = make_world()
    world.controls.is_away = True
    world.start("w0")
    emit(world, 3)
    world.timeline.run_for(20.0)
    assert world.laws.attempts == 0

    world.controls.is_away = False
    reached(world, lambda: effects(world) == 3, 30.0)


def test_controls_stay_in_force_while_nobody_can_be_asked(make_world: MakeWorld) -> None:
    world = make_world()
    world.control(Standing.PAUSED)
    world.start("w0")
    world.timeline.run_for(5.0)
    world.controls.is_away = True
    emit(world, 3)
    world.timeline.run_for(20.0)
    assert world.laws.attempts == 0


def test_a_resumed_destination_is_not_overrun(make_world: MakeWorld) -> None:
    world = make_world(concurrency=64)
    world.start("w0")
    world.control(Standing.PAUSED)
    world.timeline.run_for(5.0)
    for order in emit(world, 60):
        world.script(order, Fate.SLOW)
    world.timeline.run_for(3.0)

    world.control(Standing.RUNNING)
    reached(world, lambda: world.laws.attempts > 0)
    assert world.laws.attempts == 1, "one at first"
    world.timeline.run_for(0.4)
    assert world.laws.attempts <= 4
    reached(world, lambda: effects(world) == 60, 30.0)


def test_a_drain_finishes_what_was_read_and_reads_no_more(make_world: MakeWorld) -> None:
    world = make_world(most=5, max_records=10)
    world.start("w0")
    world.control(limits=FlowLimits(in_flight=1))
    world.timeline.run_for(5.0)
    for order in emit(world, 30):
        world.script(order, Fate.SLOW)
    reached(world, lambda: world.laws.attempts > 0)

    world.control(Standing.DRAINING)
    world.timeline.run_for(60.0)
    done = effects(world)
    assert 0 < done < 30
    assert world.laws.attempts == done
    worker = world.processes["w0"].worker
    assert worker is not None
    (group,) = worker.groups.values()
    assert group.senders.valve.why is Kept.DRAINED
    assert not any(actor.lanes.unsettled for actor in group.actors.values())

    world.control(Standing.RUNNING, limits=FlowLimits())
    reached(world, lambda: effects(world) == 30, 60.0)
    at_rest(world)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_rate_is_kept_over_all_workers(make_world: MakeWorld, workers: int) -> None:
    world = make_world(workers=workers, partitions=2)
    world.control(limits=FlowLimits(rate_per_s=4.0))
    world.start_all()
    world.timeline.run_for(20.0)
    emit(world, 200)
    world.timeline.run_for(20.0)

    assert 60 <= world.laws.attempts <= 90


def test_a_tenants_limit_is_shared_fairly(make_world: MakeWorld) -> None:
    world = make_world(destinations=("crm", "erp"), concurrency=8)
    world.control(limits=FlowLimits(rate_per_s=8.0), destination=WHOLE_TENANT)
    world.start("w0")
    world.timeline.run_for(10.0)
    emit(world, 200)
    world.timeline.run_for(10.0)

    made = [len(listener.effects) for listener in world.listeners.values()]
    assert 60 <= sum(made) <= 90
    assert min(made) >= 0.7 * max(made)


def test_a_destination_that_is_gone_is_closed_until_people_resume_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    gone = world.relay.emit("subject/0")
    world.script(gone, Fate.GONE)
    reached(world, lambda: world.controls.newest(TENANT, "crm") is not None)
    control = world.controls.newest(TENANT, "crm")
    assert control is not None
    assert (control.standing, control.by) == (Standing.CLOSED, "worker w0")
    made = world.laws.attempts
    emit(world, 5)
    world.timeline.run_for(20.0)
    assert world.laws.attempts == made

    world.control(Standing.RUNNING)
    reached(world, lambda: effects(world) == 5, 30.0)


@pytest.mark.requirement("DC-20")
def test_a_mass_of_refusals_pauses_the_destination_instead(make_world: MakeWorld) -> None:
    world = make_world(most=500)
    world.start("w0")
    for order in emit(world, 400):
        world.script(order, Fate.REFUSED)
    reached(world, lambda: world.controls.newest(TENANT, "crm") is not None, 30.0)
    world.timeline.run_for(20.0)
    control = world.controls.newest(TENANT, "crm")
    assert control is not None
    assert control.standing is Standing.PAUSED
    assert "100 deliveries refused for good" in control.reason
    refused = world.laws.attempts
    assert 100 <= refused <= 100 + world.setup.concurrency, "what was under way ended too"

    for listener in world.listeners.values():
        listener.script.clear()
    world.control(Standing.RUNNING)
    reached(world, lambda: effects(world) == 400 - refused, 60.0)


def test_a_dead_destination_is_asked_by_one_attempt_at_a_time(make_world: MakeWorld) -> None:
    world = make_world(concurrency=16)
    world.start("w0")
    for order in emit(world, 60):
        world.script(order, *[Fate.NOT_CONNECTED] * 40)
    reached(world, lambda: world.laws.attempts >= 20)
    world.timeline.run_for(5.0)
    made = world.laws.attempts
    world.timeline.run_for(30.0)
    assert 0 < world.laws.attempts - made <= 8, "probes, each later than the one before"

    for listener in world.listeners.values():
        listener.script.clear()
    reached(world, lambda: effects(world) == 60, 60.0)
    at_rest(world)


def test_a_few_dead_aggregates_do_not_close_the_road_for_their_neighbours(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    for order in emit(world, 4, 100):
        world.script(order, *[Fate.NOT_CONNECTED] * 1000)
    world.timeline.run_for(10.0)
    made = world.laws.attempts
    world.timeline.run_for(10.0)
    assert world.laws.attempts - made >= 20
    emit(world, 5)

    reached(world, lambda: effects(world) == 5, 1.0)


@pytest.mark.requirement("OB-4")
def test_a_partition_that_goes_on_no_more_for_no_reason_fails_the_health_check(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    emit(world, 1)
    reached(world, lambda: effects(world) == 1)
    worker = world.processes["w0"].worker
    assert worker is not None
    (group,) = worker.groups.values()
    group.senders.offer = lambda *_: None  # type: ignore[method-assign] # a lane nobody attempts
    emit(world, 1, 2)
    world.timeline.run_for(50.0)
    assert worker.is_alive() == {"loop": True, "moving": True}

    world.timeline.run_for(30.0)
    assert worker.is_alive() == {"loop": True, "moving": False}


@pytest.mark.requirement("OB-4")
def test_a_paused_partition_is_not_stuck(make_world: MakeWorld) -> None:
    world = make_world()
    world.control(Standing.PAUSED)
    world.start("w0")
    emit(world, 3)
    world.timeline.run_for(200.0)

    worker = world.processes["w0"].worker
    assert worker is not None
    assert worker.is_alive() == {"loop": True, "moving": True}


def test_a_process_shares_its_connections_between_destinations(make_world: MakeWorld) -> None:
    world = make_world(destinations=("crm", "erp"), concurrency=8, max_in_flight=4)
    world.start("w0")
    for order in emit(world, 200):
        for name in world.destinations:
            world.script(order, Fate.SLOW, destination=name)
    world.timeline.run_for(10.0)
    worker = world.processes["w0"].worker
    assert worker is not None
    inflight: list[list[int]] = []
    for _ in range(100):
        world.timeline.run_for(0.1)
        inflight.append([group.senders.inflight for group in worker.groups.values()])

    assert max(map(sum, inflight)) == 4
    assert all(max(of_one) <= 3 for of_one in zip(*inflight, strict=True))


@pytest.mark.requirement("DC-1", "OB-4")
def test_what_is_held_back_until_kafka_would_delete_it_becomes_rows_whatever_the_bound_says(
    make_world: MakeWorld,
) -> None:
    world = make_world(max_records=6)
    world.control(Standing.PAUSED)
    world.start("w0")
    worker = world.processes["w0"].worker
    assert worker is not None
    orders = [world.relay.emit(f"subject/{n % 60}", time="2026-05-10T00:00:00.000Z") for n in range(80)]
    reached(world, lambda: not worker.is_ready()["retention"], 20.0)
    reached(world, lambda: all(world.database.find("crm", order.delivery_id("crm")) for order in orders), 300.0)
    world.timeline.run_for(10.0)

    assert worker.is_ready()["retention"], "nothing is in Kafka only"
    assert world.laws.attempts == 0

    world.control(Standing.RUNNING)
    reached(world, lambda: effects(world) == 80, 60.0)
    at_rest(world)


def test_what_is_held_back_for_a_shorter_time_stays_in_kafka(make_world: MakeWorld) -> None:
    world = make_world(max_records=6)
    world.control(Standing.PAUSED)
    world.start("w0")
    orders = [world.relay.emit(f"subject/{n}", time="2026-05-18T00:00:00.000Z") for n in range(20)]
    world.timeline.run_for(30.0)

    assert not any(world.database.find("crm", order.delivery_id("crm")) for order in orders)
