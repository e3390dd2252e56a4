"""DC-5: the relay may publish twice, but it never loses and never reorders within one aggregate."""

import itertools
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from fixtures.fix_relay import PARTITIONS, Pipe

from waybill.devstack import Wanted, up
from waybill.devstack.processes import find
from waybill.infra.topic_log import LogRecord, scan
from waybill.relay import recover
from waybill.relay.database import drop_slot
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.requirement("DC-5")]

#: Rows of one COPY share a log position; no default with a random value, or PostgreSQL would not batch them.
COPY = """
    COPY waybill.outbox (created_day, route, command_id, source, command_type, aggregate, issued_at, content_type,
        tenant, sequences, expires_at, config_version, capability, capability_version, payload) FROM STDIN
"""


@dataclass(slots=True)
class Load:
    """Writers that go on until told to stop; what they committed is what the outbox holds."""

    pipe: Pipe
    stop: threading.Event = field(default_factory=threading.Event)
    failed: list[BaseException] = field(default_factory=list)

    def emit(self, name: str) -> None:
        """Emit single commands over five aggregates, one transaction each, every tenth rolled back."""
        with closing(psycopg.connect(self.pipe.database.dsn("waybill_app"))) as connection:
            for number in itertools.count():
                if self.stop.wait(0.05):
                    return
                connection.execute(
                    "SELECT waybill.emit(%s, 'subject', %s, 'subject.erase', %s::text)",
                    (self.pipe.tenant, f"{name}-{number % 5}", str(number)),
                )
                (connection.rollback if number % 10 == 9 else connection.commit)()

    def copy(self, rows: int) -> None:
        """Copy bursts of rows of one aggregate per burst, sequences 1..n."""
        with closing(psycopg.connect(self.pipe.dsn, autocommit=True)) as connection:
            for burst in itertools.count():
                with connection.cursor().copy(COPY) as copy:
                    for number in range(1, rows + 1):
                        copy.write_row(copied_row(self.pipe.tenant, f"copy-{burst}", number))
                if self.stop.wait(2.0):
                    return


def copied_row(tenant: str, aggregate: str, number: int) -> tuple[object, ...]:
    at, later = "2026-11-30 12:00:00+00", "2036-12-07 12:00:00+00"
    return (
        "2026-11-30", f"{tenant}.commands", uuid.uuid4(), "urn:x:a", "subject.erase", f"subject/{aggregate}", at,
        "application/json", tenant, f'{{"crm": {number}}}', later, 1, "subject.erase", 1, str(number).encode(),
    )  # fmt: skip


@contextmanager
def load_on(pipe: Pipe, *, copy_rows: int = 0) -> Iterator[Load]:
    """Keep writers running while the block runs; a writer's error fails the test."""
    load = Load(pipe)

    def guarded(work: object, *arguments: object) -> None:
        try:
            work(*arguments)  # type: ignore[operator] # a bound method of Load
        except BaseException as error:
            load.failed.append(error)

    threads = [threading.Thread(target=guarded, args=(load.emit, name)) for name in ("a", "b")]
    if copy_rows:
        threads.append(threading.Thread(target=guarded, args=(load.copy, copy_rows)))
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(60)
    assert load.failed == []


def committed(pipe: Pipe) -> dict[str, list[str]]:
    """Return the ids in the outbox per aggregate, in the order of their sequence."""
    found: dict[str, list[str]] = defaultdict(list)
    with closing(psycopg.connect(pipe.dsn)) as connection:
        for aggregate, command_id in connection.execute(
            "SELECT aggregate, command_id::text FROM waybill.outbox ORDER BY (sequences ->> 'crm')::int"
        ):
            found[aggregate].append(command_id)
    return dict(found)


def arrived(records: list[LogRecord]) -> tuple[dict[str, list[str]], int]:
    """Return first arrivals per aggregate in topic order, and how many records were repeats."""
    found: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    repeats = 0
    for record in records:
        command_id = (dict(record.headers)["id"] or b"").decode()
        if command_id in seen:
            repeats += 1
            continue
        seen.add(command_id)
        found[(record.key or b"").decode()].append(command_id)
    return dict(found), repeats


class Reader:
    """Reads the commands topic on from where it stood: a look costs only what is new."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._at = [0] * PARTITIONS
        self.records: list[LogRecord] = []

    def read(self) -> int:
        """Return how many records were seen so far."""
        pipe = self._pipe
        ends = pipe.admin.end_offsets(pipe.topic, PARTITIONS)
        self.records += scan(pipe.stack.kafka, pipe.topic, starts=self._at, ends=ends, clock=pipe.clock)
        self._at = ends
        return len(self.records)


def everything_arrived_in_order(pipe: Pipe, reader: Reader) -> int:
    """Wait until the topic holds what the outbox holds, in order per aggregate; return the number of repeats."""
    expected = committed(pipe)
    count = sum(map(len, expected.values()))
    eventually(lambda: reader.read() >= count, within_s=200)
    found, repeats = arrived(reader.records)
    assert found == expected
    return repeats


def kill_connect(pipe: Pipe) -> None:
    find(pipe.stack.folder, ["connect"])["connect"].kill()


@pytest.mark.timeout(600)
def test_connect_killed_again_and_again_under_load_loses_and_reorders_nothing(pipe: Pipe) -> None:
    reader = Reader(pipe)
    with load_on(pipe, copy_rows=200) as load:
        for _ in range(2):
            reached = reader.read()
            eventually(lambda at=reached: reader.read() > at, within_s=150)  # type: ignore[misc] # bound now
            kill_connect(pipe)
            assert not load.stop.wait(0.5)  # rows are committed while nobody relays
            up(Wanted(name=pipe.stack.name))

    repeats = everything_arrived_in_order(pipe, reader)

    # the promise allows repeats; with transactions on both sides readers of committed records see none
    assert repeats == 0


def test_a_slot_dropped_under_load_is_recovered_in_order_and_a_second_run_does_nothing(pipe: Pipe) -> None:
    reader = Reader(pipe)
    with load_on(pipe, copy_rows=50) as load:
        eventually(lambda: reader.read() > 20, within_s=60)
        with closing(psycopg.connect(pipe.dsn, autocommit=True)) as connection:
            drop_slot(connection, pipe.outbox.slot)
        assert not load.stop.wait(2.0)  # the hole: committed, and in no slot

        first = recover(pipe.recovery())
        assert not load.stop.wait(1.0)

    repeats = everything_arrived_in_order(pipe, reader)
    second = recover(pipe.recovery())

    assert first.republished == first.missing > 0
    assert first.reordered == 0
    assert repeats == 0
    assert (second.missing, second.republished) == (0, 0)
    assert second.compared >= first.compared
