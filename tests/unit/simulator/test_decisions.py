"""What people decided, on the worker itself: each history of the engine's design that has a decision in it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.decision import DecisionKind
from waybill.contracts.fabric import OnUnsettled
from waybill.contracts.states import BY_PEOPLE, State
from waybill.delivery.decisions.statements import CARRY_OUT
from waybill.kernel.errors import TransientError
from waybill.simulator.database import Values
from waybill.simulator.listener import Fate
from waybill.simulator.orders import Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"
CANCEL, REDRIVE, SKIP = DecisionKind.CANCEL, DecisionKind.REDRIVE, DecisionKind.SKIP
ACKNOWLEDGE = DecisionKind.ACKNOWLEDGE


def state(world: World, order: Order) -> str:
    """What the topic says of a delivery."""
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def detail(world: World, order: Order) -> str:
    return str(world.laws.states["crm", order.delivery_id("crm")]["detail"])


def version(world: World, order: Order) -> int:
    return int(world.laws.states["crm", order.delivery_id("crm")]["version"])


def done(world: World) -> list[int]:
    orders = (world.orders.delivery(*delivery) for delivery in world.laws.effects)
    return [order.sequences["crm"] for order in orders if order is not None]


def verdict(world: World, decided: object) -> str:
    found = world.database.decisions.get(f"crm/{decided}")
    return "open" if found is None else f"{found['verdict']} {found['why'] or ''}".strip()


def slow_head(world: World) -> Order:
    """A head that is tried again and again, so that what comes behind it waits."""
    first = world.relay.emit(A)
    world.script(first, *[Fate.BUSY] * 40)
    return first


@pytest.mark.requirement("DC-2")
def test_a_cancel_for_a_delivery_still_in_its_lane(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    slow_head(world)
    second, third = world.relay.emit(A), world.relay.emit(A)
    reached(world, lambda: world.laws.attempts > 0)
    decided = world.decide(second, CANCEL)
    reached(world, lambda: verdict(world, decided) == "applied")
    at_rest(world)

    assert (state(world, second), detail(world, second)) == (State.FAILED, "cancelled")
    assert state(world, third) == State.ACKNOWLEDGED, "its lane goes on behind a resolution"
    assert done(world) == [1, 3]


@pytest.mark.requirement("AT-2")
def test_the_relay_repeats_after_a_cancel(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    slow_head(world)
    second = world.relay.emit(A)
    reached(world, lambda: world.laws.attempts > 0)
    world.decide(second, CANCEL)
    reached(world, lambda: state(world, second) == State.FAILED)
    world.relay.repeat(second)
    at_rest(world)

    assert done(world) == [1]
    assert world.laws.audited["crm", second.delivery_id("crm")] == ["transition", "repeat"]


@pytest.mark.requirement("DC-1")
def test_what_may_have_been_sent_finishes_first(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.BUSY, Fate.RESET_BEFORE)
    reached(world, lambda: world.laws.attempts > 0)
    decided = world.decide(first, CANCEL)
    reached(world, lambda: verdict(world, decided) != "open")
    at_rest(world)

    assert verdict(world, decided) == "void may_have_been_sent"
    assert state(world, first) == State.ACKNOWLEDGED


@pytest.mark.requirement("RS-2")
def test_a_decision_with_an_attempt_in_flight_waits_for_its_end(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.SLOW)
    reached(world, lambda: world.laws.attempts == 1)
    decided = world.decide(first, CANCEL)
    world.timeline.run_for(1.0)
    assert verdict(world, decided) == "open"
    at_rest(world)

    assert verdict(world, decided) in {"early", "void state_acknowledged"}, "settled before it was judged"
    assert state(world, first) == State.ACKNOWLEDGED


@pytest.mark.requirement("RS-2", "DC-21")
def test_a_decision_against_a_moving_version(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.REFUSED, Fate.REFUSED)
    reached(world, lambda: state(world, first) == State.FAILED)
    seen = version(world, first)
    world.decide(first, REDRIVE, version=seen)
    reached(world, lambda: version(world, first) == seen + 2)
    stale = world.decide(first, SKIP, version=seen)
    reached(world, lambda: verdict(world, stale) != "open")
    at_rest(world)

    assert verdict(world, stale) == "void version_moved"
    assert state(world, first) == State.FAILED, "nothing was changed"


@pytest.mark.requirement("DC-21")
def test_a_redrive_has_one_effect_under_the_same_identity(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first, second = world.relay.emit(A), world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    reached(world, lambda: state(world, first) == State.FAILED)
    assert done(world) == []
    for _ in range(2):  # the same decision again is the same
        decided = world.decide(first, REDRIVE, version=version(world, first))
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED)
    at_rest(world)

    assert verdict(world, decided) == "applied"
    assert done(world) == [1, 2]


@pytest.mark.requirement("DC-12", "DC-21")
def test_a_redrive_of_what_was_passed_over_comes_after_the_later_ones(make_world: MakeWorld) -> None:
    world = make_world(on_unsettled=OnUnsettled.CONTINUE)
    world.start("w0")
    first, second = world.relay.emit(A), world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED)
    world.decide(first, REDRIVE, version=version(world, first))
    reached(world, lambda: state(world, first) == State.ACKNOWLEDGED)
    at_rest(world)

    assert done(world) == [2, 1]


@pytest.mark.requirement("DC-13")
def test_a_skip_lets_a_halted_lane_go_on_behind_a_resolution(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first, second = world.relay.emit(A), world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    reached(world, lambda: state(world, first) == State.FAILED)
    world.timeline.run_for(1.0)
    assert state(world, second) == "unsaid"
    decided = world.decide(first, SKIP, version=version(world, first))
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED)
    at_rest(world)

    assert verdict(world, decided) == "applied"
    assert (state(world, first), done(world)) == (State.FAILED, [2])


@pytest.mark.requirement("AM-2")
@pytest.mark.parametrize("killed_after_s", [None, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3])
def test_what_people_acknowledged_lets_its_lane_go_on(make_world: MakeWorld, killed_after_s: float | None) -> None:
    world = make_world(workers=2)
    world.start("w0")
    first, second = world.relay.emit(A), world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    reached(world, lambda: state(world, first) == State.FAILED)
    world.timeline.run_for(1.0)
    decided = world.decide(first, ACKNOWLEDGE, version=version(world, first))
    if killed_after_s is not None:
        world.timeline.run_for(killed_after_s)
        world.processes["w0"].kill()
        world.start("w1")
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED, 30.0)
    at_rest(world)

    assert verdict(world, decided) == "applied"
    assert (state(world, first), detail(world, first)) == (State.ACKNOWLEDGED, BY_PEOPLE)
    assert done(world) == [2], "what was acknowledged by people is not sent"
    assert world.laws.states["crm", first.delivery_id("crm")]["proof_level"] is None


@pytest.mark.requirement("AM-2")
def test_what_people_acknowledged_is_not_sent_again_whatever_is_decided_then(make_world: MakeWorld) -> None:
    world = make_world(on_unsettled=OnUnsettled.CONTINUE)
    world.start("w0")
    first, second = world.relay.emit(A), world.relay.emit(A)
    world.script(first, Fate.REFUSED)
    reached(world, lambda: state(world, second) == State.ACKNOWLEDGED)
    world.decide(first, ACKNOWLEDGE, version=version(world, first))
    reached(world, lambda: state(world, first) == State.ACKNOWLEDGED)
    late = world.decide(first, REDRIVE, version=version(world, first))
    world.relay.repeat(first)
    reached(world, lambda: verdict(world, late) != "open")
    at_rest(world)

    assert (verdict(world, late), done(world)) == ("void state_acknowledged", [2])


@pytest.mark.requirement("AT-2")
def test_a_decision_about_what_has_not_come_waits_for_it(make_world: MakeWorld) -> None:
    world = make_world(workers=2)
    world.start("w0")
    reached(world, lambda: len(world.groups.members()) == 1)
    transaction = world.relay.open_transaction()
    first = world.relay.emit(A, transaction=transaction)
    decided = world.decide(first, CANCEL)
    reached(world, lambda: verdict(world, decided) == "early")
    world.processes["w0"].kill()
    world.start("w1")
    world.timeline.run_for(6.0)
    world.relay.end_transaction(transaction)
    reached(world, lambda: state(world, first) == State.FAILED, 30.0)
    at_rest(world)

    assert (verdict(world, decided), detail(world, first), done(world)) == ("applied", "cancelled", [])


@pytest.mark.requirement("DC-2")
def test_a_command_that_replaces_a_waiting_one_supersedes_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    slow_head(world)
    second = world.relay.emit(A)
    third = world.relay.emit(A, replaces=str(second.command_id))
    reached(world, lambda: state(world, second) == State.FAILED)
    at_rest(world)

    assert (detail(world, second), state(world, third)) == ("superseded", State.ACKNOWLEDGED)
    assert done(world) == [1, 3]


@pytest.mark.requirement("DC-2")
def test_a_command_that_replaces_one_already_sent_comes_after_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    first = world.relay.emit(A)
    world.script(first, Fate.BUSY, Fate.BUSY)
    reached(world, lambda: world.laws.attempts > 0)
    second = world.relay.emit(A, replaces=str(first.command_id))
    at_rest(world)

    assert (state(world, first), state(world, second)) == (State.ACKNOWLEDGED, State.ACKNOWLEDGED)
    assert done(world) == [1, 2]


@pytest.mark.requirement("DC-23", "DC-2")
@pytest.mark.parametrize("killed_after_s", [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6])
def test_a_worker_killed_while_it_cancels_cancels_once(make_world: MakeWorld, killed_after_s: float) -> None:
    world = make_world(workers=2)
    world.start("w0")
    slow_head(world)
    second, third = world.relay.emit(A), world.relay.emit(A)
    reached(world, lambda: world.laws.attempts > 0)
    decided = world.decide(second, CANCEL)
    world.timeline.run_for(killed_after_s)
    world.processes["w0"].kill()
    world.start("w1")
    reached(world, lambda: verdict(world, decided) != "open", 30.0)
    at_rest(world)

    # whether a former owner had sent what has no row yet, the next one cannot know
    is_cancelled = verdict(world, decided) == "applied"
    assert is_cancelled or verdict(world, decided) == "void may_have_been_sent"
    assert state(world, second) == (State.FAILED if is_cancelled else State.ACKNOWLEDGED)
    assert state(world, third) == State.ACKNOWLEDGED
    assert done(world) == ([1, 3] if is_cancelled else [1, 2, 3])


@pytest.mark.requirement("DC-2")
def test_while_the_database_is_away_a_decision_waits(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    slow_head(world)
    second = world.relay.emit(A)
    reached(world, lambda: world.laws.attempts > 0)
    world.network.weather = world.network.weather.with_database_away()
    decided = world.decide(second, CANCEL)
    world.timeline.run_for(3.0)
    assert (verdict(world, decided), done(world)) == ("open", [])
    at_rest(world)

    assert verdict(world, decided) == "applied"


@pytest.mark.requirement("DC-8")
def test_what_is_cancelled_does_not_expire(make_world: MakeWorld) -> None:
    world = make_world()
    world.start("w0")
    slow_head(world)
    second = world.relay.emit(A, life=timedelta(seconds=4))
    reached(world, lambda: world.laws.attempts > 0)
    world.decide(second, CANCEL)
    world.timeline.run_for(6.0)
    at_rest(world)

    assert detail(world, second) == "cancelled"


def test_a_decision_whose_write_was_not_confirmed_is_told_all_the_same(make_world: MakeWorld) -> None:
    world = make_world()
    execute, lost = world.database.execute, []

    def lose_the_first(query: str, values: Values, lasts_s: float, answer: Callable[[Any], None]) -> None:
        if query == CARRY_OUT and not lost:
            lost.append(query)
            execute(query, values, lasts_s, lambda _: answer(TransientError("no answer")))
        else:
            execute(query, values, lasts_s, answer)

    world.database.execute = lose_the_first  # type: ignore[method-assign] # one answer that does not arrive
    world.start("w0")
    slow_head(world)
    second = world.relay.emit(A)
    reached(world, lambda: world.laws.attempts > 0)
    world.decide(second, CANCEL)
    reached(world, lambda: state(world, second) == State.FAILED)
    at_rest(world)

    assert lost
    assert done(world) == [1]
