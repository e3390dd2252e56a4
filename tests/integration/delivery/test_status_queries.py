"""A worker asks on the real stack: a listener of ours that lost its answer, and one that never got the request."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.fix_stack import FreshDatabase
from fixtures.worker_world import Sent, WorkerWorld

from waybill.contracts.fabric import Profile, RetryPolicy, StatusSource, Timeouts
from waybill.crypto.keys import jwks_document, read_keys, signing_path
from waybill.testing.ledger_listener import Behaviour, Ledger, LedgerProcess, effects
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.2, cap_s=1.0, hot_attempts=0)
SHORT = Timeouts(connect_s=1.0, read_s=1.0, total_s=1.0)


def state(world: WorkerWorld, sent: Sent) -> str:
    return str(world.states().get(str(sent.delivery()), {}).get("state"))


@pytest.mark.requirement("AM-2", "AM-3", "DC-23")
def test_a_lost_answer_is_asked_for_and_nothing_is_done_twice(
    world: WorkerWorld, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps(jwks_document(read_keys(signing_path(world.keys_dir, world.tenant)))))
    ledger = Ledger(
        dsn=fresh_database.dsn(),
        tenant=world.tenant,
        destination="crm",
        jwks=jwks,
        behaviour=Behaviour(drop_first=1),
    )
    with LedgerProcess(ledger) as listener:
        world.add_destination(
            listener.url,
            profile=Profile.NON_IDEMPOTENT,
            retry=QUICK,
            status_query=StatusSource(url=listener.url, settle_after_s=600.0),
        )
        lost, behind = world.emit([("unit/1", 1), ("unit/1", 2)])
        with world.running():
            eventually(lambda: state(world, behind) == "acknowledged", 60)

    assert [effect.sequence for effect in effects(ledger.dsn)] == [1, 2]
    told = [o for o in world.outcomes() if o["delivery_id"] == str(lost.delivery())]
    assert [(o["kind"], o["state_after"]) for o in told] == [("attempt", "ambiguous"), ("transition", "acknowledged")]
    assert (told[1]["evidence"], told[1]["detail"]) == ("ledger:effect/1", "status_done")
    with psycopg.connect(fresh_database.dsn()) as connection:
        (asked,) = connection.execute("SELECT asked FROM delivery.open_task WHERE state = 'acknowledged'").fetchone()  # type: ignore[misc]
    assert (asked["said"], asked["http_status"], len(asked["answer_sha256"])) == ("done", 200, 64)


@pytest.mark.requirement("AM-1", "AM-2", "GW-2")
def test_what_never_arrived_is_sent_once_more_when_that_is_settled(
    world: WorkerWorld, destination: FakeListener
) -> None:
    def behave(arrival: Arrival) -> Reply | None:
        event = json.loads(arrival.body)
        if event["type"] == "waybill.status-query":
            answer = {"query_id": event["id"], "delivery_id": event["data"]["delivery_id"], "status": "not_done"}
            return 200, {"content-type": "application/json"}, json.dumps(answer).encode()
        return receipt() if destination.attempts(arrival.delivery_id) > 1 else None

    destination.behave = behave
    world.add_destination(
        destination.url,
        profile=Profile.NON_IDEMPOTENT,
        retry=QUICK,
        timeouts=SHORT,
        status_query=StatusSource(url=destination.url, settle_after_s=1.0),
    )
    (sent,) = world.emit([("unit/1", 1)])
    with world.running():
        eventually(lambda: state(world, sent) == "acknowledged", 60)

    attempts = [a for a in destination.arrivals if a.delivery_id == str(sent.delivery())]
    assert len(attempts) == 2
    assert attempts[0].body == attempts[1].body
    asked = [a for a in destination.arrivals if a.sequence == 0]
    assert len(asked) > 1, "asked too early at first"
    assert len({a.delivery_id for a in asked}) == len(asked)


@pytest.mark.requirement("AM-4")
def test_what_is_not_there_any_more_is_done_only_where_the_destination_declared_that(
    world: WorkerWorld, destination: FakeListener
) -> None:
    def behave(arrival: Arrival) -> Reply | None:
        event = json.loads(arrival.body)
        if event["type"] != "waybill.status-query":
            return None  # it may have been done
        receipt = {"status": "absent", "source_version": "7", "count": 0, "evidence": "crm:register/7"}
        answer = {"query_id": event["id"], "delivery_id": event["data"]["delivery_id"], "status": "absent"}
        return 200, {"content-type": "application/json"}, json.dumps({**answer, "receipt": receipt}).encode()

    destination.behave = behave
    source = StatusSource(url=destination.url, settle_after_s=1.0)
    for name, declared in (("declared", frozenset({"subject.erase"})), ("silent", frozenset({"another.type"}))):
        world.add_destination(
            destination.url, name, profile=Profile.NON_IDEMPOTENT, retry=QUICK, timeouts=SHORT, status_query=source,
            absence_proves=declared,
        )  # fmt: skip
    (sent,) = world.emit([("unit/1", 1)], destinations=("declared", "silent"))

    def stands(name: str) -> dict[str, Any]:
        return world.states().get(str(sent.delivery(name)), {})

    def asked() -> dict[str, Any]:
        found = [row for row in world.rows() if row["destination"] == "silent"]
        return found[0]["asked"] or {} if found else {}

    with world.running():
        eventually(lambda: stands("declared").get("state") == "acknowledged", 60)
        became = stands("declared")["updated_at"]
        eventually(lambda: asked() and datetime.fromisoformat(asked()["asked_at"]) > became, 30)

    assert (stands("silent")["state"], asked()["said"]) == ("ambiguous", "absent"), "asked as late, and not believed"
    assert destination.attempts(sent.delivery("declared")) == destination.attempts(sent.delivery("silent")) == 1
    (told,) = [o for o in world.outcomes() if o["state_after"] == "acknowledged"]
    assert (told["receipt_status"], told["evidence"], told["detail"]) == ("absent", "crm:register/7", "status_absent")
