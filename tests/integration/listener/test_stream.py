"""A listener on a topic: the same handler, one effect per delivery, a signed result beside each, whatever happens."""

import asyncio
import json
import signal
import socket
import sys
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from fixtures.fix_listener import CRM, erase
from fixtures.fix_stream import Topic

from waybill.contracts.envelope import (
    GapEntry,
    GapResolution,
    Resolution,
    delivery_id_text,
    render_gap_resolution,
)
from waybill.contracts.names import listener_group
from waybill.crypto.keys import Algorithm, jwks_document, new_key, write_keys
from waybill.crypto.signing import Signer
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import CommandId, DeliveryId
from waybill.listener import Done, Listener, NoStore, PostgresStore, Received
from waybill.listener.core.holding import Bounds
from waybill.listener.stream import Stream, StreamSettings
from waybill.testing.waiting import eventually_async

pytestmark = pytest.mark.stack


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
        said = await topic.all_said(2)

    assert await topic.effects() == ["a-1", "a-3"]
    assert gap.resolution_id not in {one.result.delivery_id for one in said}, "nobody waits to hear of it"
    assert topic.committed() == {0: 3}


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


async def test_a_proof_nobody_could_read_is_refused_before_the_effect_is_there(topic: Topic) -> None:
    async def wordy(command: Received, transaction: psycopg.AsyncConnection) -> Done:
        await erase(command, transaction)
        return Done(source_version="1", evidence="x" * 3_000, count=1)

    topic.hand_over(topic.command("a", 1))
    async with topic.streaming(topic.listener(wordy)) as stream:
        said = await topic.all_said(1)
        assert stream.is_alive()["lanes"]

    assert [one.result.problem.reason for one in said if one.result.problem] == ["handler_failed"]
    assert await topic.effects() == []
    assert topic.committed() == {0: 1}


async def test_what_waits_for_its_turn_does_not_stop_the_reading_of_what_it_waits_for(topic: Topic) -> None:
    topic.hand_over(*(topic.command(f"p{number}", 2) for number in range(20)))
    topic.hand_over(*(topic.command(f"p{number}", 1) for number in range(20)))

    async with topic.streaming(topic.listener(in_order=True), max_records=10):
        said = await topic.all_said(40)

    assert Counter(await topic.effects()) >= Counter(f"p{number}-1" for number in range(20))
    assert {one.result.problem.reason for one in said if one.result.problem} <= {"gap"}
    assert topic.committed() == topic.ends()


async def test_without_brokers_it_is_not_ready(topic: Topic) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
        settings = StreamSettings(bootstrap=away, results_key=Signer([topic.results_key]))
        stream, stop = Stream(topic.listener(), settings), asyncio.Event()
        running = asyncio.create_task(stream.run(stop))

        await eventually_async(lambda: stream.is_ready()["polling"] and not stream.is_ready()["reading"], 30)

        stop.set()
        await asyncio.wait_for(running, 30)


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
        str(Path(sys.executable).with_name("waybill")),
        *(*given, "--hold-count", "7", "--hold-age", "90s", "--metrics-port", "0", "--json"),
        cwd=tmp_path,
        stdout=-1,
    )
    try:
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert told["group"] == listener_group(topic.tenant, CRM)
        assert told["hold"] == {"count": 7, "age": "90s"}
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
