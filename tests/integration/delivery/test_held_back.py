"""A destination that people hold back, on the real stack: within seconds, over a restart, in every worker."""

from datetime import UTC, datetime

import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import WorkerWorld

from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.controls.standing import Decider, Standing, changed
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
#: People are promised this.
WITHIN_S = 5.0


def decide(world: WorkerWorld, standing: Standing) -> None:
    place = (str(world.tenant), "crm")
    who = Decider(at=datetime.now(UTC), by="ada", reason="a test")
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        ControlLog(connection).decide(*place, lambda before: changed(before, place, who, standing=standing))


def test_a_paused_destination_gets_nothing_and_loses_nothing(world: WorkerWorld, destination: FakeListener) -> None:
    world.add_destination(destination.url)
    world.emit([(f"subject/{n}", 1) for n in range(20)])
    with world.running() as worker:
        eventually(lambda: len(destination.arrivals) == 20, 40)
        valve = next(iter(worker.groups.values())).senders.valve

        decide(world, Standing.PAUSED)
        eventually(lambda: valve.is_shut, WITHIN_S)
        world.emit([(f"subject/{n}", 2) for n in range(20)])
        eventually(lambda: next(iter(worker.groups.values())).senders.ready == 20, 20)
    with world.running() as worker:
        eventually(lambda: [group.senders.ready for group in worker.groups.values()] == [20], 40)
        assert len(destination.arrivals) == 20, "over a restart too"

        decide(world, Standing.RUNNING)
        eventually(lambda: len(destination.arrivals) == 40, WITHIN_S + 5)
        eventually(lambda: {state["state"] for state in world.states().values()} == {"acknowledged"}, 20)
    assert set(map(tuple, destination.by_aggregate().values())) == {(1, 2)}
