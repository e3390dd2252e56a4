"""`waybill sim`: one document, an exit code, and the one command that does a failure again."""

import json

import pytest
from typer.testing import CliRunner

from waybill.cli import sim
from waybill.simulator import Verdict, run_seed
from waybill.simulator.laws import Violation
from waybill.simulator.trace import Trace


def test_good_seeds_are_counted() -> None:
    ran = CliRunner().invoke(sim.app, ["--seeds", "3", "--seed", "5", "--json"])

    document = json.loads(ran.stdout)
    assert ran.exit_code == 0
    assert (document["ok"], document["seeds"], document["failed"], document["failures"]) == (True, 3, 0, [])
    assert document["effects"] > 0


def test_a_failing_seed_is_told_with_the_command_that_does_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, *, is_traced: bool = False) -> Verdict:
        if seed != 6:
            return run_seed(seed, is_traced=is_traced)
        trace = Trace(is_kept=is_traced)
        trace("w0", "did what it must not")
        violation = Violation("I2", 1.0, "two attempts")
        return Verdict(seed=6, violations=(violation,), seconds=1.0, attempts=2, effects=1, trace=trace)

    monkeypatch.setattr(sim, "run_seed", run)
    ran = CliRunner().invoke(sim.app, ["--seeds", "3", "--seed", "5", "--json"])

    document = json.loads(ran.stdout)
    assert ran.exit_code == 1
    assert (document["ok"], document["seeds"], document["failed"]) == (False, 3, 1)
    (failure,) = document["failures"]
    assert failure == {
        "seed": 6,
        "violations": ["I2 broken at 1.000: two attempts"],
        "again": "waybill sim --seeds 1 --seed 6 --trace",
    }
