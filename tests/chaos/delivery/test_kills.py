"""A worker killed at every step leaves something to finish, never something to guess."""

import signal
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.worker_world import Victim, WorkerWorld

from waybill.contracts.fabric import RetryPolicy
from waybill.delivery.failpoints import INTENT_STEPS, STEPS
from waybill.testing.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(280)]

#: Steps of an attempt that is written down first are passed at other destinations.
PASSED = tuple(step for step in STEPS if step not in INTENT_STEPS)
AGGREGATES = [f"subject/{n}" for n in range(4)]
PLAN = [(aggregate, sequence) for sequence in range(1, 6) for aggregate in AGGREGATES]


class Flaky:
    """Refuses the first attempt of every second delivery, so that rows are written, moved and published."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, arrival: Arrival) -> Reply:
        if arrival.sequence % 2 and arrival.delivery_id not in self.seen:
            self.seen.add(arrival.delivery_id)
            return 503, {}, b""
        return receipt()


@pytest.mark.requirement("DC-1", "DC-6", "DC-16", "DC-23", "OB-4")
def test_a_worker_killed_at_every_step_loses_doubles_and_reorders_nothing(world: WorkerWorld, tmp_path: Path) -> None:
    names = [f"d-{step.replace('_', '-')}" for step in PASSED]
    with ExitStack() as open_things:
        listeners = {name: open_things.enter_context(FakeListener(behave=Flaky()).serving()) for name in names}
        for name, listener in listeners.items():
            world.add_destination(listener.url, name, retry=RetryPolicy(base_s=0.05, cap_s=0.2, hot_attempts=0))
        sent = world.emit(PLAN, destinations=names)
        victims = [
            Victim(step.replace("_", "-"), f"{step}:kill:2", name) for step, name in zip(PASSED, names, strict=True)
        ]

        with world.spawned(tmp_path, victims) as killed:
            ends = killed.ends(120)
        assert ends == {victim.slot: -signal.SIGKILL for victim in victims}, "one was not struck"

        with world.running("successor"):
            eventually(lambda: len(_acknowledged(world)) == len(sent) * len(names), 90)

    assert {name: {aggregate: [1, 2, 3, 4, 5] for aggregate in AGGREGATES} for name in names} == {
        name: dict(listener.by_aggregate()) for name, listener in listeners.items()
    }
    _versions_rise_by_one(world)
    assert not [row for row in world.rows() if row["blocks"] or row["pending_outcome"]]


def _acknowledged(world: WorkerWorld) -> set[str]:
    return {key for key, state in world.states().items() if state["state"] == "acknowledged"}


def _versions_rise_by_one(world: WorkerWorld) -> None:
    """Distinct moves of each delivery are 1..n, each with one account of what it was."""
    moves: dict[str, dict[str, tuple[object, ...]]] = defaultdict(dict)
    for outcome in world.outcomes():
        if outcome["outcome_id"] is not None:
            moves[outcome["delivery_id"]].setdefault(
                outcome["outcome_id"], (outcome["version"], outcome["state_before"], outcome["state_after"])
            )
    for delivery, found in moves.items():
        ordered = sorted(found.values())
        assert [version for version, _, _ in ordered] == list(range(1, len(ordered) + 1)), delivery
