"""A destination that answers 202 and says later what it did: believed by its own key, waited for within a bound."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from fixtures.fake_listener import Arrival, FakeListener, Reply
from fixtures.worker_world import Sent, WorkerWorld

from waybill.catalog import apply_topics, load_topics, topics_of
from waybill.contracts.envelope import Envelope
from waybill.contracts.envelope_reader import parse
from waybill.contracts.fabric import Profile, ResultSource, RetryPolicy
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.crypto.keys import Algorithm, KeyRecord, new_key
from waybill.crypto.signing import Signer
from waybill.delivery.results.reading import ResultFilter, list_results
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.ids import Tenant
from waybill.listener.results import SignedResult, result_of, sign_result
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.2, cap_s=1.0, hot_attempts=0)


def key(name: str) -> KeyRecord:
    return new_key(Algorithm.ED25519, Tenant(name), datetime.now(UTC) - timedelta(days=1))


def accepting(_: Arrival) -> Reply:
    return 202, {}, b""


def receipt(evidence: str = "crm:1") -> Receipt:
    return Receipt(status=ReceiptStatus.DONE, source_version="7", count=1, evidence=evidence)


def envelope_of(listener: FakeListener, sent: Sent, destination: str = "crm") -> Envelope:
    (body, *_) = [a.body for a in list(listener.arrivals) if a.delivery_id == str(sent.delivery(destination))]
    found = parse(body)
    assert isinstance(found, Envelope)
    return found


def publish(world: WorkerWorld, results: Sequence[SignedResult], topic: str) -> None:
    producer = Producer({"bootstrap.servers": world.stack.kafka, "partitioner": "murmur2_random", "acks": "all"})
    for result in results:
        producer.produce(topic, key=result.key, value=result.body, headers=list(result.headers))
    assert producer.flush(30) == 0


def kept(world: WorkerWorld) -> list[dict[str, Any]]:
    with psycopg.connect(world.dsn, row_factory=psycopg.rows.dict_row) as connection:
        query = "SELECT * FROM delivery.result WHERE tenant = %s ORDER BY arrived_at, record_offset"
        return connection.execute(query, (world.tenant,)).fetchall()


def state(world: WorkerWorld, sent: Sent, destination: str = "crm") -> str:
    return str(world.states().get(str(sent.delivery(destination)), {}).get("state"))


def make_topics(world: WorkerWorld, *destinations: str) -> None:
    admin = KafkaAdmin(world.stack.kafka, SystemClock())
    apply_topics(admin, world.tenant, world.partitions, declared=topics_of(load_topics(), destinations))


@pytest.mark.requirement("RS-4", "RS-5", "DC-12", "DC-18", "CK-3", "GW-19")
def test_only_the_destinations_own_result_moves_what_it_accepted(world: WorkerWorld, destination: FakeListener) -> None:
    destination.behave = accepting
    own, other = key("crm"), key("cad")
    make_topics(world, "crm")
    config = world.add_destination(
        destination.url, results=ResultSource(keys=(own.public_text(),), wait_s=3600.0), retry=QUICK
    )
    first, second, apart = world.emit([("unit/1", 1), ("unit/1", 2), ("unit/2", 1)])
    with world.running():
        eventually(lambda: {state(world, first), state(world, apart)} == {"delivered"}, 60)
        assert destination.attempts(second.delivery()) == 0, "what was accepted holds its aggregate"
        now = datetime.now(UTC)
        true = result_of(envelope_of(destination, first), receipt(), now)
        signed = sign_result(true, Signer([own]), now)
        forged = [
            sign_result(true, Signer([other]), now),
            sign_result(replace(true, tenant=Tenant("acme")), Signer([own]), now),
            sign_result(replace(true, destination=config.name + "x"), Signer([own]), now),
            replace(signed, body=signed.body.replace(b"crm:1", b"crm:2")),
            sign_result(replace(true, receipt=replace(receipt(), evidence=None)), Signer([own]), now),
        ]
        publish(world, forged, signed.topic)
        eventually(lambda: len(kept(world)) == len(forged), 30)
        assert state(world, first) == "delivered"
        assert {row["reason"] for row in kept(world)} == {
            "signature_mismatch",
            "tenant",
            "destination",
            "receipt_without_evidence",
        }
    publish(world, [signed, signed], signed.topic)  # while nobody listens
    with world.running():
        eventually(lambda: state(world, first) == "acknowledged" and state(world, second) == "delivered", 60)
        eventually(lambda: [row["reason"] for row in kept(world)].count("replayed") == 1, 30)
        late = result_of(envelope_of(destination, apart), receipt("crm:9"), now)
        publish(world, [sign_result(late, Signer([own]), now - timedelta(hours=2))], signed.topic)
        eventually(lambda: state(world, apart) == "acknowledged", 60)
        eventually(lambda: [row["weighed"] for row in kept(world)].count("settled") == 2, 30)

    told = [o for o in world.outcomes() if o["delivery_id"] == str(first.delivery())]
    assert [(o["kind"], o["state_after"], o["version"]) for o in told] == [
        ("attempt", "delivered", 1),
        ("transition", "acknowledged", 2),
    ]
    assert (told[1]["evidence"], told[1]["proof_level"], told[0]["proof_level"]) == ("crm:1", "receipt", None)
    assert world.states()[str(apart.delivery())]["detail"] == "clock_is_wrong"
    flagged = [row for row in kept(world) if row["is_quarantined"]]
    assert [str(row["delivery_id"]) for row in flagged] == [str(apart.delivery())]
    assert flagged[0]["body"] == sign_result(late, Signer([own]), now).body
    with psycopg.connect(world.dsn) as connection:
        listed = list_results(connection, ResultFilter(tenant=world.tenant))
    assert [row["result_id"] for row in listed] == [row["result_id"] for row in reversed(kept(world))]


@pytest.mark.requirement("RS-4", "GW-12")
def test_a_wait_in_which_nothing_is_said_ends_by_profile_and_a_late_proof_still_counts(
    world: WorkerWorld, destination: FakeListener
) -> None:
    own = key("crm")
    source = ResultSource(keys=(own.public_text(),), wait_s=2.0)
    destination.behave = accepting
    make_topics(world, "crm", "cad")
    world.add_destination(destination.url, results=source, retry=QUICK)
    world.add_destination(destination.url, "cad", results=source, retry=QUICK, profile=Profile.NON_IDEMPOTENT)
    (sent,) = world.emit([("unit/1", 1)], destinations=("crm", "cad"))
    with world.running():
        eventually(lambda: destination.attempts(sent.delivery("crm")) >= 2, 60)
        eventually(lambda: state(world, sent, "cad") == "ambiguous", 60)
        assert destination.attempts(sent.delivery("cad")) == 1
        now = datetime.now(UTC)
        for name in ("crm", "cad"):
            signed = sign_result(
                result_of(envelope_of(destination, sent, name), receipt(name), now), Signer([own]), now
            )
            publish(world, [signed], signed.topic)
        eventually(lambda: {state(world, sent, name) for name in ("crm", "cad")} == {"acknowledged"}, 60)

    told = [o for o in world.outcomes() if o["delivery_id"] == str(sent.delivery("cad"))]
    assert [(o["state_after"], o["detail"]) for o in told][1:2] == [("ambiguous", "no_result")]
    bodies = {a.body for a in destination.arrivals if a.delivery_id == str(sent.delivery("crm"))}
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["id"] == str(sent.delivery("crm"))
    assert all(isinstance(row["result_id"], uuid.UUID) for row in kept(world))
