"""A listener on a topic: the same handler, one effect per delivery, a signed result beside each, whatever happens."""

import asyncio
import json
import secrets
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from fixtures.fix_listener import CRM, erase

from waybill.contracts.command import Command
from waybill.contracts.envelope import (
    CONTENT_TYPE,
    GapEntry,
    GapResolution,
    Resolution,
    delivery_id_text,
    render,
    render_gap_resolution,
)
from waybill.contracts.names import deliveries_topic, listener_group, results_topic
from waybill.contracts.result import Result, parse_result
from waybill.crypto.keys import Algorithm, KeyRecord, jwks_document, new_key, write_keys
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.devstack import Stack
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, Tenant
from waybill.listener import Done, Limits, Listener, NoStore, PostgresStore, Received
from waybill.listener.core.holding import Bounds
from waybill.listener.stream import Stream, StreamSettings
from waybill.testing.clocks import MovableClock
from waybill.testing.waiting import eventually_async

pytestmark = pytest.mark.stack
PARTITIONS = 3


@dataclass
class Said:
    """A result as it lies in the topic."""

    partition: int
    result: Result


@dataclass
class Topic:
    """The topics of one tenant's destination, who hands over into them, and who reads what is said."""

    stack: Stack
    tenant: Tenant
    dsn: str
    schema: str
    clock: MovableClock
    signer: Signer
    keys: VerificationKeys
    tenant_key: KeyRecord
    results_key: KeyRecord
    make: Callable[..., Command]
    handed: dict[str, int] = field(default_factory=dict)

    def command(self, subject: str, sequence: int, **changes: Any) -> Command:
        aggregate = Aggregate(f"subject/{subject}")
        data = f'{{"subject":"{subject}-{sequence}"}}'.encode()
        return self.make(tenant=self.tenant, aggregate=aggregate, sequences={CRM: sequence}, data=data, **changes)

    def hand_over(self, *commands: Command, signer: Signer | None = None) -> None:
        """Write deliveries as a worker hands them over, each aggregate on its own partition."""
        bodies = [(c.aggregate, delivery_id_text(c.command_id, CRM), render(c, CRM)) for c in commands]
        self.write(*bodies, signer=signer)

    def write(self, *bodies: tuple[str, str, bytes], signer: Signer | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.stack.kafka, "acks": "all"})
        stamp = int(self.clock.now().timestamp())
        for aggregate, webhook_id, body in bodies:
            headers = {
                "content-type": CONTENT_TYPE,
                "webhook-id": webhook_id,
                "webhook-timestamp": str(stamp),
                "webhook-signature": (signer or self.signer).sign(webhook_id, stamp, body),
            }
            partition = self.handed.setdefault(aggregate, len(self.handed) % PARTITIONS)
            topic = deliveries_topic(self.tenant, CRM)
            producer.produce(topic, body, aggregate, partition, headers=list(headers.items()))
        assert producer.flush(30) == 0

    def listener(self, handler: Any = erase, store: PostgresStore | None = None, **limits: Any) -> Listener:
        listener = Listener(
            tenant=self.tenant,
            destination=CRM,
            keys=self.keys,
            store=store or PostgresStore(self.dsn, schema=self.schema, max_connections=8),
            limits=Limits(**limits),
            clock=self.clock,
        )
        listener.on("subject.erase")(handler)
        return listener

    @asynccontextmanager
    async def streaming(self, listener: Listener, **settings: Any) -> AsyncIterator[Stream]:
        signer = Signer([self.results_key])
        stream = Stream(listener, StreamSettings(bootstrap=self.stack.kafka, results_key=signer, **settings))
        stop = asyncio.Event()
        running = asyncio.create_task(stream.run(stop))
        try:
            yield stream
        finally:
            stop.set()
            await asyncio.wait_for(running, 60)

    def said(self) -> list[Said]:
        """Return all results, each verified by the destination's own key."""
        topic, found = results_topic(self.tenant, CRM), []
        reader = Consumer({"bootstrap.servers": self.stack.kafka, "group.id": "test", "enable.partition.eof": True})
        reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended = 0
        keys = VerificationKeys.from_jwks(jwks_document([self.results_key]))
        while ended < PARTITIONS:
            for message in reader.consume(500, 1.0):
                if message.error() is not None:
                    ended += 1
                    continue
                headers = {name: (value or b"").decode() for name, value in message.headers() or []}
                signed = SignatureHeaders(
                    webhook_id=headers["webhook-id"],
                    timestamp=headers["webhook-timestamp"],
                    signature=headers["webhook-signature"],
                )
                assert isinstance(verify(signed, message.value(), keys, self.clock.now(), None), Accept)
                found.append(Said(message.partition(), parse_result(message.value())))
        reader.close()
        return found

    def committed(self, group: str = "") -> dict[int, int]:
        """Return the committed offset of each partition."""
        asked = ConsumerGroupTopicPartitions(
            group or listener_group(self.tenant, CRM),
            [TopicPartition(deliveries_topic(self.tenant, CRM), number) for number in range(PARTITIONS)],
        )
        admin = AdminClient({"bootstrap.servers": self.stack.kafka})
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        return {place.partition: place.offset for place in future.result().topic_partitions if place.offset >= 0}

    def ends(self) -> dict[int, int]:
        admin = KafkaAdmin(self.stack.kafka, SystemClock())
        return dict(enumerate(admin.end_offsets(deliveries_topic(self.tenant, CRM), PARTITIONS)))

    async def effects(self) -> list[str]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            rows = await (await connection.execute("SELECT what FROM contact_erasure ORDER BY position")).fetchall()
        return [row[0] for row in rows]

    async def all_said(self, count: int) -> list[Said]:
        async def look() -> list[Said] | None:
            found = await asyncio.to_thread(self.said)
            return found if len({said.result.delivery_id for said in found}) >= count else None

        found = await eventually_async(look, 60)
        assert found is not None
        return found


@pytest.fixture
def topic(
    stack: Stack,
    site_schema: tuple[str, str],
    clock: MovableClock,
    signing_key: KeyRecord,
    make_command: Callable[..., Command],
) -> Topic:
    """A tenant of its own with both topics."""
    tenant = Tenant(f"s{secrets.token_hex(4)}")
    admin = KafkaAdmin(stack.kafka, SystemClock())
    for name in (deliveries_topic(tenant, CRM), results_topic(tenant, CRM)):
        admin.create(name, partitions=PARTITIONS, replication=1, configs={})
    schema, dsn = site_schema
    key = replace(signing_key, key_id=f"{tenant}-20260101-00000001")
    return Topic(
        stack=stack,
        tenant=tenant,
        dsn=dsn,
        schema=schema,
        clock=clock,
        signer=Signer([key]),
        keys=VerificationKeys.from_jwks(jwks_document([key])),
        tenant_key=key,
        results_key=new_key(Algorithm.ED25519, tenant, datetime(2020, 1, 1, tzinfo=UTC)),
        make=make_command,
    )


def in_order(effects: list[str]) -> bool:
    last: dict[str, int] = {}
    for effect in effects:
        subject, _, number = effect.rpartition("-")
        if int(number) <= last.get(subject, 0):
            return False
        last[subject] = int(number)
    return True


@pytest.mark.requirement("GW-4", "GW-6", "DC-17", "RS-4")
async def test_each_is_done_once_in_order_and_said_on_its_own_partition_with_a_rebalance_in_the_middle(
    topic: Topic,
) -> None:
    subjects = [f"p{number}" for number in range(12)]
    half = [topic.command(subject, number) for number in range(1, 6) for subject in subjects]
    rest = [topic.command(subject, number) for number in range(6, 11) for subject in subjects]
    topic.hand_over(*half)

    async with topic.streaming(topic.listener(in_order=True)):
        await topic.all_said(1)
        async with topic.streaming(topic.listener(in_order=True)) as second:
            await eventually_async(lambda: second.is_ready()["polling"], 30)
            topic.hand_over(*rest)
            await topic.all_said(len(half))
        said = await topic.all_said(len(half) + len(rest))

    effects = await topic.effects()
    assert Counter(effects) == Counter(f"{subject}-{number}" for subject in subjects for number in range(1, 11))
    assert in_order(effects)
    assert all(one.result.receipt is not None for one in said)
    assert all(topic.handed[one.result.aggregate] == one.partition for one in said)
    assert topic.committed() == topic.ends()


@pytest.mark.requirement("GW-4", "GW-6")
async def test_what_was_done_and_not_committed_is_said_again_and_not_done_again(topic: Topic) -> None:
    commands = [topic.command(f"p{number}", 1) for number in range(6)]
    topic.hand_over(*commands, commands[0], commands[0])
    async with topic.streaming(topic.listener()):
        first = await topic.all_said(6)

    async with topic.streaming(topic.listener(), group=f"waybill.{topic.tenant}.again"):
        await eventually_async(lambda: len(topic.said()) >= 2 * len(first), 60)

    assert sorted(await topic.effects()) == sorted(f"p{number}-1" for number in range(6))
    assert len({one.result.result_id for one in topic.said()}) == 6, "the same result, however often it is said"


@pytest.mark.requirement("DC-9", "RS-4")
async def test_a_listener_that_was_away_for_two_hours_catches_up_without_a_refusal(topic: Topic) -> None:
    topic.hand_over(*(topic.command(f"p{number}", 1) for number in range(20)))
    topic.clock.advance(timedelta(hours=2))

    async with topic.streaming(topic.listener(in_order=True)):
        said = await topic.all_said(20)

    assert [one.result.problem for one in said] == [None] * 20
    assert len(await topic.effects()) == 20


@pytest.mark.requirement("DC-13")
async def test_one_that_comes_too_early_waits_and_both_are_done_in_order(topic: Topic) -> None:
    topic.hand_over(topic.command("a", 1), topic.command("a", 3))
    async with topic.streaming(topic.listener(in_order=True)) as stream:
        await topic.all_said(1)
        await eventually_async(lambda: held(stream) == 1, 10)
        topic.hand_over(topic.command("a", 2))
        await topic.all_said(3)

    assert await topic.effects() == ["a-1", "a-2", "a-3"]


@pytest.mark.requirement("DC-13", "GW-6")
async def test_what_waits_for_its_turn_is_read_again_by_the_next_process(topic: Topic) -> None:
    topic.hand_over(topic.command("a", 1), topic.command("a", 3))
    async with topic.streaming(topic.listener(in_order=True)) as stream:
        await topic.all_said(1)
        await eventually_async(lambda: held(stream) == 1, 10)
    assert topic.committed() == {0: 1}, "an offset never passes what waits"

    topic.hand_over(topic.command("a", 2))
    async with topic.streaming(topic.listener(in_order=True)):
        await topic.all_said(3)

    assert await topic.effects() == ["a-1", "a-2", "a-3"]


@pytest.mark.requirement("DC-13")
async def test_one_that_waits_too_long_is_told_as_the_gap_it_is(topic: Topic) -> None:
    topic.hand_over(topic.command("a", 1), topic.command("a", 3))
    async with topic.streaming(topic.listener(in_order=True), hold=Bounds(max_age=timedelta(minutes=5))) as stream:
        await eventually_async(lambda: held(stream) == 1, 30)
        topic.clock.advance(timedelta(minutes=6))
        said = await topic.all_said(2)

    (problem,) = [one.result.problem for one in said if one.result.problem is not None]
    assert (problem.reason, problem.expected_sequence) == ("gap", 2)
    assert topic.committed() == {number: end for number, end in topic.ends().items() if end}


@pytest.mark.requirement("DC-13")
async def test_a_gap_resolution_lets_go_what_waits(topic: Topic) -> None:
    missing, late = topic.command("a", 2), topic.command("a", 3)
    topic.hand_over(topic.command("a", 1), late)
    gap = GapResolution(
        resolution_id=DeliveryId(uuid.uuid4()),
        tenant=topic.tenant,
        destination=CRM,
        aggregate=late.aggregate,
        source="urn:waybill:worker",
        issued_at=topic.clock.now(),
        config_version=1,
        entries=(
            GapEntry(
                sequence=2,
                delivery_id=DeliveryId(uuid.UUID(delivery_id_text(missing.command_id, CRM))),
                resolution=Resolution.FINAL,
            ),
        ),
    )
    async with topic.streaming(topic.listener(in_order=True)) as stream:
        await eventually_async(lambda: held(stream) == 1, 30)
        topic.write((gap.aggregate, str(gap.resolution_id), render_gap_resolution(gap)))
        said = await topic.all_said(3)

    assert await topic.effects() == ["a-1", "a-3"]
    assert gap.resolution_id in {one.result.delivery_id for one in said if one.result.receipt is not None}


@pytest.mark.requirement("DC-9", "DC-10")
async def test_what_nobody_signed_for_us_is_passed_over_and_named_by_nothing(topic: Topic) -> None:
    stranger = Signer([new_key(Algorithm.ED25519, topic.tenant, topic.clock.now() - timedelta(days=1))])
    forged = topic.command("a", 1)
    topic.hand_over(forged, signer=stranger)
    topic.write(("subject/a", "no id", b"\xff\xfe"))
    topic.hand_over(topic.command("a", 1, command_id=CommandId(uuid.uuid4())))

    listener = topic.listener()
    async with topic.streaming(listener):
        said = await topic.all_said(1)

    assert await topic.effects() == ["a-1"]
    assert delivery_id_text(forged.command_id, CRM) not in {str(one.result.delivery_id) for one in said}
    for code in ("AUTH", "VALIDATION"):
        refused = {"tenant": topic.tenant, "destination": "crm", "result": code}
        assert listener.registry.get_sample_value("waybill_listener_deliveries_total", refused) == 1
    assert topic.committed() == {number: end for number, end in topic.ends().items() if end}


@pytest.mark.requirement("ET-1")
async def test_what_a_handler_refuses_is_said_and_the_next_one_goes_on(topic: Topic) -> None:
    async def fussy(command: Received, transaction: psycopg.AsyncConnection) -> Done:
        if command.json()["subject"] == "a-1":
            raise RuntimeError("a fault of the destination")
        return await erase(command, transaction)

    topic.hand_over(topic.command("a", 1), topic.command("a", 2))
    async with topic.streaming(topic.listener(fussy)):
        said = await topic.all_said(2)

    assert [one.result.problem.reason for one in said if one.result.problem] == ["handler_failed"]
    assert await topic.effects() == ["a-2"]


async def test_while_the_store_does_not_serve_nothing_is_said_and_nothing_is_lost(topic: Topic) -> None:
    topic.hand_over(*(topic.command(f"p{number}", 1) for number in range(4)))
    store = PostgresStore(topic.dsn, schema=topic.schema, lock_timeout=timedelta(milliseconds=50))
    await store.open()
    async with await psycopg.AsyncConnection.connect(topic.dsn) as blocker:
        await blocker.execute("LOCK TABLE delivery IN ACCESS EXCLUSIVE MODE")
        async with topic.streaming(topic.listener(store=store)) as stream:
            await eventually_async(lambda: not stream.is_ready()["executing"], 30)
            assert topic.said() == []
            assert topic.committed() == {}
            await blocker.rollback()
            await topic.all_said(4)
            assert stream.is_ready()["executing"]

    assert len(await topic.effects()) == 4


@pytest.mark.requirement("GW-6")
async def test_what_is_under_way_when_a_partition_is_given_back_is_finished_and_committed(topic: Topic) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(command: Received, transaction: psycopg.AsyncConnection) -> Done:
        begun.set()
        await gate.wait()
        return await erase(command, transaction)

    topic.hand_over(topic.command("a", 1), topic.command("a", 2))
    signer = Signer([topic.results_key])
    settings = StreamSettings(bootstrap=topic.stack.kafka, results_key=signer)
    stop = asyncio.Event()
    stream = Stream(topic.listener(slow), settings)
    running = asyncio.create_task(stream.run(stop))
    await asyncio.wait_for(begun.wait(), 30)

    stop.set()
    await eventually_async(lambda: not stream.partitions, 10, "the partition is being given back")
    gate.set()
    await asyncio.wait_for(running, 30)

    assert await topic.effects() == ["a-1"], "nothing is begun any more"
    assert [one.result.receipt is not None for one in topic.said()] == [True]
    assert topic.committed() == {0: 1}


async def test_more_than_may_be_held_in_memory_is_not_read(topic: Topic) -> None:
    gate, begun = asyncio.Event(), 0

    async def slow(command: Received, transaction: psycopg.AsyncConnection) -> Done:
        nonlocal begun
        begun += 1
        await gate.wait()
        return await erase(command, transaction)

    topic.hand_over(*(topic.command(f"p{number % 40}", 1 + number // 40) for number in range(1_200)))
    async with topic.streaming(topic.listener(slow), concurrency=4, max_records=100) as stream:
        await eventually_async(lambda: begun == 4 and bool(stream.paused), 30)
        gate.set()
        await topic.all_said(1_200)
        await eventually_async(lambda: not stream.paused, 10)

    effects = await topic.effects()
    assert len(effects) == len(set(effects)) == 1_200
    assert in_order(effects)


APP = """
import psycopg
from waybill.listener import Done, Listener, PostgresStore

listener = Listener(tenant={tenant!r}, destination="crm", keys={keys!r}, store=PostgresStore({dsn!r}, schema={schema!r}))

@listener.on("subject.erase")
async def erase(command, transaction):
    subject = command.json()["subject"]
    await transaction.execute("INSERT INTO contact_erasure (what) VALUES (%s)", (subject,))
    return Done(source_version="1", evidence="crm:1", count=1)
"""


async def test_the_command_runs_until_it_is_told_to_stop(topic: Topic, tmp_path: Path) -> None:
    topic.clock.jump(SystemClock().now())
    (tmp_path / "jwks.json").write_text(json.dumps(jwks_document([topic.tenant_key])))
    words = {"tenant": topic.tenant, "keys": str(tmp_path / "jwks.json"), "dsn": topic.dsn, "schema": topic.schema}
    (tmp_path / "app.py").write_text(APP.format(**words))
    write_keys(tmp_path / "signing.json", [topic.results_key])
    expires_at = topic.clock.now() + timedelta(hours=1)
    topic.hand_over(topic.command("a", 1, issued_at=topic.clock.now(), expires_at=expires_at))
    given = ["listen", "app:listener", "--kafka", topic.stack.kafka, "--results-key", str(tmp_path / "signing.json")]

    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("waybill")), *given, "--metrics-port", "0", "--json", cwd=tmp_path, stdout=-1
    )
    try:
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert told["group"] == listener_group(topic.tenant, CRM)
        await topic.all_said(1)
    finally:
        process.send_signal(signal.SIGTERM)
        ended = await asyncio.wait_for(process.wait(), 30)

    assert ended == 0
    assert await topic.effects() == ["a-1"]
    assert topic.committed() == {0: 1}


def test_a_listener_that_recognises_no_repeat_does_not_read_a_topic(topic: Topic) -> None:
    listener = Listener(tenant=topic.tenant, destination=CRM, keys=topic.keys, store=NoStore(), clock=topic.clock)

    with pytest.raises(ConfigError, match="recognise a repeat"):
        Stream(listener, StreamSettings(bootstrap=topic.stack.kafka, results_key=Signer([topic.results_key])))


def held(stream: Stream) -> float | None:
    """Return how many records wait for their turn."""
    here = {"tenant": stream.binding.tenant, "destination": stream.binding.destination}
    return stream.registry.get_sample_value("waybill_listener_held", here)
