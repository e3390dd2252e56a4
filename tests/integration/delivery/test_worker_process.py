"""A worker as a process: follows configuration, says how it is, starts and stops cleanly."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.fake_listener import FakeListener
from fixtures.fix_stack import FreshDatabase
from fixtures.worker_world import WorkerWorld

from waybill.cli.migrate import migrate_all
from waybill.contracts.names import delivery_group
from waybill.delivery.main import hold_slot
from waybill.infra.metrics import MetricsServer
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_running_worker_follows_changes_and_each_outcome_names_the_version_used(
    world: WorkerWorld, destination: FakeListener
) -> None:
    with FakeListener().serving() as elsewhere, world.running() as worker:
        config = world.add_destination(destination.url)
        world.emit([("subject/a", 1)])
        eventually(lambda: len(world.states()) == 1, 30)

        world.set_destination(replace(config, url=elsewhere.url, concurrency=3))
        eventually(lambda: all(g.target.url == elsewhere.url for g in worker.groups.values()), 5)
        world.emit([("subject/a", 2)])
        eventually(lambda: elsewhere.arrivals, 20)

        world.add_destination(destination.url, "dwh")
        world.emit([("subject/b", 1)], destinations=["dwh"])
        eventually(lambda: len(world.states()) == 3, 30)

    versions = {(o["aggregate"], o["sequence"], o["destination"]): o["config_version"] for o in world.outcomes()}
    assert versions[("subject/a", 1, "crm")] < versions[("subject/a", 2, "crm")] < versions[("subject/b", 1, "dwh")]
    assert elsewhere.by_aggregate() == {"subject/a": [2]}


def test_a_command_waits_for_the_configuration_it_was_resolved_against(
    world: WorkerWorld, destination: FakeListener
) -> None:
    world.add_destination(destination.url)
    newer = world.config.current().version + 1
    with world.running():
        world.emit(
            [("subject/a", 1)],
            destinations=["crm", "later"],
            change=lambda headers: headers.update(ce_configversion=str(newer)),
        )
        world.emit([("subject/b", 1)])
        eventually(lambda: destination.by_aggregate() == {"subject/b": [1]}, 30)
        assert world.dead_letters() == [], "intake waits too"
        world.add_destination(destination.url, "later")
        eventually(lambda: len(world.states()) == 3, 30)

    assert world.dead_letters() == []


def test_a_group_without_a_start_refuses_with_the_command_that_sets_it(
    world: WorkerWorld, destination: FakeListener
) -> None:
    config = world.add_destination(destination.url)
    world.set_destination(replace(config, name=type(config.name)("unstarted")))

    with world.running() as worker:
        problem = eventually(
            lambda: next((g.problem for (_, name), g in worker.groups.items() if name == "unstarted"), None), 30
        )
        assert worker.is_ready()["groups"] is False
        eventually(lambda: _give_start(world, "unstarted"), 20, "it left the group, so that apply can set the start")
        world.emit([("subject/a", 1)], destinations=["unstarted"])
        eventually(lambda: len(world.states()) == 1, 40)

    assert "waybill apply" in problem


def test_a_worker_without_anything_to_do_is_ready(world: WorkerWorld, destination: FakeListener) -> None:
    world.add_destination(destination.url)

    with world.running() as worker:
        eventually(lambda: all(worker.is_ready().values()), 20)
        wanted = ("configured", "kafka", "groups", "intake", "database", "retention")
        assert worker.is_ready() == dict.fromkeys(wanted, True)
        assert not destination.arrivals


def test_metrics_and_health_tell_what_the_worker_does(world: WorkerWorld, destination: FakeListener) -> None:
    world.add_destination(destination.url)
    world.emit([("subject/a", n) for n in (1, 2, 3)])

    with world.running() as worker:
        server = MetricsServer(worker.registry, alive=worker.is_alive, ready=worker.is_ready)
        try:
            base = f"http://127.0.0.1:{server.port}"
            wanted = f'waybill_delivery_attempts_total{{destination="crm",result="ok",tenant="{world.tenant}"}} 3.0'
            eventually(lambda: wanted in get(f"{base}/metrics")[1], 30)
            eventually(lambda: get(f"{base}/readyz")[0] == 200, 10)
            assert get(f"{base}/healthz")[0] == 200
            assert get(f"{base}/else")[0] == 404
            assert "subject/a" not in get(f"{base}/metrics")[1]
        finally:
            server.close()


def test_the_command_runs_until_sigterm_and_says_that_nothing_is_configured(
    world: WorkerWorld, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    migrate_all(fresh_database.dsn())
    environment = {
        **os.environ,
        "WAYBILL_HOME": str(tmp_path),
        "WAYBILL_KAFKA": world.stack.kafka,
        "WAYBILL_REGISTRY_URL": world.stack.registry_url,
        "WAYBILL_CONTROL_DSN": fresh_database.dsn("waybill_worker"),
        "WAYBILL_KEYS_DIR": str(world.keys_dir),
    }
    command = [Path(sys.executable).with_name("waybill"), "worker", "run", "--metrics-port", "0"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        while "metrics on" not in line:
            assert line, "the worker ended"
            line = process.stderr.readline()
        base = line.split()[-1].removesuffix("/metrics")
        eventually(lambda: get(f"{base}/healthz")[0] == 200, 20)
        status, body = get(f"{base}/readyz")
        assert (status, json.loads(body)["configured"]) == (503, False)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.stderr.close()


def test_a_slot_is_held_by_one_process_at_a_time_and_free_again_after_it(tmp_path: Path) -> None:
    name = f"slot-{uuid.uuid4()}"
    with hold_slot(tmp_path, name), pytest.raises(UnavailableError, match="--slot"), hold_slot(tmp_path, name):
        pass
    with hold_slot(tmp_path, name) as again:
        assert again == name
    with hold_slot(tmp_path) as first, hold_slot(tmp_path) as second:
        assert first != second


def _give_start(world: WorkerWorld, destination: str) -> bool:
    try:
        world.give_start(delivery_group(world.tenant, DestinationName(destination)))
    except UnavailableError:
        return False
    return True
