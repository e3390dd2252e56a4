"""Nothing a former owner writes after it lost its partition lands, in Kafka or in PostgreSQL."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import Victim, WorkerWorld

from waybill.testing.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(200)]
PLAN = [(f"subject/{n % 6}", n // 6 + 1) for n in range(30)]


@pytest.mark.requirement("DC-23")
def test_a_worker_frozen_between_flush_and_commit_wakes_up_to_nothing(
    world: WorkerWorld, destination: FakeListener, tmp_path: Path
) -> None:
    world.add_destination(destination.url)
    with world.spawned(tmp_path, [Victim("frozen", "flushed:freeze:3")]) as frozen:
        world.emit(PLAN)
        eventually(lambda: frozen.has_state("frozen", psutil.STATUS_STOPPED), 60)
        before = {o["attempt_id"] for o in world.outcomes()}

        with world.running("successor", with_intake=False):
            eventually(lambda: len(_acknowledged(world)) == len(PLAN), 60)
            after = world.committed()
            os.kill(frozen.pids["frozen"], signal.SIGCONT)
            eventually(lambda: psutil.Process(frozen.pids["frozen"]).cpu_times().user > 0, 5)
            more = world.emit([(f"subject/{n}", 6) for n in range(6)])
            eventually(lambda: {str(m.delivery()) for m in more} <= _acknowledged(world), 60)
            assert world.committed() >= after, "an offset never goes back"

    landed = [o for o in world.outcomes() if o["worker"].endswith("frozen") and o["attempt_id"] not in before]
    held = {o["delivery_id"] for o in landed}
    assert not held & _first_of_successor(world, before), "what it had flushed when it froze did not land"
    assert destination.by_aggregate() == {f"subject/{n}": [1, 2, 3, 4, 5, 6] for n in range(6)}


@pytest.mark.requirement("DC-23")
def test_a_former_owner_frozen_with_its_database_lock_does_not_block_the_next(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    world.emit(PLAN[:6])
    with world.running("first", with_intake=False):
        eventually(lambda: len(_acknowledged(world)) == 6, 40)

    with closing(psycopg.connect(world.dsn)) as holder:
        (locked,) = holder.execute(
            "SELECT count(*) FROM (SELECT 1 FROM delivery.partition_owner WHERE tenant = %s FOR SHARE) AS o",
            (world.tenant,),
        ).fetchone() or (0,)
        assert locked == 2
        world.emit(PLAN[6:])
        with world.running("second", with_intake=False):
            eventually(lambda: len(_acknowledged(world)) == len(PLAN), 40)
        with pytest.raises(psycopg.Error, match="idle-in-transaction"):
            holder.execute("SELECT 1")


@pytest.mark.requirement("DC-23")
def test_a_lost_partition_in_a_batch_does_not_take_the_kept_one_with_it(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    gate = Gate()
    with world.running("keeps", with_intake=False, act=gate.pass_through) as first:
        warm = world.emit(PLAN[:12])
        eventually(lambda: len(_acknowledged(world)) == len(warm), 40)
        (group,) = first.groups.values()
        with gate.closed():
            world.emit(PLAN[12:])
            eventually(lambda: gate.is_waiting, 20)
            with world.running("joins", with_intake=False) as second:
                eventually(lambda: any(a.is_taken for g in second.groups.values() for a in g.actors.values()), 60)
                gate.open()
                eventually(lambda: len(_acknowledged(world)) == len(PLAN), 60)
                eventually(lambda: sum(a.is_taken for a in group.actors.values()) == 1, 20)

    assert destination.by_aggregate() == {f"subject/{n}": [1, 2, 3, 4, 5] for n in range(6)}


class Gate:
    """Holds a transaction between flush and offsets."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.is_waiting = False

    def pass_through(self, step: str) -> None:
        if step == "flushed" and not self._open.is_set():
            self.is_waiting = True
            self._open.wait(60)

    def open(self) -> None:
        self._open.set()

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


def _acknowledged(world: WorkerWorld) -> set[str]:
    return {key for key, state in world.states().items() if state["state"] == "acknowledged"}


def _first_of_successor(world: WorkerWorld, before: set[str]) -> set[str]:
    """Deliveries whose move to acknowledged is told by the successor."""
    return {
        o["delivery_id"]
        for o in world.outcomes()
        if o["worker"].endswith("successor") and o["outcome_id"] is not None and o["attempt_id"] not in before
    }
