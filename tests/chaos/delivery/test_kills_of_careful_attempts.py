"""A worker killed around an attempt that must not be repeated: made at most once, and nobody says what is not known."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from fixtures.fake_listener import FakeListener
from fixtures.worker_world import Victim, WorkerWorld

from waybill.contracts.fabric import Profile, RepeatBound, RetryPolicy, Timeouts
from waybill.delivery.failpoints import INTENT_STEPS
from waybill.testing.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(280)]

AGGREGATES = [f"unit/{n}" for n in range(4)]
PLAN = [(aggregate, sequence) for sequence in range(1, 4) for aggregate in AGGREGATES]
STEPS = (*INTENT_STEPS, "before_send", "answered", "flushed", "committed")
QUICK = RetryPolicy(base_s=0.05, cap_s=0.2, hot_attempts=0)
#: At these the process dies with an attempt written down and not answered.
UNKNOWN = {"after_intent", "before_send", "answered", "before_answer"}


@pytest.mark.requirement("AM-1", "GW-11", "GW-12", "DC-23", "OB-4")
@pytest.mark.parametrize("profile", [Profile.NON_IDEMPOTENT, Profile.BOUNDED_DEDUPLICATION])
def test_a_worker_killed_around_an_attempt_makes_no_forbidden_one(
    world: WorkerWorld, tmp_path: Path, profile: Profile
) -> None:
    names = {step: f"d-{step.replace('_', '-')}" for step in STEPS}
    with ExitStack() as open_things:
        listeners = {step: open_things.enter_context(FakeListener().serving()) for step in STEPS}
        for step, listener in listeners.items():
            world.add_destination(
                listener.url,
                names[step],
                profile=profile,
                retry=QUICK,
                repeats=RepeatBound(max_attempts=2),
                timeouts=Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0),
            )
        sent = world.emit(PLAN, destinations=list(names.values()))
        victims = [Victim(step.replace("_", "-"), f"{step}:kill:2", names[step]) for step in STEPS]
        with world.spawned(tmp_path, victims) as killed:
            ends = killed.ends(120)
        assert ends == {victim.slot: -signal.SIGKILL for victim in victims}, "one was not struck"

        with world.running("successor"):
            eventually(lambda: _are_settled(world, list(names.values())), 120)

    states = world.states()
    most = 1 if profile is Profile.NON_IDEMPOTENT else 2
    for step, name in names.items():
        found = [states.get(str(one.delivery(name)), {}).get("state") for one in sent]
        attempts = [listeners[step].attempts(one.delivery(name)) for one in sent]
        assert max(attempts) <= most, (step, attempts)
        lost = found.count("ambiguous")
        # whatever was under way when the process died; at some steps something surely was
        least = int(profile is Profile.NON_IDEMPOTENT and step in UNKNOWN)
        allowed = len(AGGREGATES) if profile is Profile.NON_IDEMPOTENT else 0
        assert least <= lost <= allowed, (step, found)
        for one, state, tries in zip(sent, found, attempts, strict=True):
            assert tries or state != "acknowledged", (step, one)
        assert all(listeners[step].by_aggregate()[a] == sorted(listeners[step].by_aggregate()[a]) for a in AGGREGATES)


def _are_settled(world: WorkerWorld, names: list[str]) -> bool:
    """Whether of every aggregate everything is acknowledged, or nothing behind one that is ambiguous is."""
    states = [(state["destination"], state["aggregate"], state["state"]) for state in world.states().values()]
    for name in names:
        for aggregate in AGGREGATES:
            found = [state for where, which, state in states if (where, which) == (name, aggregate)]
            if found.count("acknowledged") != 3 and "ambiguous" not in found:
                return False
    return True
