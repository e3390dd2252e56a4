"""Where the parts are: what is said wins over the local stack, and a worker logs in as the role that may least."""

import json
from pathlib import Path

import pytest

from waybill.infra.addresses import Addresses
from waybill.kernel.errors import UnavailableError

STACK = {"kafka": "k:1", "control_dsn": "local-admin", "worker_dsn": "local-worker"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "stacks" / "default"
    folder.mkdir(parents=True)
    (folder / "stack.json").write_text(json.dumps({"addresses": STACK}))
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "worker", "control"),
    [
        ({}, "local-worker", "local-admin"),
        ({"WAYBILL_CONTROL_DSN": "other"}, "other", "other"),  # another database: never half of each
        ({"WAYBILL_WORKER_DSN": "least"}, "least", "local-admin"),
        ({"WAYBILL_CONTROL_DSN": "other", "WAYBILL_WORKER_DSN": "least"}, "least", "other"),
    ],
)
def test_a_worker_logs_in_as_it_is_told_else_as_the_stacks_worker(
    home: Path, environ: dict[str, str], worker: str, control: str
) -> None:
    found = Addresses.load({"WAYBILL_HOME": str(home), **environ}, home)

    assert (found.worker_dsn, found.control_dsn) == (worker, control)


def test_a_stack_from_before_has_only_the_one_login(home: Path) -> None:
    (home / "stacks" / "default" / "stack.json").write_text(json.dumps({"addresses": {"control_dsn": "local-admin"}}))

    assert Addresses.load({"WAYBILL_HOME": str(home)}, home).worker_dsn == "local-admin"


def test_what_is_nowhere_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"WAYBILL_WORKER_DSN.*waybill dev up"):
        Addresses.load({"WAYBILL_HOME": str(tmp_path)}, tmp_path).need("worker_dsn")
