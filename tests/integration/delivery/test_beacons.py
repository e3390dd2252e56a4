"""Beacons in a real PostgreSQL: left with every write, asked for by each, and what a rebuild puts in their place."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.contracts.fabric import DestinationConfig
from waybill.delivery.beacons.judging import Kept
from waybill.delivery.beacons.known import Beacons, RewoundError
from waybill.delivery.beacons.lookout import Lookout
from waybill.delivery.beacons.ports import Note
from waybill.delivery.beacons.tables import PostgresTables
from waybill.delivery.core.position import Position
from waybill.delivery.core.stored import pack_record
from waybill.delivery.intents.statements import Answer, IntentStore, Opening
from waybill.delivery.store import Owned, RowImage, TaskStore
from waybill.infra.clock import SystemClock
from waybill.infra.migrate import migrate
from waybill.kernel.errors import FencedError
from waybill.kernel.ids import DestinationName, Tenant

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = DestinationConfig(
    tenant=Tenant("acme"), name=DestinationName("pay"), url="http://pay", owner="team", tradeoff="none"
)
NOTE = Position(epoch=uuid.UUID(int=1), released=False, beacon=uuid.UUID(int=99))


@pytest.fixture
def migrated(fresh_database: FreshDatabase) -> FreshDatabase:
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        migrate(connection, schema="delivery", package="waybill.delivery.migrations")
    return fresh_database


@pytest.fixture
async def store(migrated: FreshDatabase) -> AsyncIterator[TaskStore]:
    found = TaskStore(migrated.dsn("waybill_worker"))
    await found.open()
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
def tables(migrated: FreshDatabase) -> Iterator[PostgresTables]:
    with closing(psycopg.connect(migrated.dsn(), autocommit=True)) as connection:
        yield PostgresTables(connection, CONFIG, SystemClock())


def owned(epoch: int = 1) -> Owned:
    return Owned(tenant="acme", destination="pay", partition=0, epoch=uuid.UUID(int=epoch))


def image(number: int, state: str = "queued", version: int = 0) -> RowImage:
    return RowImage(
        delivery_id=str(uuid.UUID(int=number)),
        command_id=str(uuid.UUID(int=number)),
        aggregate="subject/1",
        sequence=number,
        record_offset=number,
        state=state,
        version=version,
        attempt=version,
        throttled=0,
        next_due=None,
        expires_at=NOW + timedelta(days=1),
        blocks=state != "acknowledged",
        error_code=None,
        detail=None,
        sent=False,
        may_have_acted=False,
        record=pack_record(b"subject/1", [("ce_id", str(uuid.UUID(int=number)).encode())], b"{}"),
        pending_outcome=None,
        pending_state=None,
        pending_dead_letter=None,
    )


def beacons(migrated: FreshDatabase) -> list[tuple[uuid.UUID, int]]:
    with closing(psycopg.connect(migrated.dsn())) as connection:
        return connection.execute("SELECT beacon, committed FROM delivery.beacon ORDER BY number").fetchall()


def lose(migrated: FreshDatabase, newest: int) -> None:
    """Take the newest beacons away, as a copy from before them lacks them."""
    with closing(psycopg.connect(migrated.dsn(), autocommit=True)) as connection:
        connection.execute(
            "DELETE FROM delivery.beacon WHERE number IN (SELECT number FROM delivery.beacon ORDER BY number DESC LIMIT %s)",
            (newest,),
        )


async def test_every_write_of_an_owner_leaves_a_beacon_and_the_look_drops_the_old_ones(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    mine, seen = owned(), []
    await store.take(mine, owner="w", now=NOW)
    seen.append(mine.beacons.newest)
    mine.beacons.carried(7)
    await store.insert(mine, [image(1)], NOW)
    seen.append(mine.beacons.newest)
    intents = IntentStore(store)
    await intents.begin(mine, [Opening(delivery_id=str(uuid.UUID(int=2)), record_offset=2, number=1)], NOW)
    seen.append(mine.beacons.newest)
    await intents.answer(mine, [Answer(delivery_id=str(uuid.UUID(int=2)), number=1, unsent=0, answer={"n": 1})])
    seen.append(mine.beacons.newest)

    assert beacons(migrated) == list(zip(seen, [0, 7, 7, 7], strict=True))
    assert len(set(seen)) == 4

    mine.beacons.promise()
    mine.beacons.carried(9)
    await Lookout(store.run).still(mine)
    assert beacons(migrated) == [(seen[3], 7)], "a committed offset names the newest"


@pytest.mark.requirement("RS-3")
async def test_many_owners_are_looked_after_in_one_statement_each_for_itself(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    mine, robbed, rewound = (
        owned(),
        replace(owned(), partition=1, beacons=Beacons()),
        replace(owned(), partition=2, beacons=Beacons()),
    )
    for each in (mine, robbed, rewound):
        await store.take(each, owner="w", now=NOW)
    await store.insert(mine, [image(1)], NOW)
    mine.beacons.promise()
    mine.beacons.carried(1)
    await store.take(replace(robbed, epoch=uuid.UUID(int=9), beacons=Beacons()), owner="w2", now=NOW)
    with closing(psycopg.connect(migrated.dsn(), autocommit=True)) as connection:
        connection.execute("DELETE FROM delivery.beacon WHERE partition = 2")
    statements: list[str] = []

    async def run(query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        statements.append(query)
        return await store.run(query, values)

    lookout = Lookout(run)
    found = await asyncio.gather(*map(lookout.still, (mine, robbed, rewound)), return_exceptions=True)

    assert [type(each) for each in found] == [type(None), FencedError, FencedError]
    assert len(statements) == 1
    kept = [beacon for beacon, _ in beacons(migrated)]
    assert kept[0] == robbed.beacons.newest, "who is not the owner drops nothing"
    assert mine.beacons.newest in kept
    assert len(kept) == 3, "and the owner drops what is older than what is named"


@pytest.mark.requirement("RS-3", "DC-23")
async def test_a_partition_is_not_taken_where_the_beacon_is_missing(store: TaskStore, migrated: FreshDatabase) -> None:
    mine, next_one = owned(), owned(2)
    await store.take(mine, owner="w", now=NOW)
    await store.insert(mine, [image(1)], NOW)
    next_one.beacons.begin(mine.beacons.newest, 0)
    lose(migrated, 1)

    with pytest.raises(RewoundError, match="waybill tasks rebuild --tenant acme --destination pay --partition 0"):
        await store.knows(next_one)
    with pytest.raises(RewoundError, match="knows nothing later than"):
        await store.take(next_one, owner="w2", now=NOW)
    assert len(beacons(migrated)) == 1, "and it left no trace"


@pytest.mark.requirement("RS-3", "AM-1")
async def test_an_owner_writes_and_reads_nothing_once_its_beacon_is_gone(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    mine = owned()
    await store.take(mine, owner="w", now=NOW)
    await store.insert(mine, [image(1)], NOW)
    lose(migrated, 1)
    intents = IntentStore(store)

    for refused in (
        lambda: store.insert(mine, [image(2)], NOW),
        lambda: store.published(mine, [(str(uuid.UUID(int=1)), 0, None)]),
        lambda: store.feed(mine, ["subject/9"], 5),
        lambda: Lookout(store.run).still(mine),
        lambda: intents.begin(mine, [Opening(delivery_id=str(uuid.UUID(int=3)), record_offset=3, number=1)], NOW),
        lambda: intents.look(mine, [str(uuid.UUID(int=3))]),
    ):
        with pytest.raises(FencedError):
            await refused()
    assert await store.find(mine, [str(uuid.UUID(int=n)) for n in (2, 3)]) == []


@pytest.mark.requirement("RS-3", "AT-2", "GW-12")
async def test_a_rebuild_replaces_rows_notes_acknowledgements_and_puts_the_beacon_back(
    store: TaskStore, tables: PostgresTables, migrated: FreshDatabase
) -> None:
    mine = owned()
    await store.take(mine, owner="w", now=NOW)
    await store.insert(mine, [image(1), image(2)], NOW)
    mark = tables.mark(0, NOTE)
    note = Note(delivery_id=str(uuid.UUID(int=5)), record_offset=5, attempts=1, at=NOW, answer={"code": None})

    tables.take(0)
    with pytest.raises(FencedError):
        await store.insert(mine, [image(9)], NOW)
    tables.write(0, [image(1, "retrying", 3), image(4)], [note])
    tables.write(0, [image(1, "retrying", 3)], [note])
    tables.put_back(0, 17, NOTE)

    assert (mark.is_known, mark.committed) == (False, 0)
    ids = {number: str(uuid.UUID(int=number)) for number in (1, 2, 4, 5)}
    assert tables.kept(0) == {
        ids[1]: (1, Kept(version=3)),
        ids[2]: (2, Kept(version=0)),
        ids[4]: (4, Kept(version=0)),
        ids[5]: (5, Kept(is_answered=True)),
    }
    (loaded,) = tables.load(0, [ids[1]])
    assert (loaded.state, loaded.version, loaded.record) == ("retrying", 3, image(1).record)
    assert (tables.mark(0, NOTE).is_known, tables.mark(0, NOTE).committed) == (True, 17)
    next_one = owned(2)
    next_one.beacons.begin(NOTE.beacon, 17)
    await store.take(next_one, owner="w2", now=NOW)
    assert [row.delivery_id for row in await store.feed(next_one, ["subject/1"], 5)] == [ids[1], ids[2], ids[4]]


async def test_two_rebuilds_at_once_are_one_too_many(tables: PostgresTables, migrated: FreshDatabase) -> None:
    with closing(psycopg.connect(migrated.dsn(), autocommit=True)) as connection:
        other = PostgresTables(connection, replace(CONFIG), SystemClock())
        tables.take(0)
        other.take(0)

        with pytest.raises(FencedError, match="another rebuild"):
            tables.write(0, [image(1)], [])
        assert other.kept(0) == {}
