"""Events from the topic into the outbox, on the real stack: once each, in order, refused aloud, over kills and outages."""

import json
import signal
from urllib.parse import urlsplit

import pytest
from fixtures.fix_ingress import IngressWorld
from fixtures.worker_world import Switch
from typer.testing import CliRunner

from waybill.cli.ingress import app
from waybill.kernel.errors import UnavailableError
from waybill.testing import eventually

pytestmark = pytest.mark.stack

PERSON = "jane.doe@example.org"


@pytest.mark.requirement("GW-15")
def test_five_times_the_same_id_is_one_command_also_over_a_kill_before_the_offset(ingress: IngressWorld):
    ingress.send(*[ingress.event("e-1", "7", b'{"share":1.10}')] * 3, ingress.event("e-2", "7", b"2"))

    with ingress.running(failpoint="flushed:kill") as killed:
        assert killed.process.wait(60) == -signal.SIGKILL
    between = ingress.issued("7"), ingress.committed()
    with ingress.running() as again:
        ingress.settle()
        ingress.send(ingress.event("e-1", "7", b'{"share":1.10}'))
        ingress.send(ingress.document("e-1", "7", '{"share":1.10}'), partition=1)  # the same event in the other mode
        ingress.settle()
        assert again.stop() == 0

    assert between == ([b'{"share":1.10}', b"2"], 0), "killed between the commit of the outbox and that of the offset"
    assert ingress.issued("7") == [b'{"share":1.10}', b"2"]
    assert ingress.came_again("e-1") >= 4
    assert ingress.dead_letters() == []


@pytest.mark.requirement("DC-22")
def test_what_is_refused_is_a_dead_letter_with_its_reason_and_the_next_event_goes_through(
    ingress: IngressWorld, monkeypatch: pytest.MonkeyPatch
):
    event, document = ingress.event, ingress.document
    refused = {
        "unreadable": (b"7", [("ce_type", b"\xff")], PERSON.encode()),
        "unknown_member": event("r-1", "7", b"1", nickname=PERSON),
        "malformed_member": event("r-2", PERSON, b"1", ttl=PERSON),
        "foreign_tenant": event("r-3", "7", b"1", tenant="other"),
        "not_permitted": event("r-4", "7", b"1", type="subject.promote"),
        "expired": event("r-5", "7", b"1", expiresat="2026-01-01T00:00:00Z"),
        "foreign_aggregate_type": event("r-6", "7", b"1", subject="invoice/7"),
        "unknown_route": event("r-7", "7", b"1", type="nobody.routes"),
        "unknown_destination": event("r-8", "7", b"1", destinations="nowhere", ttl="1h"),
        "payload_too_large": event("r-9", "7", b'"' + b"x" * 300_000 + b'"'),
        "payload_not_json": event("r-10", "7", PERSON.encode()),
        "form_not_permitted": event("r-11", "7", b"1", type="subject.hold"),
        "ttl_out_of_range": event("r-12", "7", b"1", ttl="300d"),
        "event_reused": document("good-0", "7", f'"{PERSON}"'),
    }
    good = [event(f"good-{number}", "7", str(number).encode()) for number in range(len(refused) + 1)]
    mixed = [each for pair in zip(good, refused.values(), strict=False) for each in pair]
    ingress.send(*mixed, good[-1])

    with ingress.running() as process:
        ingress.settle()
        eventually(
            lambda: (
                process.metrics()[f'waybill_ingress_events_total{{result="refused",tenant="{ingress.tenant}"}}']
                == len(refused)
            )
        )
        assert process.stop() == 0

    letters = ingress.dead_letters()
    assert [letter["cause"] for letter in letters] == list(refused)
    assert [letter["offset"] for letter in letters] == [2 * number + 1 for number in range(len(refused))]
    assert {(letter["topic"], letter["partition"]) for letter in letters} == {(ingress.topic, 0)}
    assert PERSON not in json.dumps(letters, default=str)
    assert ingress.issued("7") == [str(number).encode() for number in range(len(good))]
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", ingress.control_dsn)
    monkeypatch.setenv("WAYBILL_TEST_OUTBOX", ingress.database.dsn("postgres"))
    ends = [
        CliRunner().invoke(app, ["find", ingress.tenant, "--source", "/erp", "--id", name, "--json"])
        for name in ("good-1", "r-1")
    ]
    assert [end.exit_code for end in ends] == [0, 1]
    assert json.loads(ends[0].stdout)["commands"][0]["aggregate"] == "subject/7"
    ingress.fold()
    listed = json.loads(CliRunner().invoke(app, ["refused", ingress.tenant, "--json"]).stdout)["refused"]
    assert {(each["cause"], each["offset"]) for each in listed} == {(each["cause"], each["offset"]) for each in letters}


def test_events_of_a_key_become_commands_in_their_order(ingress: IngressWorld):
    wanted = [(f"s{number % 7}", str(number)) for number in range(1_400)]
    make = {0: ingress.event, 1: lambda identity, subject, data: ingress.document(identity, subject, data.decode())}
    events = [make[place % 2](f"e-{text}", subject, text.encode()) for place, (subject, text) in enumerate(wanted)]
    events.insert(700, ingress.event("bad", "s0", b"1", ttl="no"))

    ingress.send(*events)
    with ingress.running():
        ingress.settle()

    for subject in {subject for subject, _ in wanted}:
        assert ingress.issued(subject) == [text.encode() for each, text in wanted if each == subject]


def _is_given(ingress: IngressWorld) -> bool:
    try:
        ingress.give_start()
    except UnavailableError:  # Kafka takes a start only while the group has no members
        return False
    return True


def test_a_group_without_its_start_is_not_ready_until_it_has_one(ingress_without_start: IngressWorld):
    ingress = ingress_without_start
    ingress.send(ingress.event("e-1", "7", b"1"))
    with ingress.running() as process:
        eventually(lambda: process.ready()["configured"], within_s=30)

        eventually(lambda: not process.ready()["groups"], within_s=30)
        eventually(lambda: _is_given(ingress), within_s=30)

        eventually(lambda: all(process.ready().values()), within_s=30)
        ingress.settle()
    assert ingress.issued("7") == [b"1"]


def test_an_outbox_that_is_away_holds_its_partition_and_loses_nothing(ingress: IngressWorld):
    target = urlsplit(ingress.database.dsn("postgres"))
    assert target.hostname
    assert target.port
    switch = Switch(target.hostname, target.port)
    dsn = ingress.database.dsn("postgres").replace(f":{target.port}/", f":{switch.port}/")
    blocked = f'waybill_ingress_blocked_seconds{{tenant="{ingress.tenant}"}}'
    with ingress.running(outbox_dsn=dsn) as process:
        ingress.send(ingress.event("e-1", "7", b"1"))
        ingress.settle()
        switch.cut()
        ingress.send(
            ingress.event("e-2", "7", b"2"), ingress.event("bad", "7", b"1", ttl="no"), ingress.event("e-3", "7", b"3")
        )

        eventually(lambda: not process.ready()["outboxes"], within_s=30)
        eventually(lambda: process.metrics()[blocked] > 0, within_s=30)
        assert ingress.committed() == 1
        switch.mend()
        ingress.settle()

        eventually(lambda: all(process.ready().values()), within_s=30)
    switch.close()
    assert ingress.issued("7") == [b"1", b"2", b"3"]
    assert [letter["cause"] for letter in ingress.dead_letters()] == ["malformed_member"]
