"""A destination that takes its deliveries from Kafka: handed over with the state they lead to, whoever dies meanwhile."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from fixtures.worker_world import Sent, ShiftedClock, Victim, WorkerWorld

from waybill.catalog import apply_topics, load_topics, topics_of
from waybill.contracts.envelope import Envelope, GapResolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.fabric import OnUnsettled, ResultSource, RetryPolicy, Transport
from waybill.contracts.names import deliveries_topic, listener_group
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.crypto.keys import Algorithm, KeyRecord, jwks_document, new_key, read_keys, signing_path
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.infra.clock import SystemClock
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.results import result_of, sign_result
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
_SIGNED = ("webhook-id", "webhook-timestamp", "webhook-signature")
QUICK = RetryPolicy(base_s=0.2, cap_s=1.0, hot_attempts=0)


def new_own_key() -> KeyRecord:
    return new_key(Algorithm.ED25519, Tenant("billing"), datetime.now(UTC) - timedelta(days=1))


def add(world: WorkerWorld, *names: str, own: KeyRecord | None = None, wait_s: float = 3600.0, **more: Any) -> None:
    """Declare destinations over Kafka, as apply does: topics first."""
    source = ResultSource(keys=((own or new_own_key()).public_text(),), wait_s=wait_s)
    for name in names:
        world.add_destination(None, name, transport=Transport.KAFKA, results=source, retry=QUICK, **more)
    every = [each.name for each in world.config.current().tenants[0].destinations]
    admin = KafkaAdmin(world.stack.kafka, SystemClock())
    apply_topics(admin, world.tenant, world.partitions, declared=topics_of(load_topics(), every, every))


def handed(world: WorkerWorld, name: str = "crm") -> list[Message]:
    """Read everything that was handed over to a destination, in the order of each partition."""
    topic = deliveries_topic(world.tenant, DestinationName(name))
    consumer = Consumer(
        {"bootstrap.servers": world.stack.kafka, "group.id": f"test.{topic}", "isolation.level": "read_committed"}
    )
    found: list[Message] = []
    try:
        places = [TopicPartition(topic, number, 0) for number in range(world.partitions)]
        ends = {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
        consumer.assign(places)
        while any(
            consumer.position([place])[0].offset < ends[place.partition] for place in places if ends[place.partition]
        ):
            found.extend(consumer.consume(500, 0.2))
    finally:
        consumer.close()
    return found


def ids(messages: list[Message]) -> list[str]:
    return [dict(message.headers() or [])["webhook-id"].decode() for message in messages]


def of(world: WorkerWorld, sent: Sent) -> list[Message]:
    """Return what was handed over of an aggregate."""
    return [message for message in handed(world) if message.key() == sent.aggregate.encode()]


def still_unread(world: WorkerWorld) -> set[str]:
    """Return the aggregates of which a hand-over was not seen to be read past."""
    return {row["aggregate"] for row in world.rows() if row["handed_to"] is not None}


def read_past(world: WorkerWorld, message: Message) -> None:
    """Commit for the listeners that they have read everything up to a record, and that too."""
    place, offset = (message.topic() or "", message.partition() or 0), message.offset()
    assert offset is not None
    GroupOffsets(world.stack.kafka).commit(listener_group(world.tenant, DestinationName("crm")), {place: offset + 1})


def answer(world: WorkerWorld, message: Message, own: KeyRecord) -> None:
    """Say of something handed over that it was done."""
    envelope, now = parse(message.value() or b""), datetime.now(UTC)
    assert isinstance(envelope, Envelope)
    receipt = Receipt(status=ReceiptStatus.DONE, source_version="7", count=1, evidence="billing:1")
    signed = sign_result(result_of(envelope, receipt, now), Signer([own]), now)
    producer = Producer({"bootstrap.servers": world.stack.kafka})
    producer.produce(
        signed.topic, key=signed.key, value=signed.body, headers=list(signed.headers), partition=message.partition()
    )
    assert producer.flush(30) == 0


def standing(world: WorkerWorld, sent: Sent, name: str = "crm") -> dict[str, Any]:
    return world.states().get(str(sent.delivery(name)), {})


def is_in(world: WorkerWorld, sent: Sent, state: str, name: str = "crm") -> Callable[[], bool]:
    return lambda: standing(world, sent, name).get("state") == state


@pytest.mark.requirement("RS-4", "RS-5", "DC-16")
def test_a_delivery_is_handed_over_signed_and_the_next_of_its_aggregate_waits_for_the_result(
    world: WorkerWorld,
) -> None:
    own = new_own_key()
    add(world, "crm", own=own)
    first, second, apart = world.emit([("unit/1", 1), ("unit/1", 2), ("unit/2", 1)])
    with world.running():
        eventually(lambda: len(handed(world)) == 2, 60)
        by_id = dict(zip(ids(handed(world)), handed(world), strict=True))
        assert set(by_id) == {str(first.delivery()), str(apart.delivery())}, "one unfinished hand-over per aggregate"
        message = by_id[str(first.delivery())]
        headers, body = [(name, value.decode()) for name, value in message.headers() or []], message.value() or b""
        assert [name for name, _ in headers] == ["content-type", *_SIGNED]
        assert message.key() == b"unit/1"
        keys = VerificationKeys.from_jwks(jwks_document(read_keys(signing_path(world.keys_dir, world.tenant))))
        named = dict(headers)
        signed = SignatureHeaders(
            webhook_id=named["webhook-id"],
            timestamp=named["webhook-timestamp"],
            signature=named["webhook-signature"],
        )
        assert isinstance(verify(signed, body, keys, datetime.now(UTC)), Accept)
        eventually(is_in(world, first, "delivered"), 30)
        eventually(lambda: all(row["handed_to"] is not None for row in world.rows() if row["state"] == "delivered"), 30)
        answer(world, message, own)
        eventually(is_in(world, first, "acknowledged"), 30)
        eventually(lambda: str(second.delivery()) in ids(handed(world)), 30)

    told = [o for o in world.outcomes() if o["delivery_id"] == str(first.delivery())]
    assert [(o["kind"], o["state_after"], o["detail"]) for o in told] == [
        ("attempt", "delivered", "handed_over"),
        ("transition", "acknowledged", None),
    ]
    assert (told[0]["http_status"], told[1]["evidence"]) == (None, "billing:1")
    assert world.committed() == 3, "what is handed over or waits for that is in rows"


#: Where a worker dies → how often the same record is in the topic after another one finished what it left.
DEATHS = {"before_row": 1, "after_row": 1, "before_publish": 1, "after_publish": 2}


@pytest.mark.requirement("DC-1", "DC-6", "DC-16", "RS-3")
def test_whoever_dies_where_nothing_is_lost_and_no_two_records_of_a_delivery_differ(
    world: WorkerWorld, tmp_path: Path
) -> None:
    names = {step: step.replace("_", "-") for step in DEATHS}
    add(world, *names.values())
    (sent,) = world.emit([("unit/1", 1)], destinations=tuple(names.values()))
    victims = [Victim(name, f"{step}:kill", name) for step, name in names.items()]
    with world.spawned(tmp_path, victims) as processes:
        processes.ends(60)
    with world.running():
        eventually(
            lambda: all(is_in(world, sent, "delivered", name)() and handed(world, name) for name in names.values()), 60
        )
        eventually(lambda: len([row for row in world.rows() if row["handed_to"] is not None]) == len(names), 30)

    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    copies: dict[str, int] = {}
    for step, name in names.items():
        messages = handed(world, name)
        assert set(ids(messages)) == {str(sent.delivery(name))}
        copies[step] = len(messages)
        found[step] = {(m.key(), m.value(), tuple(m.headers() or []), m.partition()) for m in messages}
    assert {step: len(each) for step, each in found.items()} == dict.fromkeys(DEATHS, 1)
    assert copies == DEATHS, "published again only where the row did not know that it was"


@pytest.mark.requirement("RS-4", "GW-9", "DC-8")
def test_a_wait_begins_when_the_listeners_have_read_past_and_what_expires_unread_ends(world: WorkerWorld) -> None:
    add(world, "crm", wait_s=600.0, on_unsettled=OnUnsettled.CONTINUE)
    clock, until = ShiftedClock(), datetime.now(UTC) + timedelta(hours=3)
    (read,) = world.emit([("unit/1", 1)], expires_at=until)
    with world.running(clock=clock):
        (first,) = eventually(lambda: handed(world), 60)
        others = world.emit([(f"unit/{number}", 1) for number in range(2, 8)], expires_at=until)
        eventually(lambda: len(handed(world)) == 7, 30)
        unread = next(sent for sent in others if of(world, sent)[0].partition() == first.partition())
        eventually(lambda: len(still_unread(world)) == 7, 30)
        read_past(world, first)
        eventually(lambda: read.aggregate not in still_unread(world), 30)
        assert unread.aggregate in still_unread(world), "both are looked at in one statement"

        clock.advance(timedelta(minutes=11))
        eventually(lambda: len(of(world, read)) == 2, 60)
        assert len(of(world, unread)) == 1, "nobody has read it: nobody can have answered"
        assert len({(m.key(), m.value(), m.partition()) for m in of(world, read)}) == 1
        assert set(ids(of(world, read))) == {str(read.delivery())}

        (behind,) = world.emit([(unread.aggregate, 2)])
        clock.advance(timedelta(hours=3))
        eventually(is_in(world, unread, "ambiguous"), 60)
        eventually(lambda: len(of(world, unread)) == 3, 30)

    assert standing(world, unread)["detail"] == "expired"
    told = [o["detail"] for o in world.outcomes() if o["delivery_id"] == str(read.delivery())]
    assert told[:3] == ["handed_over", "no_result", "handed_over"]
    before, told_of, after = (parse(message.value() or b"") for message in of(world, unread))
    assert isinstance(told_of, GapResolution), "its listeners learn that it does not come before what is behind it"
    assert isinstance(before, Envelope)
    assert isinstance(after, Envelope)
    assert (before.delivery_id, after.delivery_id) == (unread.delivery(), behind.delivery())
