"""What became of deliveries, told on the real stack: once each over kills, in order, and only what a route asks for."""

import json
import signal
import uuid

import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.fix_events import EventsWorld, state_record

from waybill.kernel.ids import DeliveryId, outcome_id
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def event_id(state: dict[str, object]) -> str:
    return str(outcome_id(DeliveryId(uuid.UUID(str(state["delivery_id"]))), int(str(state["version"]))))


def test_each_state_is_told_once_in_order_over_a_kill_and_a_state_that_is_written_again(events: EventsWorld):
    tenant = events.pipe.tenant
    states = [state_record(tenant, aggregate=f"subject/{number % 5}", sequence=number + 1) for number in range(3000)]

    with events.running() as process:
        events.write_states(*states[:2000])
        eventually(lambda: len(events.told()) > 0, within_s=60)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    events.write_states(*states[2000:], *states[:200])
    with events.running() as process:
        eventually(lambda: events.behind() == 0, within_s=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    assert events.told() == [
        ("waybill.delivery.acknowledged", f"waybill.delivery/{state['aggregate']}", event_id(state)) for state in states
    ]


def test_only_what_a_route_asks_for_is_told_and_never_the_delivery_of_an_event(events: EventsWorld):
    tenant = events.pipe.tenant
    before = state_record(tenant, state="failed")
    told = [
        state_record(tenant, state="failed", error_code="VALIDATION", proof_level=None, version=2),
        state_record(tenant, state="dead_letter", proof_level=None, version=3),
        state_record(tenant),
    ]
    untold = [
        state_record(tenant, state="ambiguous", proof_level=None),
        state_record(tenant, state="retrying", proof_level=None),
        state_record(tenant, command_type="waybill.delivery.acknowledged", aggregate="waybill.delivery/subject/7"),
    ]

    events.write_states(before)
    with events.running():
        events.write_states(*untold, *told)
        eventually(lambda: events.behind() == 0, within_s=60)

    wanted = zip(("failed", "dead_lettered", "acknowledged"), told, strict=True)
    assert events.told() == [
        (f"waybill.delivery.{name}", "waybill.delivery/subject/7", event_id(state)) for name, state in wanted
    ]


def test_a_listener_receives_what_became_of_a_command_once_and_signed(events: EventsWorld, destination: FakeListener):
    def refuse_the_second(arrival: Arrival) -> Reply:
        return receipt() if arrival.sequence != 2 else (422, {}, b"")

    destination.behave = refuse_the_second
    with FakeListener().serving() as watcher, events.running():
        events.road.add_destination(destination.url)
        events.road.add_destination(watcher.url, "watcher")
        with events.road.running():
            events.pipe.emit(2, aggregates=1)
            eventually(lambda: len(watcher.arrivals) >= 2, within_s=120)
            eventually(lambda: len(events.road.states()) == 4, within_s=60)
            eventually(lambda: events.behind() == 0, within_s=60)

    bodies = [json.loads(arrival.body) for arrival in watcher.arrivals]
    assert [arrival.aggregate for arrival in watcher.arrivals] == ["waybill.delivery/subject/s0"] * 2
    assert [arrival.sequence for arrival in watcher.arrivals] == [1, 2]
    assert bodies[0]["type"] == "waybill.delivery.acknowledged"
    assert bodies[1]["type"] in ("waybill.delivery.failed", "waybill.delivery.dead_lettered")
    assert [body["data"]["deliveryId"] for body in bodies] == [each.delivery_id for each in destination.arrivals]
    assert all("v1a," in arrival.headers["webhook-signature"] for arrival in watcher.arrivals)
    assert len(events.told()) == 2
