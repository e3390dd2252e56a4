"""The control database set back to an earlier copy under load, on the real stack: noticed, repaired, nothing lost."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.worker_world import Sent, WorkerWorld

from waybill.contracts.fabric import Profile, RetryPolicy, Timeouts
from waybill.delivery.beacons.main import Scope, rebuild_tasks
from waybill.delivery.beacons.rebuild import Found
from waybill.delivery.worker import Worker
from waybill.infra.addresses import Addresses
from waybill.testing.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(120)]

TABLES = ("partition_owner", "beacon", "open_task", "intent")
AGGREGATES = [f"unit/{n}" for n in range(40)]
QUICK = RetryPolicy(base_s=0.3, cap_s=1.0, hot_attempts=0)
BUSY: Reply = (503, {}, b"")


@dataclass
class Load:
    """Commands written one round of all aggregates after the other."""

    world: WorkerWorld
    sent: list[Sent] = field(default_factory=list)
    rounds: int = 0

    def round(self) -> list[Sent]:
        self.rounds += 1
        fresh = self.world.emit([(each, self.rounds) for each in AGGREGATES], destinations=["crm", "pay"])
        self.sent += fresh
        return fresh

    @contextmanager
    def flowing(self) -> Iterator[None]:
        stop = threading.Event()

        def flow() -> None:
            while not stop.wait(0.3):
                self.round()

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


class Past:
    """An earlier moment of the control database, and the way back to it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def copy(self) -> None:
        with closing(psycopg.connect(self._dsn)) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("CREATE SCHEMA past")
            for table in TABLES:
                connection.execute(f"CREATE TABLE past.{table} AS TABLE delivery.{table}")

    def put_back(self) -> None:
        """As after a restore: the same tables with what they held then, and every session gone."""
        with closing(psycopg.connect(self._dsn, autocommit=True)) as connection:
            with connection.transaction():
                for table in TABLES:
                    connection.execute(f"TRUNCATE delivery.{table}")
                    connection.execute(f"INSERT INTO delivery.{table} OVERRIDING SYSTEM VALUE TABLE past.{table}")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'waybill-worker'"
            )


def is_acknowledged(world: WorkerWorld, sent: list[Sent], destination: str) -> bool:
    states = world.states()
    return all(states.get(str(each.delivery(destination)), {}).get("state") == "acknowledged" for each in sent)


def problems(worker: Worker) -> list[str]:
    return [actor.problem or "" for group in list(worker.groups.values()) for actor in list(group.actors.values())]


def stands_still(worker: Worker) -> bool:
    found = problems(worker)
    return len(found) == 4 and all("waybill tasks rebuild" in each for each in found)


@pytest.mark.requirement("DC-1", "DC-12", "RS-3", "RS-6", "AM-1", "GW-12", "OB-4")
def test_a_database_set_back_under_load_loses_nothing_and_repeats_nothing_that_must_not_be(world: WorkerWorld) -> None:
    calls: dict[str, int] = {}

    def busy_at_first(arrival: Arrival) -> Reply | None:
        calls[arrival.delivery_id] = calls.get(arrival.delivery_id, 0) + 1
        is_sick = arrival.sequence % 5 == 2 and int(arrival.aggregate.partition("/")[2]) % 4 == 0
        return BUSY if is_sick and calls[arrival.delivery_id] < 3 else receipt()

    past = Past(world.stack.dsn(world.dsn.rpartition("/")[2]))
    addresses = Addresses(
        kafka=world.stack.kafka,
        registry_url=world.stack.registry_url,
        control_dsn=world.stack.dsn(world.dsn.rpartition("/")[2]),
    )

    def rebuild(**more: bool) -> list[Found]:
        config = world.config.current()
        return rebuild_tasks(addresses, Scope(tenant=world.tenant), print, config=config, quiet_s=1.0, **more)

    slow = FakeListener(delay_s=lambda arrival: 0.4 if arrival.sequence % 6 == 5 else 0.01)
    with FakeListener(behave=busy_at_first).serving() as crm, slow.serving() as pay:
        timeouts = Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0)
        world.add_destination(crm.url, "crm", retry=QUICK, timeouts=timeouts)
        world.add_destination(pay.url, "pay", profile=Profile.NON_IDEMPOTENT, retry=QUICK, timeouts=timeouts)
        load = Load(world)
        with world.running() as worker:
            with load.flowing():
                eventually(lambda: len(pay.arrivals) > 80 and len(world.rows()) > 5, 20)
                past.copy()
                known = load.round()
                eventually(lambda: is_acknowledged(world, known, "pay"), 20)
                past.put_back()
                eventually(lambda: stands_still(worker), 15)
            assert worker.is_ready()["database"] is False
            before = (len(crm.arrivals), len(pay.arrivals), world.committed("crm"), world.committed("pay"))
            counted = rebuild(dry_run=True)
            assert (len(crm.arrivals), len(pay.arrivals), world.committed("crm"), world.committed("pay")) == before

            written = rebuild()
            eventually(lambda: worker.is_ready()["database"], 10)
            repeated = known[0]  # acknowledged in the time that was lost, and offered once more by the relay
            _offer_again(world, repeated)
            eventually(lambda: is_acknowledged(world, load.sent, "crm"), 30)
            eventually(lambda: world.committed("pay") >= len(load.sent) + 1, 30)

    _judge(world, load, crm, pay, (counted, written))


def _judge(
    world: WorkerWorld, load: Load, crm: FakeListener, pay: FakeListener, found: tuple[list[Found], list[Found]]
) -> None:
    counted, written = found
    assert [each.was_rewound for each in written] == [True] * 4
    assert sum(each.rows for each in written if each.destination == "crm") > 0
    assert [(each.rows, each.ambiguous, each.notes) for each in counted] == [
        (each.rows, each.ambiguous, each.notes) for each in written
    ], "what was counted is what was written"
    states, rows = world.states(), {str(row["delivery_id"]): row for row in world.rows()}
    for sent in load.sent:
        delivery = str(sent.delivery("pay"))
        assert delivery in states or delivery in rows, f"{sent} is lost"
        assert pay.attempts(delivery) <= 1, f"{sent} was sent twice"
        if states.get(delivery, {}).get("state") == "acknowledged":
            assert pay.attempts(delivery) == 1
    unknown = [state for state in states.values() if state["state"] == "ambiguous"]
    assert {(state["destination"], state["detail"]) for state in unknown} == {("pay", "database_rewound")}
    assert len(unknown) == sum(each.ambiguous for each in written)
    assert all(each == sorted(each) for each in (*crm.by_aggregate().values(), *pay.by_aggregate().values()))
    assert all(crm.attempts(each.delivery("crm")) >= 1 for each in load.sent)


def _offer_again(world: WorkerWorld, sent: Sent) -> None:
    headers = world.headers(sent.command_id, sent.aggregate, {"crm": sent.sequence, "pay": sent.sequence})
    partition = _partition_of(world, sent)
    raw = {name: text.encode() for name, text in headers.items()}
    world.produce_raw(sent.aggregate.encode(), raw, b'{"name":"x"}', partition)


def _partition_of(world: WorkerWorld, sent: Sent) -> int:
    state = world.states()[str(sent.delivery("pay"))]
    return int(state["command_partition"])
