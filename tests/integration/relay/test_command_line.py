"""The commands over the relay: one document each, exit codes that say what kind of no it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.fix_relay import Pipe
from typer.testing import CliRunner, Result

from waybill.cli.connect import app as connect_app
from waybill.cli.relay import app as relay_app
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError


def run(app: Any, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_lint_passes_what_is_shipped_and_names_what_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text((resource_dir("connect") / "outbox.json").read_text().replace("no_data", "initial"))

    good = run(connect_app, "lint", "--json")
    bad = run(connect_app, "lint", "--json", str(broken))
    told = run(connect_app, "lint", str(broken))

    assert (good.exit_code, json.loads(good.stdout)["faults"]) == (0, [])
    assert bad.exit_code == 2
    (fault,) = json.loads(bad.stdout)["faults"]
    assert (fault["rule"], fault["key"], fault["expected"]) == ("no-snapshot", "snapshot.mode", "no_data")
    # the root turns it into one line on stderr and exit code 2
    assert isinstance(told.exception, ConfigError)


def test_the_rules_are_listed_with_their_reasons() -> None:
    rules = json.loads(run(connect_app, "lint", "--rules", "--json").stdout)["rules"]

    assert {"rule": "no-snapshot", "why": "any other mode publishes every kept row again"} in rules


@pytest.mark.stack
def test_a_pipe_is_applied_watched_proven_and_recovered_by_commands(unconnected_pipe: Pipe) -> None:
    pipe = unconnected_pipe
    stack = pipe.stack
    places = ("--connect", stack.connect_url, "--kafka", stack.kafka)
    wanted = ("--dsn", pipe.dsn, "--name", pipe.tenant, "--secret-file", str(stack.secrets_file))
    pipe.emit(2)  # older than any slot: apply finds them by itself

    rendered = run(connect_app, "apply", *wanted, "--dry-run")
    applied = run(connect_app, "apply", *wanted, *places, "--json")
    canary = run(relay_app, "canary", "--dsn", pipe.dsn, "--tenant", pipe.tenant, "--kafka", stack.kafka, "--json")
    status = run(connect_app, "status", pipe.outbox.connector, "--dsn", stack.dsn("postgres"), *places, "--json")
    recovered = run(relay_app, "recover", "--dsn", pipe.dsn, "--connector", pipe.outbox.connector, *places, "--json")

    assert json.loads(rendered.stdout)["slot.name"] == pipe.outbox.slot
    document = json.loads(applied.stdout)
    assert (document["slot_created"], document["state"]) == (True, "RUNNING")
    assert json.loads(canary.stdout)["came_back"] is True
    (seen,) = json.loads(status.stdout)["connectors"]
    assert seen["health"] in {"healthy", "starting"}
    assert seen["slot"]["wal_status"] == "reserved"
    found = json.loads(recovered.stdout)
    assert (found["compared"], found["missing"], found["dry_run"]) == (3, 0, False)
    assert [r.exit_code for r in (rendered, applied, canary, status, recovered)] == [0, 0, 0, 0, 0]
    assert sorted(record.value or b"" for record in pipe.records()) == [b"0", b"1", b"{}"]
