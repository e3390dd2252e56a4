"""Which states are told, as what, under which identity."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fixtures.fix_events import state_record

from waybill.contracts.events import DELIVERY_EVENTS, DESTINATION_EVENTS, EVENT_TYPES
from waybill.contracts.states import State
from waybill.delivery.core.controls.standing import Standing
from waybill.events.core.telling import MAX_AGGREGATE, Turn, event_of, event_of_turn

#: Every state there is, with the event about it.
TOLD = {
    State.QUEUED: None,
    State.DELIVERED: None,
    State.ACKNOWLEDGED: "waybill.delivery.acknowledged",
    State.RETRYING: None,
    State.AMBIGUOUS: "waybill.delivery.ambiguous",
    State.FAILED: "waybill.delivery.failed",
    State.EXCEPTION: None,
    State.DEAD_LETTER: "waybill.delivery.dead_lettered",
}


@pytest.mark.parametrize(("state", "event_type"), TOLD.items(), ids=[state.value for state in TOLD])
def test_a_state_is_told_as_its_event(state: State, event_type: str | None):
    event = event_of(state_record("acme", state=state.value))

    assert (event.event_type if event is not None else None) == event_type


def test_every_state_has_a_row():
    assert set(TOLD) == set(State)
    assert set(DELIVERY_EVENTS) == {state for state, event in TOLD.items() if event is not None}


@pytest.mark.parametrize("command_type", ["waybill.delivery.acknowledged", "waybill.gap-resolution", "waybill.canary"])
def test_a_delivery_of_waybills_own_is_never_told(command_type: str):
    assert event_of(state_record("acme", command_type=command_type)) is None


def test_the_same_move_has_the_same_id_and_another_move_another():
    state = state_record("acme")

    first, again, later = event_of(state), event_of(dict(state)), event_of({**state, "version": 2})

    assert first is not None
    assert again is not None
    assert later is not None
    assert first.event_id == again.event_id != later.event_id


def test_an_event_says_what_became_of_it_and_is_json():
    state = state_record("acme", state="failed", error_code="VALIDATION", detail="expired", proof_level=None)

    event = event_of(state)

    assert event is not None
    said = json.loads(json.dumps(event.data))
    assert said["eventId"] == str(event.event_id)
    assert (said["state"], said["errorCode"], said["detail"]) == ("failed", "VALIDATION", "expired")
    assert (said["deliveryId"], said["commandId"]) == (state["delivery_id"], state["command_id"])
    assert said["at"] == "2026-12-01T10:30:00.000Z"


@pytest.mark.parametrize("length", [10, 238, 239, 255])
def test_an_aggregate_of_any_length_orders_its_events(length: int):
    aggregate = "subject/" + "x" * (length - 8)

    event, other = (event_of(state_record("acme", aggregate=each)) for each in (aggregate, aggregate[:-1] + "y"))

    assert event is not None
    assert other is not None
    assert len(f"waybill.delivery/{event.aggregate_id}") <= MAX_AGGREGATE
    assert event.aggregate_id != other.aggregate_id


TURN = Turn(
    number=7, tenant="acme", destination="crm", before="running", standing="paused",
    at=datetime(2026, 12, 1, 10, 30, tzinfo=UTC), by="ann", reason="a window",
)  # fmt: skip


def test_every_standing_has_an_event_of_its_own():
    assert set(DESTINATION_EVENTS) == {standing.value for standing in Standing}
    told = [event_of_turn(replace(TURN, standing=standing.value)).event_type for standing in Standing]
    assert len(set(told)) == len(told)
    assert set(told) <= set(EVENT_TYPES)


def test_a_turn_says_who_and_why_and_is_ordered_by_its_destination():
    event = event_of_turn(TURN)

    assert (event.event_type, event.aggregate_type, event.aggregate_id) == (
        "waybill.destination.paused", "waybill.destination", "crm",
    )  # fmt: skip
    assert event.data == {
        "eventId": str(event.event_id), "tenant": "acme", "destination": "crm", "standing": "paused",
        "before": "running", "by": "ann", "reason": "a window", "at": "2026-12-01T10:30:00.000Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"number": 8},
        {"tenant": "other"},
        {"destination": "mail"},
        {"at": TURN.at + timedelta(milliseconds=1)},  # a number that a database which was set back gave once more
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_same_turn_has_one_id_and_another_has_another(other: dict[str, object]):
    assert event_of_turn(TURN).event_id == event_of_turn(replace(TURN, reason="read again")).event_id
    assert event_of_turn(TURN).event_id != event_of_turn(replace(TURN, **other)).event_id  # type: ignore[arg-type]
