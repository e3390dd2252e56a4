"""The import contracts hold, and bite: `.ci/lint` runs them on the real tree, this on a tree with one sin."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SINS = {
    "a component looks up": ("outbox/sin.py", "import waybill.delivery\n", "components only look down"),
    "siblings know each other": ("listener/sin.py", "import waybill.outbox\n", "components only look down"),
    "a core does I/O": ("delivery/core/sin.py", "import socket\n", "cores do no I/O"),
    "a contract asks the time": ("contracts/sin.py", "import time\n", "cores do no I/O"),
    "the producer SDK knows Kafka": ("outbox/sin.py", "import confluent_kafka\n", "the producer SDK knows no Kafka"),
    "a package nobody placed": ("newcomer/__init__.py", "", "components only look down"),
}


@pytest.mark.parametrize(("file", "line", "contract"), SINS.values(), ids=SINS.keys())
def test_import_contracts_refuse(tmp_path: Path, checkout: Path, file: str, line: str, contract: str):
    shutil.copytree(checkout / "services", tmp_path / "services", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    sin = tmp_path / "services" / "waybill" / file
    sin.parent.mkdir(exist_ok=True)
    sin.write_text(line)

    checked = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "services"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    broken = [row for row in checked.stdout.splitlines() if row.endswith("BROKEN")] or [checked.stdout + checked.stderr]
    assert checked.returncode == 1
    assert any(contract in row for row in broken) or "newcomer" in checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("waybill.outbox", {"confluent_kafka", "fastavro", "pyreqwest", "starlette", "typer", "rich", "yaml"}),
        ("waybill.listener", {"confluent_kafka", "fastavro", "pyreqwest", "typer", "rich"}),
        ("waybill.cli", {"confluent_kafka", "psycopg", "starlette", "jgo"}),
    ],
)
def test_light_packages_load_nothing_heavy(package: str, heavy: set[str]):
    script = f"import sys, {package}; print(*sorted(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert heavy & set(loaded.stdout.split()) == set()
