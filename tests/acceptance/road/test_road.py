"""From committed rows to effects at a listener, through real Debezium, Connect, Kafka and a worker, while things break."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.fix_relay import PARTITIONS, Pipe
from fixtures.worker_world import WorkerWorld

from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.outbox import CommandDraft, Outbox
from waybill.relay import recover
from waybill.relay.database import drop_slot
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

CRM = DestinationName("crm")


@pytest.fixture
def road(pipe: Pipe, tmp_path: Path) -> WorkerWorld:
    """What a worker needs beside a connected outbox."""
    return WorkerWorld.build(pipe.stack, pipe.tenant, pipe.database.name, tmp_path / "keys", PARTITIONS)


def emit(pipe: Pipe, aggregate: str, times: int) -> list[CommandId]:
    """Commit one command per transaction, as an application does."""
    issued = []
    with closing(psycopg.connect(pipe.database.dsn("waybill_app"))) as connection:
        for number in range(times):
            draft = CommandDraft(
                aggregate_type="subject", aggregate_id=aggregate, command_type="subject.erase", data={"n": number}
            )
            issued.append(Outbox(connection, tenant=pipe.tenant).emit(draft).command_id)
            connection.commit()
    return issued


@pytest.mark.requirement("DC-7")
@pytest.mark.requirement("DC-6")
def test_fifty_writers_on_one_aggregate_reach_the_listener_as_one_to_n(
    pipe: Pipe, road: WorkerWorld, destination: FakeListener
) -> None:
    road.add_destination(destination.url)

    with road.running(), ThreadPoolExecutor(50) as writers:
        issued = [one for each in writers.map(lambda _: emit(pipe, "hot", 2), range(50)) for one in each]
        eventually(lambda: len(destination.arrivals) >= 100, within_s=120)

    assert list(range(1, 101)) == [arrival.sequence for arrival in destination.arrivals]
    assert {str(delivery_id(one, CRM)) for one in issued} == {arrival.delivery_id for arrival in destination.arrivals}


@pytest.mark.requirement("DC-5")
def test_a_slot_lost_under_load_and_recovered_loses_and_doubles_nothing_at_the_listener(
    pipe: Pipe, road: WorkerWorld, destination: FakeListener
) -> None:
    road.add_destination(destination.url)
    stop = threading.Event()
    issued: list[CommandId] = []

    def write(name: str) -> None:
        while not stop.wait(0.02):
            issued.extend(emit(pipe, name, 1))

    with road.running(), ThreadPoolExecutor(3) as writers:
        working = [writers.submit(write, f"s{number}") for number in range(3)]
        try:
            eventually(lambda: len(destination.arrivals) > 10, within_s=90)
            with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
                drop_slot(connection, pipe.outbox.slot)
            behind = len(issued)
            eventually(lambda: len(issued) > behind + 20, within_s=60)  # the hole: committed, in no slot
            result = recover(pipe.recovery())
        finally:
            stop.set()
        for each in working:
            each.result()
        eventually(lambda: len(destination.arrivals) >= len(issued), within_s=120)

    attempts = [destination.attempts(delivery_id(one, CRM)) for one in issued]
    assert result.republished > 0
    assert [1] * len(issued) == attempts
    for sequences in destination.by_aggregate().values():
        assert list(range(1, len(sequences) + 1)) == sequences
