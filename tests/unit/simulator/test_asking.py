"""Status queries, played on the worker itself: what settles an ambiguous delivery, and what does not."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from fixtures.fix_simulator import at_rest, reached

from waybill.contracts.states import State
from waybill.simulator.listener import Fate, Word
from waybill.simulator.orders import Order
from waybill.simulator.world import World

MakeWorld = Callable[..., World]
A = "subject/1"


def state(world: World, order: Order) -> str:
    found = world.laws.states.get(("crm", order.delivery_id("crm")))
    return "unsaid" if found is None else str(found["state"])


def said(world: World, order: Order) -> str | None:
    """What the row keeps of the last answer."""
    row = world.database.find("crm", order.delivery_id("crm"))
    return None if row is None or "asked" not in row else row["asked"]["said"]


def questions(world: World, order: Order) -> int:
    return world.listener().questions.get(order.delivery_id("crm"), 0)


def in_doubt(make_world: MakeWorld, fate: Fate, *, life_s: float = 2.0, **setup: object) -> tuple[World, Order, Order]:
    """Let a delivery become ambiguous: its time is over, and its attempt may have acted."""
    world = make_world(hot_attempts=0, settle_after_s=10.0, total_s=1.0, **setup)
    world.start("w0")
    order = world.relay.emit(A, life=timedelta(seconds=life_s))
    world.script(order, *[fate] * 9)
    behind = world.relay.emit(A)
    reached(world, lambda: state(world, order) == State.AMBIGUOUS)
    return world, order, behind


@pytest.mark.requirement("AM-2", "AM-3")
def test_what_was_done_is_acknowledged_with_its_receipt_and_the_lane_goes_on(make_world: MakeWorld) -> None:
    world, order, behind = in_doubt(make_world, Fate.RESET_AFTER)
    attempts = world.laws.attempts

    reached(world, lambda: state(world, behind) == State.ACKNOWLEDGED, 5.0)
    at_rest(world)

    assert (state(world, order), said(world, order)) == ("acknowledged", "done")
    assert world.laws.attempts == attempts + 1, "only the one behind it"
    (moved,) = [m for m in world.laws.moves["crm", order.delivery_id("crm")].values() if m[2] == "acknowledged"]
    assert moved[1] == "ambiguous"
    row = world.database.find("crm", order.delivery_id("crm"))
    assert row is not None
    assert (row["asked"]["worker"], row["asked"]["http_status"], len(row["asked"]["answer_sha256"])) == ("w0", 200, 64)


@pytest.mark.requirement("AM-1", "DC-8")
def test_what_was_not_done_is_not_sent_after_its_expiry(make_world: MakeWorld) -> None:
    world, order, behind = in_doubt(make_world, Fate.VANISHED)
    attempts = world.laws.attempts

    world.timeline.run_for(40.0)

    assert (state(world, order), said(world, order)) == ("ambiguous", "not_done")
    assert (world.laws.attempts, state(world, behind)) == (attempts, "unsaid")


@pytest.mark.requirement("AM-2")
@pytest.mark.parametrize(
    ("word", "detail"), [(Word.BUSY, "in_progress"), (Word.SILENT, "read"), (Word.PAGE, "http_404")]
)
def test_whatever_proves_nothing_is_asked_again(make_world: MakeWorld, word: Word, detail: str) -> None:
    world, order, _ = in_doubt(make_world, Fate.RESET_AFTER)
    world.listener().words[order.delivery_id("crm")] = [word, word]

    reached(world, lambda: questions(world, order) == 2)
    assert (said(world, order), state(world, order)) == (detail, "ambiguous")
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED)
    at_rest(world)

    assert questions(world, order) == 3


@pytest.mark.requirement("AM-1")
def test_a_forged_answer_settles_nothing(make_world: MakeWorld) -> None:
    world, order, _ = in_doubt(make_world, Fate.VANISHED, life_s=2.0)
    world.listener().words[order.delivery_id("crm")] = [Word.FORGED] * 99

    world.timeline.run_for(40.0)

    assert (said(world, order), state(world, order)) == ("answer_to_another_question", "ambiguous")


@pytest.mark.requirement("AM-2", "RS-6", "DC-23")
def test_an_owner_is_killed_between_the_answer_and_the_move_and_the_next_one_asks(make_world: MakeWorld) -> None:
    # before the rows of both, the retry, the doubt, and then the acknowledgement
    world, order, behind = in_doubt(make_world, Fate.RESET_AFTER, workers=2, strikes={("w0", "before_row", 4): None})
    reached(world, lambda: not world.processes["w0"].is_alive)
    assert (said(world, order), state(world, order)) == ("done", "ambiguous")

    world.start("w1")
    reached(world, lambda: state(world, behind) == State.ACKNOWLEDGED, 30.0)
    at_rest(world)

    assert (state(world, order), questions(world, order)) == ("acknowledged", 2)


@pytest.mark.requirement("DC-23")
def test_an_owner_frozen_before_it_notes_an_answer_moves_nothing_when_it_wakes_up(make_world: MakeWorld) -> None:
    world, order, _ = in_doubt(make_world, Fate.RESET_AFTER, workers=2)
    reached(world, lambda: questions(world, order) == 1)
    world.processes["w0"].freeze(15.0)
    world.start("w1")
    reached(world, lambda: state(world, order) == State.ACKNOWLEDGED, 14.0)
    versions = len(world.laws.moves["crm", order.delivery_id("crm")])
    world.timeline.run_for(8.0)

    assert len(world.laws.moves["crm", order.delivery_id("crm")]) == versions
    at_rest(world)


def test_nothing_is_asked_where_no_question_is_declared(make_world: MakeWorld) -> None:
    world = make_world(hot_attempts=0, total_s=1.0)
    world.start("w0")
    order = world.relay.emit(A, life=timedelta(seconds=2))
    world.script(order, *[Fate.RESET_AFTER] * 9)
    reached(world, lambda: state(world, order) == State.AMBIGUOUS)
    world.timeline.run_for(20.0)

    assert (questions(world, order), state(world, order)) == (0, "ambiguous")
