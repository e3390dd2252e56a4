"""Skips are counted against a machine that was prepared for everything, and told to everybody else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = {
    "at run time": 'import pytest\ndef test_x():\n    pytest.skip("`make it-so` would enable it")\n',
    "by mark": 'import pytest\n@pytest.mark.skipif(True, reason="`make it-so`")\ndef test_x(): ...\n',
    "in a fixture": (
        'import pytest\n@pytest.fixture\ndef gone():\n    pytest.skip("`make it-so`")\ndef test_x(gone): ...\n'
    ),
    "a whole module": 'import pytest\npytest.skip("`make it-so`", allow_module_level=True)\n',
}


def run(folder: Path, checkout: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one test file under the project's own conftest."""
    shutil.copy(checkout / "tests" / "conftest.py", folder / "conftest.py")
    (folder / "test_x.py").write_text(text)
    without_ci = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [str(Path(sys.executable).parent / "pytest"), "-ra", "-q", "-p", "no:randomly", "test_x.py"],
        cwd=folder,
        env={**without_ci, **env},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize("text", SKIPPING.values(), ids=SKIPPING.keys())
def test_a_skip_is_a_failure_where_nothing_may_be_skipped(tmp_path: Path, checkout: Path, text: str):
    done = run(tmp_path, checkout, text, CI="true")

    assert done.returncode in {1, 2}, done.stdout
    assert "nothing may be skipped" in done.stdout


def test_a_skip_elsewhere_is_told_with_its_advice(tmp_path: Path, checkout: Path):
    done = run(tmp_path, checkout, SKIPPING["at run time"])

    assert done.returncode == 0, done.stdout
    assert "`make it-so` would enable it" in done.stdout


def test_an_expected_failure_is_no_skip(tmp_path: Path, checkout: Path):
    done = run(tmp_path, checkout, "import pytest\n@pytest.mark.xfail\ndef test_x():\n    assert 0\n", CI="true")

    assert done.returncode == 0, done.stdout


def test_a_campaign_waits_until_it_is_asked_for(tmp_path: Path, checkout: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    prove: hours\n")
    text = "import pytest\n@pytest.mark.prove\ndef test_x(): ...\ndef test_y(): ...\n"

    assert "1 passed, 1 deselected" in run(tmp_path, checkout, text).stdout
    assert "2 passed" in run(tmp_path, checkout, text, WAYBILL_PROVE="1").stdout


def test_a_campaign_repeats_chaos(tmp_path: Path, checkout: Path):
    folder = tmp_path / "chaos"
    folder.mkdir()

    assert "3 passed" in run(folder, checkout, "def test_x(): ...\n", WAYBILL_PROVE="3").stdout
