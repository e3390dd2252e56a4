"""Both ends of a topic: a worker that hands over and listeners that read, until everything is acknowledged."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fixtures.worker_world import WorkerWorld

from waybill.catalog import apply_topics, load_topics, topics_of
from waybill.contracts.fabric import ResultSource, RetryPolicy, Transport
from waybill.crypto.keys import Algorithm, jwks_document, new_key, read_keys, signing_path
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.ids import Tenant
from waybill.listener import Done, ErrorCode, Limits, Listener, Received, Refuse, SqliteStore, SqliteTransaction
from waybill.listener.stream import Stream, StreamSettings
from waybill.testing.waiting import eventually_async

pytestmark = pytest.mark.stack


@pytest.mark.requirement("GW-4", "GW-6", "RS-4", "DC-13", "DC-16")
async def test_what_is_handed_over_is_done_once_in_order_and_acknowledged_by_its_result(
    world: WorkerWorld, tmp_path: Path
) -> None:
    own = new_key(Algorithm.ED25519, Tenant("billing"), datetime.now(UTC) - timedelta(days=1))
    source = ResultSource(keys=(own.public_text(),), wait_s=3600.0)
    retry = RetryPolicy(base_s=0.2, cap_s=0.5, hot_attempts=0)
    world.add_destination(None, "crm", transport=Transport.KAFKA, results=source, retry=retry)
    admin = KafkaAdmin(world.stack.kafka, SystemClock())
    apply_topics(admin, world.tenant, world.partitions, declared=topics_of(load_topics(), ["crm"], ["crm"]))
    done: list[tuple[str, int]] = []
    refused: set[str] = set()

    async def erase(command: Received, transaction: SqliteTransaction) -> Done:
        envelope = command.envelope
        if envelope.aggregate == "unit/1" and envelope.aggregate not in refused:
            refused.add(envelope.aggregate)
            raise Refuse(ErrorCode.SOURCE_UNAVAILABLE, "ledger_closed")
        done.append((envelope.aggregate, envelope.sequence))
        return Done(source_version="7", evidence=f"billing:{envelope.delivery_id}", count=1)

    def stream() -> Stream:
        keys = VerificationKeys.from_jwks(jwks_document(read_keys(signing_path(world.keys_dir, world.tenant))))
        listener = Listener(
            tenant=world.tenant,
            destination="crm",
            keys=keys,
            store=SqliteStore(tmp_path / "billing.sqlite"),
            limits=Limits(in_order=True),
        )
        listener.on("subject.erase")(erase)
        return Stream(listener, StreamSettings(bootstrap=world.stack.kafka, results_key=Signer([own])))

    def acknowledged() -> int:
        return Counter(state["state"] for state in world.states().values())["acknowledged"]

    plan = [(f"unit/{unit}", number) for number in range(1, 4) for unit in range(8)]
    world.emit(plan)
    stop, stop_second = asyncio.Event(), asyncio.Event()
    with world.running():
        first = asyncio.create_task(stream().run(stop))
        await eventually_async(lambda: len(done) >= 4, 60)
        second = asyncio.create_task(stream().run(stop_second))
        await eventually_async(lambda: len(done) >= 12, 60)
        stop.set()
        await asyncio.wait_for(first, 30)
        await eventually_async(lambda: acknowledged() == len(plan), 90)
        stop_second.set()
        await asyncio.wait_for(second, 30)

    assert Counter(done) == Counter(plan), "each once"
    for unit in range(8):
        assert [number for aggregate, number in done if aggregate == f"unit/{unit}"] == [1, 2, 3]
    assert refused == {"unit/1"}, "refused once, and handed over again by the worker's own schedule"
    assert world.dead_letters() == []
