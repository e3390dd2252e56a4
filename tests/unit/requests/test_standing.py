"""What completes a request: the truth table, and the same answer in whatever order the facts were read."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.states import State
from waybill.requests.core.completion import Chapter, Turn, turn
from waybill.requests.core.standing import (
    ApprovedException,
    Closing,
    Delivery,
    Outcome,
    newest,
    satisfies,
    standing,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def named(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.UUID(int=1), name)


def delivery(command: str = "a", destination: str = "crm", **changes: object) -> Delivery:
    made = Delivery(
        delivery_id=named(f"{command}/{destination}"),
        command_id=named(command),
        destination=destination,
        required=True,
        request_size=1,
    )
    return replace(made, **changes)


def outcome(of: Delivery, state: State, version: int = 1, at: datetime = NOW) -> Outcome:
    return Outcome(delivery_id=of.delivery_id, version=version, state=state, at=at)


def excuse(of: Delivery, **changes: object) -> ApprovedException:
    made = ApprovedException(delivery_id=of.delivery_id, permits_closure=True, expires_at=NOW + HOUR)
    return replace(made, **changes)


def is_complete(deliveries: list[Delivery], outcomes: list[Outcome], *exceptions: ApprovedException) -> bool:
    return standing(deliveries, newest(outcomes), exceptions, NOW).is_complete


@pytest.mark.requirement("RS-11")
@pytest.mark.parametrize(
    ("required", "state", "approved", "permits"), list(product([True, False], State, [True, False], [True, False]))
)
def test_complete_only_when_acknowledged_or_excused_with_leave_to_close(
    required: bool, state: State, approved: bool, permits: bool
):
    one = delivery(required=required)
    exceptions = [excuse(one, permits_closure=permits)] if approved else []
    closes = state is State.ACKNOWLEDGED or (approved and permits)

    assert is_complete([one], [outcome(one, state)], *exceptions) == (closes or not required)


@pytest.mark.requirement("RS-11")
def test_a_request_whose_size_nobody_said_is_never_complete():
    one = delivery(request_size=None)

    assert not is_complete([one], [outcome(one, State.ACKNOWLEDGED)])


def test_a_request_waits_for_every_command_it_is_to_have():
    one, two = delivery("a", request_size=2), delivery("b", request_size=None)

    assert not is_complete([one], [outcome(one, State.ACKNOWLEDGED)])
    assert is_complete([one, two], [outcome(one, State.ACKNOWLEDGED), outcome(two, State.ACKNOWLEDGED)])


def test_of_two_sizes_the_larger_counts():
    one, two = delivery("a", request_size=1), delivery("b", request_size=3)

    assert not is_complete([one, two], [outcome(one, State.ACKNOWLEDGED), outcome(two, State.ACKNOWLEDGED)])


def test_a_command_without_a_state_is_in_the_way():
    assert not is_complete([delivery()], [])


def test_a_state_without_its_command_counts_for_nothing():
    one, unread = delivery(request_size=2), delivery("b")

    assert not is_complete([one], [outcome(one, State.ACKNOWLEDGED), outcome(unread, State.ACKNOWLEDGED)])


def test_a_correction_counts_in_place_of_what_it_corrects():
    old = delivery("old", request_size=1)
    new = delivery("new", request_size=1, replaces=named("old"))

    found = standing([old, new], newest([outcome(old, State.FAILED), outcome(new, State.ACKNOWLEDGED)]), (), NOW)

    assert (found.commands, found.done, found.open, found.is_complete) == (1, 1, 0, True)
    assert not is_complete([old, new], [outcome(old, State.ACKNOWLEDGED), outcome(new, State.QUEUED)])


def test_a_destination_that_the_correction_does_not_go_to_still_has_to_do_what_it_was_told():
    old, elsewhere = delivery("old", "crm"), delivery("old", "mail")
    new = delivery("new", "crm", replaces=named("old"))
    done = [outcome(new, State.ACKNOWLEDGED)]

    assert not is_complete([old, elsewhere, new], done)
    assert is_complete([old, elsewhere, new], [*done, outcome(elsewhere, State.ACKNOWLEDGED)])


@pytest.mark.parametrize("names", [("a", "a"), ("a", "b")])
def test_commands_that_replace_themselves_or_each_other_complete_nothing_by_it(names: tuple[str, str]):
    first, second = names
    commands = list({delivery(first, replaces=named(second)), delivery(second, replaces=named(first))})

    assert not is_complete(commands, [])


@pytest.mark.parametrize(("left", "expected"), [(timedelta(microseconds=1), Closing.EXCUSED), (0 * HOUR, Closing.OPEN)])
def test_an_exception_counts_until_it_expires(left: timedelta, expected: Closing):
    one = delivery()

    assert satisfies(State.FAILED, [excuse(one, expires_at=NOW + left)], NOW) is expected


def test_it_is_known_how_long_a_request_stays_complete():
    one, two = delivery("a"), delivery("b")
    exceptions = [
        excuse(one, expires_at=NOW + 3 * HOUR),
        excuse(one, expires_at=NOW + 2 * HOUR),
        excuse(two, expires_at=NOW + 5 * HOUR),
    ]
    excused = newest([outcome(one, State.FAILED), outcome(two, State.AMBIGUOUS)])

    found = standing([one, two], excused, exceptions, NOW)

    assert (found.excused, found.leans_until) == (2, NOW + 3 * HOUR)
    assert not standing([one, two], excused, exceptions, NOW + 3 * HOUR).is_complete


states = st.sampled_from(State)
facts = st.lists(
    st.builds(
        lambda name, version, state: outcome(delivery(name), state, version),
        st.sampled_from("abc"),
        st.integers(0, 3),
        states,
    ),
    max_size=12,
    # an owner writes one state for a version; a copy of a record is the same record
    unique_by=lambda each: (each.delivery_id, each.version),
)


@given(facts, st.data())
def test_any_order_and_any_copies_give_the_same(events: list[Outcome], data: st.DataObject):
    deliveries = [delivery("a", request_size=3), delivery("b"), delivery("c", replaces=named("a"))]
    straight = standing(deliveries, newest(events), (), NOW)

    again = data.draw(st.permutations([*events, *events]))
    shuffled = data.draw(st.permutations(deliveries))

    assert standing(shuffled, newest(again), (), NOW) == straight


@given(facts)
def test_facts_in_two_batches_come_to_what_one_batch_comes_to(events: list[Outcome]):
    half = len(events) // 2

    assert newest([*newest(events[:half]).values(), *events[half:]]) == newest(events)


@given(st.lists(st.booleans()))
def test_a_completion_number_is_told_once_and_only_grows(seen: list[bool]):
    chapter, told = Chapter(), []
    for is_complete_now in seen:
        chapter, what = turn(chapter, is_complete=is_complete_now)
        if what is not None:
            told.append((what, chapter.completions))

    completed = [number for what, number in told if what is Turn.COMPLETED]
    reopened = [number for what, number in told if what is Turn.REOPENED]
    assert completed == list(range(1, len(completed) + 1))
    assert reopened == completed[: len(reopened)]
    assert len(completed) - len(reopened) == int(chapter.is_complete)
