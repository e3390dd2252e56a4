"""Requests over real Kafka and PostgreSQL: complete once, whatever happens to the process that folds them."""

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_read_model import AT, PARTITIONS, Road
from fixtures.fix_stack import FreshDatabase
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.contracts.codec import REQUEST_STATE, AvroReader
from waybill.contracts.states import State
from waybill.exceptions import Draft, ExceptionBook, Move
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.registry import Registry
from waybill.infra.topic_log import scan
from waybill.kernel.clock import Clock
from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.readmodel import Settings
from waybill.relay import OutboxConnection, OutboxKind, ensure_connector
from waybill.relay.database import drop_slot
from waybill.requests.core.standing import Delivery, Outcome, newest, standing
from waybill.requests.main import Places, run
from waybill.testing import eventually
from waybill.testing.clocks import MovableClock

pytestmark = pytest.mark.stack
TURNS = "SELECT number, turn FROM requests.turn ORDER BY at"
SUBJECT = "subject/1"


@dataclass(frozen=True, kw_only=True)
class Folding:
    """A tenant's topics, and the fold of its requests."""

    road: Road
    #: Facts of committed transactions, for a fold that is written down straight.
    deliveries: list[Delivery] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def fold(self, clock: Clock | None = None) -> None:
        """Fold what is there."""
        places = Places(
            kafka=self.road.stack.kafka, registry_url=self.road.stack.registry_url, control_dsn=self.road.dsn
        )
        settings = Settings(tenants=frozenset([self.road.tenant]), until_caught_up=True)
        run(places, settings, threading.Event(), clock)

    def command(self, *destinations: str, size: int | None = None, **headers: str) -> CommandId:
        sizes = {"ce_requestsize": str(size)} if size is not None else {}
        return self.road.command(SUBJECT, *destinations, headers={**sizes, **headers})

    def request(self) -> dict[str, Any]:
        [row] = self.road.rows("SELECT * FROM requests.request")
        return row

    def turns(self) -> list[tuple[int, str]]:
        return [(row["number"], row["turn"]) for row in self.road.rows(TURNS)]

    def told(self) -> list[tuple[str, int, str]]:
        """Return key, number and turn of every record that is on its way."""
        route = f"{self.road.tenant}.requests"
        rows = self.road.rows("SELECT route, key, payload FROM fabric.control_outbox ORDER BY position")
        reader = AvroReader(REQUEST_STATE, Registry(self.road.stack.registry_url).schema)
        values = [(row["key"], reader.decode(row["payload"])) for row in rows if row["route"] == route]
        return [(key, value["completion_number"], value["turn"]) for key, value in values]

    def read(self) -> int:
        [row] = self.road.rows("SELECT coalesce(sum(next), 0)::bigint AS n FROM requests.position")
        return int(row["n"])

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run `waybill requests run` until it is killed."""
        environ = {
            **os.environ,
            "WAYBILL_CONTROL_DSN": self.road.dsn,
            "WAYBILL_KAFKA": self.road.stack.kafka,
            "WAYBILL_REGISTRY_URL": self.road.stack.registry_url,
        }
        words = ["requests", "run", "--tenant", self.road.tenant]
        program = [sys.executable, "-c", "from waybill.cli import main; main()", *words]
        with subprocess.Popen(program, env=environ) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(30)


@pytest.fixture
def folding(road: Road) -> Folding:
    migrate_all(road.dsn)
    with closing(psycopg.connect(road.dsn, autocommit=True)) as connection:
        connection.execute("INSERT INTO fabric.control_route VALUES (%s)", (f"{road.tenant}.requests",))
    return Folding(road=road)


@pytest.mark.requirement("RS-12")
def test_twenty_answers_at_once_and_kills_meanwhile_give_one_completion(folding: Folding):
    names = [f"d{number:02}" for number in range(20)]
    made: list[CommandId] = []
    folding.road.transaction(lambda: made.append(folding.command(*names, size=1)))

    def answer(some: list[str]) -> None:
        for name in some:
            folding.road.state(made[0], SUBJECT, name, 1)

    for some in (names[:7], names[7:13], names[13:]):
        before = folding.read()
        answering = threading.Thread(target=folding.road.transaction, args=(lambda some=some: answer(some),))
        with folding.running():
            answering.start()
            eventually(lambda before=before: folding.read() > before, within_s=60)
        answering.join(30)
    # everything once more, as a worker writes it after it took over
    folding.road.transaction(lambda: answer(names))
    folding.fold()

    request = folding.request()
    assert (request["done"], request["open"], request["is_complete"], request["completions"]) == (20, 0, True, 1)
    assert folding.turns() == [(1, "completed")]
    assert folding.told() == [("request-1", 1, "completed")]


@pytest.mark.requirement("RS-11")
def test_a_destination_that_does_not_answer_keeps_its_request_open(folding: Folding):
    made: list[CommandId] = []

    def write() -> None:
        made.append(folding.command("crm", "paused", size=1))
        folding.road.state(made[0], SUBJECT, "crm", 1)

    folding.road.transaction(write)
    folding.fold()
    assert (folding.request()["open"], folding.turns()) == (1, [])

    folding.road.transaction(lambda: folding.road.state(made[0], SUBJECT, "paused", 1))
    folding.fold()
    assert folding.turns() == [(1, "completed")]


def test_a_state_that_is_read_before_its_command_counts_when_that_is_read(folding: Folding):
    command = CommandId(uuid.uuid4())
    folding.road.transaction(lambda: folding.road.state(command, SUBJECT, "crm", 1))
    folding.fold()
    assert folding.road.rows("SELECT * FROM requests.request") == []

    sizes = {"ce_requestsize": "1"}
    folding.road.transaction(lambda: folding.road.command(SUBJECT, "crm", command_id=command, headers=sizes))
    folding.fold()

    assert folding.told() == [("request-1", 1, "completed")]


@pytest.mark.requirement("RS-13")
def test_an_exception_closes_its_request_and_opens_it_again_when_it_runs_out(folding: Folding):
    made: list[CommandId] = []

    def write() -> None:
        made.append(folding.command("crm", size=1))
        folding.road.state(made[0], SUBJECT, "crm", 1, state="failed", error_code="VALIDATION")

    folding.road.transaction(write)
    folding.fold()
    assert folding.turns() == []

    clock = MovableClock(SystemClock().now())
    with closing(psycopg.connect(folding.road.dsn, autocommit=True)) as connection:
        book = ExceptionBook(connection, clock)
        opened = book.open(
            Draft(
                tenant=folding.road.tenant,
                destination="crm",
                delivery_id=delivery_id(made[0], DestinationName("crm")),
                source="https://law.example/art-17-3",
                reason="kept for a claim",
                permits_closure=True,
                opened_by="ada",
                reviewer="grace",
                expires_at=clock.now() + timedelta(days=1),
            )
        )
        folding.fold(clock)
        assert folding.turns() == [], "nobody approved it yet"
        book.move(opened.exception_id, Move.APPROVE, "grace", "seen")
    folding.fold(clock)
    assert folding.turns() == [(1, "completed")]

    clock.advance(timedelta(days=1))
    folding.fold(clock)
    folding.road.transaction(lambda: folding.road.state(made[0], SUBJECT, "crm", 1, version=2))
    folding.fold(clock)

    expected = [("request-1", 1, "completed"), ("request-1", 1, "reopened"), ("request-1", 2, "completed")]
    assert folding.told() == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_the_fold_equals_a_straight_one_and_aborted_records_are_nothing(folding: Folding, seed: int):
    draw = random.Random(seed)
    names = ["crm", "mail", "archive"]
    commands: list[CommandId] = []
    for number in range(12):
        is_lost = draw.random() < 0.4
        _write_some(folding, draw, names, commands, is_lost=is_lost, size=6 if number == 0 else None)
        if number % 5 == 4:
            folding.fold()
    folding.fold()

    found = standing(folding.deliveries, newest(folding.outcomes), (), AT)
    row = folding.request()
    for name in ("commands", "size", "done", "excused", "open", "is_complete"):
        assert row[name] == getattr(found, name), name


def _write_some(
    folding: Folding,
    draw: random.Random,
    names: list[str],
    commands: list[CommandId],
    *,
    is_lost: bool,
    size: int | None,
) -> None:
    """Write a command or some states in one transaction, and note them where it commits."""
    deliveries: list[Delivery] = []
    outcomes: list[Outcome] = []

    def write() -> None:
        if size is not None or draw.random() < 0.4:
            replaced = draw.choice(commands) if commands and draw.random() < 0.3 else None
            headers = {"ce_replaces": str(replaced)} if replaced is not None else {}
            chosen = draw.sample(names, draw.randint(1, 3))
            made = folding.command(*chosen, size=size, **headers)
            deliveries.extend(
                Delivery(
                    delivery_id=delivery_id(made, DestinationName(name)),
                    command_id=made,
                    destination=name,
                    required=True,
                    replaces=replaced,
                    request_size=size,
                )
                for name in chosen
            )
        for known in draw.sample(folding.deliveries, min(4, len(folding.deliveries))):
            state, version = draw.choice(list(State)), len(folding.outcomes) + len(outcomes) + 1
            folding.road.state(
                CommandId(known.command_id), SUBJECT, known.destination, 1, state=state.value, version=version
            )
            outcomes.append(Outcome(delivery_id=known.delivery_id, version=version, state=state, at=AT))

    is_lost = is_lost and size is None
    folding.road.transaction(write, abort=is_lost)
    if not is_lost:
        folding.deliveries.extend(deliveries)
        folding.outcomes.extend(outcomes)
        commands.extend({CommandId(each.command_id) for each in deliveries})


def test_a_completion_reaches_the_topic_of_requests(folding: Folding, fresh_database: FreshDatabase):
    stack, tenant, clock = folding.road.stack, folding.road.tenant, SystemClock()
    api, admin, topic = (
        ConnectApi(stack.connect_url, clock),
        KafkaAdmin(stack.kafka, clock),
        f"waybill.{tenant}.requests",
    )
    outbox = OutboxConnection(
        name=f"control-{tenant}",
        host=stack.postgres_host,
        port=stack.postgres_port,
        database=fresh_database.name,
        user="waybill_relay",
        secret_file=str(stack.secrets_file),
        secret_key="relay.password",
        schema="fabric",
        kind=OutboxKind.CONTROL,
    )
    made: list[CommandId] = []

    def write() -> None:
        made.append(folding.command("crm", size=1))
        folding.road.state(made[0], SUBJECT, "crm", 1)

    ensure_connector(api, fresh_database.dsn(), outbox)
    try:
        folding.road.transaction(write)
        folding.fold()
        eventually(lambda: sum(admin.end_offsets(topic, PARTITIONS)) > 0, within_s=60)
        starts, ends = admin.earliest_offsets(topic, PARTITIONS), admin.end_offsets(topic, PARTITIONS)
        [record] = list(scan(stack.kafka, topic, starts=starts, ends=ends, clock=clock))
    finally:
        api.delete(outbox.connector)
        with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
            drop_slot(connection, outbox.slot)

    value = AvroReader(REQUEST_STATE, Registry(stack.registry_url).schema).decode(record.value or b"")
    assert (record.key, value["turn"], value["completion_number"]) == (b"request-1", "completed", 1)


def test_people_see_what_a_request_waits_for(folding: Folding, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", folding.road.dsn)
    made: list[CommandId] = []

    def write() -> None:
        made.append(folding.command("crm", "mail", size=1))
        folding.road.state(made[0], SUBJECT, "crm", 1)

    folding.road.transaction(write)
    folding.fold()

    shown = CliRunner().invoke(root, ["requests", "show", "request-1"], env={"COLUMNS": "200"})
    listed = CliRunner().invoke(root, ["requests", "list", "--open"], env={"COLUMNS": "200"})
    complete = CliRunner().invoke(root, ["requests", "list", "--complete", "--json"])

    assert shown.exit_code == 0, shown.output
    lines = {line.split()[1]: line for line in shown.output.splitlines() if " crm " in line or " mail " in line}
    assert " done " in lines["crm"]
    assert " queued " in lines["mail"]
    assert " open " in lines["mail"]
    assert "request-1" in listed.output
    assert complete.output.strip() == "[]"
