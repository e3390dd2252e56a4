"""`waybill demo` on a stack that is up: every promise kept, and nothing left running, also when interrupted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from waybill.devstack import Stack
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

COMMANDS = 100
WAYBILL = [sys.executable, "-c", "from waybill.cli import main; main()"]


def environ(stack: Stack) -> Mapping[str, str]:
    return {**os.environ, "WAYBILL_STACK": stack.name, "WAYBILL_HOME": str(stack.folder.parent.parent)}


@pytest.mark.requirement("DC-3", "DC-6", "DC-7", "DC-16", "GW-1", "GW-2", "GW-3", "GW-4", "AT-2")
def test_demo_keeps_its_promises_and_says_so_in_one_object(stack: Stack) -> None:
    done = subprocess.run(
        [*WAYBILL, "demo", "--json", "--commands", str(COMMANDS), "--timeout", "300"],
        env=environ(stack),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["ok"] is True
    assert [promise["name"] for promise in report["promises"] if not promise["kept"]] == []
    assert report["commands"] == COMMANDS
    assert report["acknowledged"] == report["deliveries"] > COMMANDS
    assert report["attempts"] > report["deliveries"]
    assert report["duplicates_suppressed"] >= 1
    assert report["rolled_back"] == COMMANDS // 20
    assert [report[name] for name in ("dead_letters", "order_violations", "lost", "doubled")] == [0, 0, 0, 0]


def test_demo_that_is_interrupted_ends_everything_it_started_and_leaves_the_stack_up(stack: Stack) -> None:
    with subprocess.Popen(
        [*WAYBILL, "demo", "--commands", "20000"], env=environ(stack), stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        started = next(line for line in demo.stderr if "emitting" in line)
        children = psutil.Process(demo.pid).children(recursive=True)

        demo.send_signal(signal.SIGINT)
        rest = demo.stderr.read()

        assert demo.wait(60) == 130, started + rest
        assert len(children) >= 6  # three listeners, two workers, the read model
        assert eventually(lambda: not any(child.is_running() for child in children))
        assert "everything that was started is ended" in rest
