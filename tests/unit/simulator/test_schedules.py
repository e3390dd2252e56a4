"""Thousands of schedules break no law, and the same seed does the same again, in another process too."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from waybill.contracts.fabric import Profile
from waybill.infra.log import silenced
from waybill.simulator import Verdict, draw, play, run_seed, run_seeds
from waybill.simulator.schedule import CommandKind, FaultKind

#: Any number more by `waybill sim --seeds`.
BLOCKS, BLOCK = 6, 150


def told(verdict: Verdict) -> str:
    again = run_seed(verdict.seed, is_traced=True)
    found = [str(violation) for violation in again.violations]
    return "\n".join([*again.trace.lines(), *found, f"again: waybill sim --seeds 1 --seed {verdict.seed} --trace"])


@pytest.mark.requirement("DC-1", "DC-19", "DC-22", "DC-23", "GW-11", "GW-12", "GW-17", "RS-3", "AM-1", "AM-2")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_schedules_break_no_law(block: int) -> None:
    for verdict in run_seeds(block * BLOCK, BLOCK):
        assert verdict.ok, told(verdict)


def test_schedules_do_what_they_are_for() -> None:
    drawn = [draw(seed) for seed in range(400)]

    assert {fault.kind for schedule in drawn for fault in schedule.faults} == set(FaultKind)
    assert {command.kind for schedule in drawn for command in schedule.commands} == set(CommandKind)
    assert sum(schedule.setup.workers > 1 for schedule in drawn) > 200
    assert sum(bool(schedule.setup.strikes) for schedule in drawn) > 100
    assert all(sum(schedule.setup.profile is profile for schedule in drawn) > 60 for profile in Profile)
    assert sum(schedule.setup.settle_after_s is not None for schedule in drawn) > 150


def test_a_seed_does_the_same_again_in_another_process() -> None:
    script = (
        "import json; from waybill.simulator import run_seed;"
        "print(json.dumps({s: run_seed(s, is_traced=True).trace.digest() for s in range(8)}))"
    )
    here = {str(seed): run_seed(seed, is_traced=True).trace.digest() for seed in range(8)}

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert json.loads(ran.stdout) == here
    assert len(set(here.values())) == 8


def test_a_run_without_a_trace_does_the_same() -> None:
    for seed in range(4):
        kept, bare = run_seed(seed, is_traced=True), run_seed(seed)
        assert (bare.seconds, bare.attempts, bare.effects) == (kept.seconds, kept.attempts, kept.effects)
        assert bare.trace.lines() == []


def test_a_run_that_cannot_go_on_is_a_finding() -> None:
    schedule = draw(0)
    broken = replace(schedule, setup=replace(schedule.setup, partitions=0))

    with silenced():
        verdict = play(broken)

    assert not verdict.ok
    assert "I4" in str(verdict.violations[0])
