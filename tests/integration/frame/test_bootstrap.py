"""Set-up from nothing: what it runs, when it runs nothing, and what it says when it cannot go on.

A stand-in for uv plays the network, the disk and the index; the real one is run by whoever types `make`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

FAKE_UV = """#!/bin/sh
[ "$1" = --version ] && { echo "uv $FAKE_VERSION"; exit 0; }
echo "$@" >> "$FAKE_LOG"
case "$FAKE_TROUBLE:$*" in
  *offline-works:*--offline*) ;;
  *offline-works:*) echo "error: Failed to fetch: dns error"; exit 2 ;;
  :*) ;;
  *) echo "error: ${FAKE_TROUBLE}"; exit 2 ;;
esac
mkdir -p .venv/bin && ln -sf "$FAKE_PYTHON" .venv/bin/python && printf '#!/bin/sh\n' > .venv/bin/waybill && chmod +x .venv/bin/waybill
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def place(tmp_path: Path, checkout: Path) -> Path:
    """An empty checkout: the files set-up reads, and a stand-in for uv on the path."""
    folder = tmp_path / "checkout"
    (folder / "tools").mkdir(parents=True)
    for name in ("tools/bootstrap.py", "pyproject.toml", "uv.lock"):
        shutil.copy(checkout / name, folder / name)
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin" / "uv"
    uv.write_text(FAKE_UV)
    uv.chmod(0o755)
    return folder


@pytest.fixture
def set_up(place: Path) -> Run:
    """Run the set-up with the stand-in; keyword arguments become FAKE_* variables."""

    def run(**fake: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{place.parent / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "FAKE_VERSION": "99.0.0",
            "FAKE_TROUBLE": "",
            "FAKE_PYTHON": sys.executable,
            "FAKE_LOG": str(place.parent / "calls"),
            **{f"FAKE_{name.upper()}": value for name, value in fake.items()},
        }
        return bootstrap(place, env)

    return run


def bootstrap(place: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(place / "tools" / "bootstrap.py")]
    return subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=120, check=False)


def calls(place: Path) -> list[str]:
    log = place.parent / "calls"
    return log.read_text().splitlines() if log.exists() else []


def test_setup_installs_the_locked_environment_with_every_extra(place: Path, set_up: Run):
    done = set_up()

    assert done.returncode == 0, done.stderr
    assert calls(place) == [f"sync --frozen --extra all --python {sys.executable}"]
    assert "ready: .venv/bin/waybill" in done.stderr


def test_setup_a_second_time_runs_nothing_and_says_nothing(place: Path, set_up: Run):
    set_up()
    again = set_up(trouble="must not be called", version="0.0.1")

    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(calls(place)) == 1


@pytest.mark.parametrize("changed", ["uv.lock", "pyproject.toml"])
def test_setup_follows_a_changed_lock_or_project(place: Path, set_up: Run, changed: str):
    set_up()
    text = (place / changed).read_text()
    (place / changed).write_text(text.replace('version = "0.1.0"', 'version = "0.1.1"', 1))

    set_up()

    assert len(calls(place)) == 2


def test_setup_ignores_a_changed_tool_section(place: Path, set_up: Run):
    set_up()
    with (place / "pyproject.toml").open("a") as project:
        project.write("\n[tool.somebody]\nlikes = 'it'\n")

    set_up()

    assert len(calls(place)) == 1


def test_setup_repairs_an_environment_that_lost_its_program(place: Path, set_up: Run):
    set_up()
    (place / ".venv" / "bin" / "waybill").unlink()

    set_up()

    assert len(calls(place)) == 2


def test_setup_without_network_goes_on_from_the_cache(place: Path, set_up: Run):
    done = set_up(trouble="offline-works")

    assert done.returncode == 0, done.stderr
    assert calls(place)[-1].endswith("--offline")


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("Failed to fetch something: dns error", "Only the first run needs the network"),
        ("write: No space left on device (os error 28)", "the disk is full. Free about"),
        ("something nobody thought of", "run the same command again"),
    ],
)
def test_setup_stopped_says_what_to_do(set_up: Run, trouble: str, advice: str):
    stopped = set_up(trouble=trouble)

    assert stopped.returncode == 1
    assert trouble in stopped.stderr
    assert advice in stopped.stderr.splitlines()[-1]


def test_setup_leaves_no_stamp_when_it_failed(place: Path, set_up: Run):
    set_up(trouble="broken half-way")

    assert not (place / ".venv" / "locked-as.json").exists()
    assert set_up().returncode == 0


def test_setup_without_uv_and_without_venv_names_both_ways_out(place: Path):
    lame = place.parent / "lame-python"
    lame.write_text('#!/bin/sh\necho "ensurepip is not available" >&2; exit 1\n')
    lame.chmod(0o755)
    start = f"import sys, runpy; sys.executable = {str(lame)!r}; runpy.run_path({str(place / 'tools/bootstrap.py')!r}, run_name='__main__')"

    stopped = subprocess.run(
        [sys.executable, "-c", start],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert stopped.returncode == 1
    assert "apt-get install python3-venv" in stopped.stderr


def test_setup_takes_no_uv_older_than_the_lock_needs(place: Path):
    env = {"PATH": str(place.parent / "bin"), "FAKE_VERSION": "0.4.1", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}

    stopped = bootstrap(place, {**env, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"})

    assert "installing uv" in stopped.stderr
    assert stopped.returncode == 1
