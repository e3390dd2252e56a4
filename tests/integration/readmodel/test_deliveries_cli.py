"""`waybill deliveries` and `waybill read-model`, as people and programs use them."""

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_read_model import AT, Road
from typer.testing import CliRunner, Result

from waybill.cli.app import root
from waybill.contracts.fabric import RouteConfig
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import CommandId, DestinationName, Tenant, delivery_id
from waybill.outbox.core.draft import CommandDraft
from waybill.outbox.core.settings import OutboxSettings
from waybill.outbox.install import install
from waybill.outbox.provision import sync
from waybill.outbox.sdk import Outbox

pytestmark = pytest.mark.stack

Run = Callable[..., Any]


@pytest.fixture
def run(road: Road, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line against the test's own read model; returns the parsed JSON, or the text without --json."""
    monkeypatch.setenv("WAYBILL_KAFKA", road.stack.kafka)
    monkeypatch.setenv("WAYBILL_REGISTRY_URL", road.stack.registry_url)
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", road.dsn)

    def call(*words: str, code: int = 0) -> Any:
        result: Result = CliRunner().invoke(root, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in words else result.stdout

    return call


@pytest.fixture
def one_of_each(road: Road) -> dict[str, CommandId]:
    """A queued, a retrying and an acknowledged delivery, folded."""
    commands: dict[str, CommandId] = {}

    def write() -> None:
        commands["acknowledged"] = road.command("subject/1", "crm", "archive")
        road.outcome(commands["acknowledged"], "subject/1", "crm", 1)
        road.state(commands["acknowledged"], "subject/1", "crm", 1)
        commands["retrying"] = road.command("subject/2", "crm")
        for attempt in (1, 2):
            road.outcome(
                commands["retrying"],
                "subject/2",
                "crm",
                1,
                moved=attempt == 1,
                kind="attempt",
                state_after="retrying",
                error_code="SOURCE_UNAVAILABLE",
                http_status=503,
                started_at=AT + timedelta(seconds=attempt),
            )
        road.state(
            commands["retrying"],
            "subject/2",
            "crm",
            1,
            state="retrying",
            error_code="SOURCE_UNAVAILABLE",
            next_due=AT + timedelta(minutes=1),
        )

    road.transaction(write)
    road.fold()
    return commands


def test_list_narrows_by_what_is_asked(run: Run, one_of_each: dict[str, CommandId]) -> None:
    everything = run("deliveries", "list", "--json")["deliveries"]
    retrying = run("deliveries", "list", "--state", "retrying", "--json")["deliveries"]
    of_one = run("deliveries", "list", "--aggregate", "subject/1", "--destination", "archive", "--json")["deliveries"]

    assert len(everything) == 3
    assert [(row["aggregate"], row["attempts"]) for row in retrying] == [("subject/2", 2)]
    assert [row["state"] for row in of_one] == ["queued"]


def test_list_prints_a_table_for_people(run: Run, one_of_each: dict[str, CommandId]) -> None:
    text = run("deliveries", "list")

    assert "queued" in text
    assert "deliveries" in text


@pytest.mark.requirement("OB-2")
def test_show_answers_the_four_questions_and_tells_every_attempt(
    run: Run, one_of_each: dict[str, CommandId], road: Road
) -> None:
    wanted = delivery_id(one_of_each["retrying"], DestinationName("crm"))

    (account,) = run("deliveries", "show", str(wanted), "--json")["deliveries"]

    assert account["what_happened"] == "2 attempts, the last ended with SOURCE_UNAVAILABLE"
    assert account["what_next"] == "the next attempt is due now"
    assert account["owner"] == f"worker of {road.tenant}/crm"
    assert account["by"] == "2026-11-30T12:01:00.000Z"
    assert [attempt["http_status"] for attempt in account["history"]] == [503, 503]


def test_show_takes_a_unique_prefix_and_a_command_id(run: Run, one_of_each: dict[str, CommandId]) -> None:
    command = one_of_each["acknowledged"]
    crm = delivery_id(command, DestinationName("crm"))

    by_command = run("deliveries", "show", str(command), "--json")["deliveries"]
    by_prefix = run("deliveries", "show", str(crm)[:9], "--json")["deliveries"]

    assert [row["destination"] for row in by_command] == ["archive", "crm"]
    assert [row["delivery_id"] for row in by_prefix] == [str(crm)]


def test_prefix_of_several_commands_is_refused_with_the_candidates(run: Run, road: Road) -> None:
    first, second = uuid.UUID(int=0xABCD << 112 | 1), uuid.UUID(int=0xABCD << 112 | 2)

    def write() -> None:
        for number, command in enumerate((first, second), 1):
            road.command("subject/9", sequences={"crm": number}, command_id=command)

    road.transaction(write)
    road.fold()

    with pytest.raises(ConfigError, match=f"{first}, {second}"):
        run("deliveries", "show", "abcd")


def test_show_explains_a_command_that_is_in_its_topic_but_not_folded(run: Run, road: Road) -> None:
    road.transaction(lambda: road.command("subject/1", "crm"))
    road.fold()
    commands: list[CommandId] = []
    road.transaction(lambda: commands.append(road.command("subject/1", "crm")))

    (account,) = run("deliveries", "show", str(commands[0]), "--tenant", road.tenant, "--json")["deliveries"]

    assert account["stage"] == "in_topic"
    assert account["what_happened"].startswith("in topic, partition ")
    assert (account["destination"], account["sequence"], account["state"]) == ("crm", 2, "queued")


@pytest.mark.parametrize("by_delivery", [False, True], ids=["by command id", "by delivery id"])
def test_show_explains_a_command_that_is_only_committed(run: Run, road: Road, *, by_delivery: bool) -> None:
    settings = OutboxSettings(
        tenant=Tenant(road.tenant),
        source=f"waybill://{road.tenant}/app",
        config_version=1,
        max_payload_bytes=1000,
        aggregate_types=("subject",),
        destinations=(DestinationName("crm"),),
        routes=(
            RouteConfig(
                tenant=Tenant(road.tenant),
                command_type="subject.erase",
                destinations=(DestinationName("crm"),),
                capability="subject.erase",
            ),
        ),
    )
    with psycopg.connect(road.dsn) as connection:
        install(connection)
        sync(connection, "waybill", settings)
        draft = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={})
        emitted = Outbox(connection, tenant=road.tenant).emit(draft)
    wanted = emitted.delivery_ids[DestinationName("crm")] if by_delivery else emitted.command_id

    (account,) = run("deliveries", "show", str(wanted), "--outbox-dsn", road.dsn, "--json")["deliveries"]

    assert account["stage"] == "committed"
    assert account["what_happened"].startswith("committed, relay lag ")
    assert account["owner"] == "relay"


def test_show_of_what_nobody_has_says_where_it_looked(run: Run, one_of_each: dict[str, CommandId]) -> None:
    with pytest.raises(ConfigError, match="not in the read model nor in a topic"):
        run("deliveries", "show", str(uuid.uuid4()))


def test_list_before_any_fold_says_what_to_run(run: Run) -> None:
    with pytest.raises(UnavailableError, match="waybill read-model run"):
        run("deliveries", "list")


def test_anomalies_are_listed(run: Run, road: Road) -> None:
    road.transaction(lambda: road.command("subject/1", sequences={"crm": 2}))
    road.fold()

    (hole,) = run("deliveries", "list", "--anomalies", "--json")["anomalies"]

    assert (hole["kind"], hole["first_sequence"], hole["missing"]) == ("hole", 1, 1)


def test_watch_ends_by_itself_and_tells_whether_all_is_settled(run: Run, one_of_each: dict[str, CommandId]) -> None:
    text = run("deliveries", "watch", "--for", "0.3", "--every", "0.2")

    assert "crm retrying 1" in text
    run("deliveries", "watch", "--for", "0.3", "--until-settled", code=1)


def test_status_is_caught_up_after_a_fold_and_not_before(run: Run, road: Road) -> None:
    road.transaction(lambda: road.command("subject/1", "crm"))
    road.fold()

    after = run("read-model", "status", "--tenant", road.tenant, "--json")
    road.transaction(lambda: road.command("subject/1", "crm"))
    before = run("read-model", "status", "--tenant", road.tenant, "--json", code=1)

    assert (after["caught_up"], after["lag_records"]) == (True, 0)
    assert before["tenants"][0]["lag_records"]["commands"] >= 1


def test_rebuild_prints_the_hash_that_following_had(run: Run, road: Road, one_of_each: dict[str, CommandId]) -> None:
    followed = road.fingerprint()

    rebuilt = run("read-model", "rebuild", "--tenant", road.tenant, "--json")

    assert rebuilt["rows_md5"] == followed
    assert rebuilt["records"] == 7
