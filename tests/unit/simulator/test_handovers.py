"""Deliveries that are handed over in Kafka, under the same bad luck: record and state are one, or neither is there."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.fabric import Profile, Transport
from waybill.contracts.names import deliveries_topic
from waybill.contracts.states import State
from waybill.infra.kafka import Outgoing
from waybill.kernel.ids import DestinationName
from waybill.simulator import draw, play
from waybill.simulator.orders import TENANT, Order
from waybill.simulator.schedule import Schedule
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
BLOCKS, BLOCK = 2, 120
TOPIC = deliveries_topic(TENANT, DestinationName("crm"))


def over_kafka(seed: int) -> Schedule:
    """A seed's schedule at destinations that take deliveries from Kafka: half of them read by nobody."""
    drawn = draw(seed)
    bears = drawn.setup.profile is not Profile.NON_IDEMPOTENT
    profile = drawn.setup.profile if bears else Profile.DURABLE_IDEMPOTENT
    setup = replace(
        drawn.setup, transport=Transport.KAFKA, is_reading=seed % 2 == 1, profile=profile, settle_after_s=None
    )
    return replace(drawn, setup=setup, rewind=None)


@pytest.mark.requirement("DC-1", "DC-6", "DC-16", "DC-23", "RS-3", "RS-4")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_schedules_hand_nothing_over_twice_differently_and_lose_nothing(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        verdict = play(over_kafka(seed))
        if not verdict.ok:
            again = play(over_kafka(seed), is_traced=True)
            pytest.fail("\n".join([*again.trace.lines(), *map(str, again.violations)]))


#: Seeds in which a lane was roused twice when its wait began, or while its rows were written.
ROUSED_TWICE = (1248, 3800, 2229, 3903)


@pytest.mark.requirement("RS-4")
@pytest.mark.parametrize("seed", ROUSED_TWICE)
def test_a_wait_that_begins_rouses_its_lane_once(seed: int) -> None:
    verdict = play(over_kafka(seed))

    assert verdict.ok, verdict.violations


def handed(world: World, order: Order) -> list[Outgoing]:
    wanted = order.delivery_id("crm").encode()
    records = [record for record in world.broker.published if record.topic == TOPIC]
    return [record for record in records if dict(record.headers or ())["webhook-id"] == wanted]


def state(world: World, order: Order) -> str | None:
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return None if found is None else str(found["state"])


@pytest.mark.requirement("RS-3", "DC-16")
def test_a_worker_that_dies_after_the_transaction_leaves_the_very_record_to_its_successor(
    make_world: MakeWorld,
) -> None:
    world = make_world(workers=2, transport=Transport.KAFKA, strikes={("w0", "after_publish", 1): None})
    world.start("w0")
    order = world.relay.emit("subject/1")
    reached(world, lambda: not world.processes["w0"].is_alive)
    (first,) = handed(world, order)
    world.start("w1")
    reached(world, lambda: len(handed(world, order)) == 2, 60.0)
    at_rest(world)

    again = handed(world, order)[1]
    assert (again.headers, again.value, again.partition) == (first.headers, first.value, first.partition)
    assert world.laws.audited["crm", order.delivery_id("crm")] == ["attempt", "attempt"], "one outcome, told twice"


def test_a_worker_that_dies_before_the_transaction_leaves_nothing_in_the_topic_and_nothing_lost(
    make_world: MakeWorld,
) -> None:
    world = make_world(workers=2, transport=Transport.KAFKA, strikes={("w0", "before_publish", 1): None})
    world.start("w0")
    order = world.relay.emit("subject/1")
    reached(world, lambda: not world.processes["w0"].is_alive)
    assert handed(world, order) == []
    world.start("w1")
    at_rest(world)

    assert len(handed(world, order)) == 1


@pytest.mark.requirement("RS-4")
def test_listeners_that_are_away_cost_no_second_hand_over(make_world: MakeWorld) -> None:
    world = make_world(transport=Transport.KAFKA)
    world.start("w0")
    first = world.relay.emit("subject/1", life=timedelta(seconds=30))
    second = world.relay.emit("subject/1")
    reached(world, lambda: state(world, first) == State.AMBIGUOUS, 60.0)

    assert len(handed(world, first)) == 1
    reached(world, lambda: len(handed(world, second)) == 1, 10.0)
    at_rest(world)


@pytest.mark.requirement("RS-4", "GW-9")
def test_listeners_that_read_and_say_nothing_are_handed_it_again(make_world: MakeWorld) -> None:
    world = make_world(transport=Transport.KAFKA, is_reading=True)
    world.start("w0")
    order = world.relay.emit("subject/1", life=timedelta(seconds=30))
    reached(world, lambda: len(handed(world, order)) >= 3, 30.0)

    assert len({record.value for record in handed(world, order)}) == 1
    reached(world, lambda: state(world, order) == State.AMBIGUOUS, 60.0)
