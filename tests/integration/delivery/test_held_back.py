"""A destination that people hold back, on the real stack: within seconds, over a restart, in every worker."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import WorkerWorld

from waybill.cli.destinations_now import Now
from waybill.contracts.fabric import RetryPolicy
from waybill.delivery.controls.report_statements import ReportLog, ReportStore
from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.controls.reports import Report
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


def now(world: WorkerWorld) -> dict[str, Any]:
    """What `waybill destinations show` tells of the destination."""
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        return Now(ReportLog(connection)).of((str(world.tenant), "crm"))


def circuits(world: WorkerWorld) -> list[str | None]:
    return [worker["circuit"] and worker["circuit"]["state"] for worker in now(world)["workers"]]


def test_how_a_dead_destination_stands_is_shown_while_it_is_so(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeListener().serving() as gone:
        pass
    ramps: list[int] = []
    write: Callable[..., Any] = ReportStore.write

    async def noting(store: ReportStore, worker: str, reports: Sequence[Report]) -> None:
        ramps.extend(report.ramp for report in reports if report.ramp is not None)
        await write(store, worker, reports)

    monkeypatch.setattr(ReportStore, "write", noting)
    world.add_destination(gone.url, concurrency=4096, retry=RetryPolicy(base_s=0.2, cap_s=1.0))
    world.emit([(f"subject/{n}", 1) for n in range(40)])
    with world.running():
        eventually(lambda: circuits(world) in (["open"], ["half_open"]), 40)
        eventually(lambda: now(world)["waiting"] > 0, 20)
        (worker,) = now(world)["workers"]
        assert (worker["held_back"]["why"], worker["partitions"], worker["silent"]) == ("dead", 2, False)

        with FakeListener(port=gone.port).serving() as mended:
            eventually(lambda: len({arrival.delivery_id for arrival in list(mended.arrivals)}) == 40, 40)
            eventually(lambda: circuits(world) == ["closed"] and now(world)["waiting"] == 0, 20)
            eventually(lambda: now(world)["workers"][0]["ramp"] is None, 20)
        assert ramps, "attempts began again slowly, and that was told"
    assert [worker["said_s_ago"] for worker in now(world)["workers"]] == [None], "it took its word back when it left"
