"""Everything is killed, frozen and cut under load, and independent books find every promise kept, or say that not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from waybill.devstack import reset
from waybill.infra.addresses import home_folder

WAYBILL = [sys.executable, "-c", "from waybill.cli import main; main()"]
#: With set-up, healing and rest two minutes, on a machine of its own.
SHORT = ("--minutes", "1.3", "--commands", "20000", "--aggregates", "600")

#: What keeps a committed offset from passing an unfinished record, and what a careless worker has there.
GUARD = ("delivery/core/lanes.py", "return next(iter(self._outstanding), self.position)", "return self.position")


def campaign(*words: str, environ: Mapping[str, str], cwd: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Run one through the command line; return its exit code and its report. What it says goes to stderr.

    Whatever ends the test, the campaign is asked to end what it started.
    """
    with subprocess.Popen(
        [*WAYBILL, "chaos", "--json", *words],
        env={**os.environ, **environ},
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()
            process.wait(120)
            raise
    assert said, f"no report, exit code {process.returncode}: see what it said on stderr"
    return process.returncode, json.loads(said)


@pytest.fixture
def ground() -> Iterator[dict[str, str]]:
    """Name a stack of its own: the broker of the session's carries the topics of all tests, and is back after minutes."""
    name = f"pytest-{os.getpid()}-campaign"
    yield {"WAYBILL_STACK": name, "WAYBILL_HOME": str(home_folder(os.environ, Path.cwd()))}
    reset(name)


def every_promise_was_kept(code: int, report: Mapping[str, Any]) -> None:
    assert (code, report["ok"], report["reasons"]) == (0, True, []), report
    zeros: tuple[str, ...] = (
        "lost",
        "foreign",
        "order_violations",
        "double_effects",
        "non_idempotent_repeats",
        "changed_bodies",
    )
    zeros += ("open", "parked", "crashes")
    assert {name: report[name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert report["ambiguous"] <= report["ambiguous_allowed"]
    assert report["promised"] > 20_000
    assert report["aggregates"] >= 500
    assert report["hit_in_flight"] > 0


@pytest.mark.stack
@pytest.mark.timeout(900)
@pytest.mark.requirement("DC-1", "DC-5", "DC-6", "DC-7", "DC-16", "DC-23", "GW-9", "OB-4")
def test_nothing_is_lost_doubled_or_reordered_whatever_is_killed(ground: dict[str, str], prove_round: int) -> None:
    code, report = campaign(*SHORT, "--seed", str(prove_round), environ=ground)

    every_promise_was_kept(code, report)


@pytest.mark.prove
@pytest.mark.stack
@pytest.mark.timeout(3600)
def test_three_brokers_of_which_one_at_a_time_is_away_lose_nothing(ground: dict[str, str], prove_round: int) -> None:
    words = ("--brokers", "3", "--minutes", "10", "--commands", "100000", "--aggregates", "2000")
    code, report = campaign(*words, "--seed", str(prove_round), environ=ground)

    every_promise_was_kept(code, report)


@pytest.mark.prove
@pytest.mark.stack
@pytest.mark.timeout(1800)
def test_a_worker_that_commits_past_unfinished_records_is_found_out(
    ground: dict[str, str], checkout: Path, tmp_path: Path, prove_round: int
) -> None:
    for folder in ("services", "avro", "topics", "connect"):
        shutil.copytree(checkout / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    file, guard, instead = GUARD
    path = tmp_path / "services" / "waybill" / file
    assert path.read_text().count(guard) == 1
    path.write_text(path.read_text().replace(guard, instead))

    environ = {**ground, "PYTHONPATH": str(tmp_path / "services"), "PYTHONDONTWRITEBYTECODE": "1"}
    code, report = campaign(*SHORT, "--seed", str(prove_round), environ=environ, cwd=tmp_path)

    assert (code, report["ok"]) == (1, False)
    assert report["lost"] > 0
    assert report["order_violations"] > 0
