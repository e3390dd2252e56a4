"""How destinations stand, told on the real stack: each turn once, and only what a route asks for."""

import json
import signal
import uuid
from contextlib import closing

import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.fix_events import EventsWorld, state_record

from waybill.events.core.telling import Event, event_of
from waybill.events.store import EventStore
from waybill.kernel.errors import RefusedError
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def test_each_turn_is_told_once_over_kills_and_what_nobody_asks_for_never(events: EventsWorld):
    events.turn("paused")  # before anybody was told anything
    with events.running() as process:
        events.turn("running")
        events.turn("running", rate=5.0)  # its limits alone
        events.turn("paused", "mail")
        eventually(lambda: len(events.told("destination")) == 2, within_s=60)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    events.turn("draining")  # no route asks for it
    events.turn("closed")
    with events.running():
        eventually(lambda: len(events.told("destination")) == 3, within_s=60)
        events.turn("running", "mail")
        eventually(lambda: len(events.told("destination")) == 4, within_s=60)

    told = [
        (event.removeprefix("waybill.destination."), aggregate) for event, aggregate, _ in events.told("destination")
    ]
    crm, mail = "waybill.destination/crm", "waybill.destination/mail"
    assert told == [("resumed", crm), ("paused", mail), ("closed", crm), ("resumed", mail)]
    assert len({operation for _, _, operation in events.told("destination")}) == 4


def test_a_listener_is_told_that_a_destination_was_paused_and_by_whom(events: EventsWorld):
    with FakeListener().serving() as watcher, events.running():
        events.road.add_destination(watcher.url, "watcher")
        with events.road.running():
            events.turn("paused")
            eventually(lambda: len(watcher.arrivals) == 1, within_s=120)

    body = json.loads(watcher.arrivals[0].body)
    assert (body["type"], body["subject"]) == ("waybill.destination.paused", "waybill.destination/crm")
    assert {name: body["data"][name] for name in ("destination", "standing", "before", "by", "reason")} == {
        "destination": "crm", "standing": "paused", "before": "running", "by": "ann", "reason": "a window",
    }  # fmt: skip


def test_an_outbox_that_refuses_leaves_position_and_told_as_they_were(events: EventsWorld):
    told = event_of(state_record(events.pipe.tenant))
    assert told is not None
    refused = Event(
        event_id=uuid.uuid4(), event_type="nobody.routes.it", aggregate_type="nobody", aggregate_id="1", data={}
    )
    with closing(psycopg.connect(events.pipe.dsn)) as connection:
        store = EventStore(connection, events.pipe.tenant, "waybill")
        before = store.positions("states", [5])

        with pytest.raises(RefusedError):
            store.tell("states", before, {0: 9}, [told, refused])

        assert store.positions("states", [5]) == {0: 5}
        assert store.tell("states", before, {0: 9}, [told]) == [told], "it is not known yet"
        assert store.positions("states", [5]) == {0: 9}
