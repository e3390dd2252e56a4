"""The whole road of a baseline: a listener asks, two people agree, it is sent; over the real stack."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fixtures.fix_read_model import Road
from fixtures.fix_wire import MakeCommand
from fixtures.listen_process import CRM, Sender, listening
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.conformance.keys import ensure_keys
from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.crypto.keys import jwks_path, read_keys, signing_path
from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.controls.standing import Control, Standing
from waybill.fabric import Applied, FabricStore, plan
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import Aggregate, Tenant

pytestmark = pytest.mark.stack
Waybill = Callable[..., Any]
PAUSED_S = 60.0

LISTENER = """
from waybill.listener import Done, Limits, Listener, PostgresStore
listener = Listener(tenant="{tenant}", destination="crm", keys="{keys}", store=PostgresStore("{dsn}", schema="{schema}"),
    limits=Limits(in_order=True))
@listener.on("*")
async def handle(command, transaction):
    return Done(source_version="1", evidence="e", count=1)
"""


class Town:
    """A tenant with a history at `crm`, and crm's own listener, which knows nothing of it."""

    def __init__(self, road: Road, keys_dir: Path, folder: Path, make_command: MakeCommand) -> None:
        self.road, self.keys_dir, self.folder = road, keys_dir, folder
        self.tenant = Tenant(road.tenant)
        self.key = read_keys(signing_path(keys_dir, self.tenant))[0]
        self.sender = Sender(self.key, make_command)
        self.url = ""

    def write_history(self) -> None:
        """Five of subject/1 done; the first of subject/2 failed and passed over, the second done, the third queued."""

        def write() -> None:
            for number in range(1, 6):
                self.road.state(self.road.command("subject/1", "crm"), "subject/1", "crm", number)
            self.failed = self.road.command("subject/2", "crm", headers={"ce_expiresat": "2126-01-01T00:00:00.000Z"})
            self.road.state(
                self.failed, "subject/2", "crm", 1, state="failed", expires_at=datetime(2126, 1, 1, tzinfo=UTC)
            )
            self.road.state(self.road.command("subject/2", "crm"), "subject/2", "crm", 2)
            self.road.command("subject/2", "crm")

        self.road.transaction(write)
        self.road.fold()

    def apply(self, url: str) -> None:
        self.url = url
        fabric = FabricConfig(
            version=0,
            tenants=(
                TenantConfig(
                    name=self.tenant,
                    allow_networks=("127.0.0.1/32",),
                    destinations=(
                        DestinationConfig(tenant=self.tenant, name=CRM, url=url, owner="team", tradeoff="none"),
                    ),
                ),
            ),
        )
        with closing(psycopg.connect(self.road.dsn, autocommit=True)) as connection:
            store = FabricStore(connection)
            store.record(fabric, plan(store.current(), fabric).changes, Applied(at=datetime.now(UTC), by="test"))

    def stand(self, standing: Standing) -> None:
        """Let a standing be in force since long before now."""
        at = datetime.now(UTC) - timedelta(seconds=PAUSED_S)
        control = Control(tenant=self.tenant, destination="crm", standing=standing, at=at, by="ann", reason="restore")
        with closing(psycopg.connect(self.road.dsn, autocommit=True)) as connection:
            ControlLog(connection).decide(self.tenant, "crm", lambda _: control)

    def at_the_listener(self, *words: str, code: int = 0) -> Any:
        """Run a command where the listener is."""
        command = [sys.executable, "-c", "from waybill.cli import main; main()", "baseline", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=os.environ, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return json.loads(ended.stdout)

    def deliver(self, aggregate: str, number: int, command_id: uuid.UUID | None = None) -> tuple[int, str]:
        """Send a delivery as a worker would; return status and what is missing."""
        command = self.sender.command(
            tenant=self.tenant,
            aggregate=Aggregate(aggregate),
            sequences={CRM: number},
            command_id=command_id or uuid.uuid4(),
        )
        answer: httpx.Response = self.sender.post(self.url, command)
        return answer.status_code, str(answer.json().get("expected_sequence", ""))


@pytest.fixture
def town(
    road: Road,
    tmp_path: Path,
    make_command: MakeCommand,
    site_schema: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Town]:
    migrate_all(road.dsn)
    ensure_keys(tmp_path, Tenant(road.tenant), datetime.now(UTC))
    for name, value in {
        "KAFKA": road.stack.kafka,
        "REGISTRY_URL": road.stack.registry_url,
        "CONTROL_DSN": road.dsn,
        "KEYS_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(f"WAYBILL_{name}", value)
    town = Town(road, tmp_path, tmp_path, make_command)
    schema, dsn = site_schema
    program = LISTENER.format(tenant=road.tenant, keys=jwks_path(tmp_path, town.tenant), dsn=dsn, schema=schema)
    (tmp_path / "app.py").write_text(program)
    town.write_history()
    with listening(tmp_path, "app:listener") as (_, url):
        town.apply(url)
        yield town


@pytest.fixture
def waybill() -> Waybill:
    def call(*words: str, code: int = 0) -> Any:
        ended = CliRunner().invoke(root, ["baseline", *words, "--json"])
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == code, ended.output
        return json.loads(ended.stdout)

    return call


def propose(waybill: Waybill, town: Town, nonce: str) -> Any:
    place = (town.tenant, "crm")
    return waybill("propose", *place, "--nonce", nonce, "--reason", "restored from the backup of noon", "--by", "ann")


def approve(waybill: Waybill, made: Any, by: str = "ben") -> Any:
    words = ("--digest", made["digest"], "--reason", "looked at it", "--by", by)
    return waybill("approve", made["baseline_id"], *words)


@pytest.mark.requirement("DC-13")
def test_a_listener_goes_on_where_two_people_agreed(town: Town, waybill: Waybill) -> None:
    assert town.deliver("subject/1", 6) == (425, "1")
    nonce = town.at_the_listener("ask", "app:listener")["nonce"]
    with pytest.raises(ConfigError, match="destinations pause"):
        propose(waybill, town, nonce)
    town.stand(Standing.PAUSED)

    made = propose(waybill, town, nonce)
    shown = waybill("show", made["baseline_id"])

    assert (made["stands"], made["lanes"], made["parts"]) == ("proposed", 2, 1)
    assert [(lane["aggregate"], lane["next"]) for lane in shown["aggregates"]] == [("subject/1", 6), ("subject/2", 3)]
    assert [entry["sequence"] for entry in shown["aggregates"][1]["told"]] == [1]
    with pytest.raises(RefusedError, match="nobody approved"):
        waybill("send", made["baseline_id"])
    with pytest.raises(RefusedError, match="somebody else"):
        approve(waybill, made, by="ann")
    assert town.deliver("subject/1", 6) == (425, "1"), "nothing was sent"

    approve(waybill, made)
    sent = [waybill("send", made["baseline_id"], "--by", "cat") for _ in range(2)]

    assert sent == [{"applied": True, "parts": [{"part": 1, "outcome": "applied", "detail": ""}]}] * 2
    assert [town.deliver("subject/1", number) for number in (7, 6, 7)] == [(425, "6"), (200, ""), (200, "")]
    assert town.deliver("subject/2", 3) == (200, "")
    assert town.deliver("subject/2", 1, town.failed) == (200, ""), "it was passed over, and may still come"
    (listed,) = waybill("list", town.tenant)["baselines"]
    told = [listed[name] for name in ("stands", "proposed_by", "approved_by", "last_sent_by")]
    assert told == ["applied", "ann", "ben", "cat"]


@pytest.mark.requirement("DC-13")
def test_a_statement_that_holds_no_more_is_not_sent(town: Town, waybill: Waybill) -> None:
    town.stand(Standing.PAUSED)
    made = propose(waybill, town, town.at_the_listener("ask", "app:listener")["nonce"])
    approve(waybill, made)
    town.stand(Standing.RUNNING)
    with pytest.raises(ConfigError, match="destinations pause"):
        waybill("send", made["baseline_id"])

    def go_on() -> None:
        town.road.state(town.road.command("subject/1", "crm"), "subject/1", "crm", 6)

    town.road.transaction(go_on)
    town.road.fold()
    town.stand(Standing.PAUSED)
    with pytest.raises(RefusedError, match="moved"):
        waybill("send", made["baseline_id"])

    assert waybill("show", made["baseline_id"])["sendings"] == []
    assert town.deliver("subject/1", 6) == (425, "1")


@pytest.mark.requirement("DC-13")
def test_a_listener_that_no_request_reaches_takes_it_from_a_file(town: Town, waybill: Waybill, tmp_path: Path) -> None:
    town.stand(Standing.DRAINING)
    file = tmp_path / "baseline.jsonl"
    old = propose(waybill, town, town.at_the_listener("ask", "app:listener")["nonce"])
    approve(waybill, old)
    waybill("send", old["baseline_id"], "--to", str(file))
    nonce = town.at_the_listener("ask", "app:listener")["nonce"]

    refused = town.at_the_listener("take", "app:listener", str(file), code=1)
    made = propose(waybill, town, nonce)
    approve(waybill, made)
    waybill("send", made["baseline_id"], "--to", str(file))
    taken = town.at_the_listener("take", "app:listener", str(file))

    assert refused["parts"][0]["refused"] == "VERSION_CONFLICT baseline_nonce"
    assert taken == {"applied": True, "parts": [{"outcome": "applied"}]}
    assert town.deliver("subject/1", 6) == (200, "")


@pytest.mark.requirement("DC-13")
def test_what_the_listener_refuses_is_written_down(town: Town, waybill: Waybill) -> None:
    town.stand(Standing.PAUSED)
    made = propose(waybill, town, "made-up")
    approve(waybill, made)

    sent = waybill("send", made["baseline_id"], code=1)

    assert sent["parts"] == [{"part": 1, "outcome": "refused", "detail": "409 VERSION_CONFLICT baseline_not_asked"}]
    assert [each["outcome"] for each in waybill("show", made["baseline_id"])["sendings"]] == ["refused"]
    assert town.deliver("subject/1", 6) == (425, "1")


@pytest.mark.requirement("DC-13")
def test_nothing_is_proposed_while_an_outcome_is_unknown(town: Town, waybill: Waybill) -> None:
    def unknown() -> None:
        made = town.road.command("subject/3", "crm")
        town.road.state(made, "subject/3", "crm", 1, state="ambiguous")

    town.road.transaction(unknown)
    town.road.fold()
    town.stand(Standing.PAUSED)
    with closing(psycopg.connect(town.road.dsn, autocommit=True)) as connection:
        connection.execute(
            "INSERT INTO delivery.open_task (tenant, destination, delivery_id, command_id, aggregate, sequence, partition,"
            " record_offset, state, version, attempt, expires_at, blocks, sent, may_have_acted, record, created_at,"
            " updated_at) SELECT tenant, destination, delivery_id, command_id, aggregate, sequence, 0, 0, state, version,"
            " 1, now(), true, true, true, '', now(), now() FROM read.delivery WHERE aggregate = 'subject/3'"
        )

    with pytest.raises(ConfigError, match="subject/3: nobody knows whether 1 was done"):
        propose(waybill, town, "n")

    assert waybill("list")["baselines"] == []
