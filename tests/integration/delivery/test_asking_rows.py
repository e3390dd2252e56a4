"""Which rows are asked about, in a real PostgreSQL, and who may note an answer."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.delivery.asking.statements import Asked, AskingStore
from waybill.delivery.store import Owned, RowImage, TaskStore
from waybill.infra.migrate import migrate
from waybill.kernel.errors import FencedError

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
MINE = Owned(tenant="acme", destination="cad", partition=0, epoch=uuid.UUID(int=1))
NEXT = Owned(tenant="acme", destination="cad", partition=0, epoch=uuid.UUID(int=2))
ASKED = Asked(
    query_id="q",
    worker="w",
    asked_at=NOW,
    answered_at=NOW,
    body_sha256="b",
    detail="not_done",
    http_status=200,
    answer_sha256="a",
)


@pytest.fixture
async def store(fresh_database: FreshDatabase) -> AsyncIterator[TaskStore]:
    with psycopg.connect(fresh_database.dsn(), autocommit=True) as connection:
        migrate(connection, schema="delivery", package="waybill.delivery.migrations")
    found = TaskStore(fresh_database.dsn("waybill_worker"))
    await found.open()
    MINE.beacons.begin(None, 0)
    await found.take(MINE, owner="w", now=NOW)
    yield found
    await found.close()


def image(number: int, aggregate: str, state: str = "ambiguous", *, pending: bytes | None = None) -> RowImage:
    return RowImage(
        delivery_id=str(uuid.UUID(int=number)),
        command_id=str(uuid.UUID(int=number)),
        aggregate=aggregate,
        sequence=number,
        record_offset=number,
        state=state,
        version=0 if state == "queued" else 1,
        attempt=1,
        throttled=0,
        next_due=None,
        expires_at=NOW + timedelta(days=1),
        blocks=True,
        error_code=None,
        detail=None,
        sent=True,
        may_have_acted=True,
        record=b"record",
        pending_outcome=pending,
        pending_state=pending,
        pending_dead_letter=None,
    )


async def due(store: TaskStore, at: datetime = LATER, since: datetime = NOW) -> list[int]:
    found = await AskingStore(store).due(MINE, since=since, now=at, limit=10)
    return [one.feed.sequence for one in found]


@pytest.mark.requirement("AM-2")
async def test_only_published_heads_in_doubt_are_asked_about_and_not_at_once(store: TaskStore) -> None:
    rows = [
        image(1, "a"),
        image(2, "a"),  # behind one in doubt
        image(3, "b", "queued"),
        image(4, "b"),  # behind one to be sent
        image(5, "c", pending=b"unsaid"),
        image(6, "d", "failed"),
    ]
    await store.insert(MINE, rows, NOW)

    assert await due(store) == [1]
    assert await due(store, since=NOW - timedelta(seconds=1)) == []


@pytest.mark.requirement("AM-3", "RS-6")
async def test_an_answer_is_kept_and_the_row_is_due_again_when_it_says(store: TaskStore) -> None:
    await store.insert(MINE, [image(1, "a")], NOW)

    assert await AskingStore(store).note(MINE, str(uuid.UUID(int=1)), 1, ASKED, LATER)

    assert await due(store, LATER - timedelta(seconds=1)) == []
    assert await due(store, LATER) == [1]
    ((kept, version),) = await store.run("SELECT asked, version FROM delivery.open_task", {})
    assert (kept, version) == (ASKED.document(), 1)


@pytest.mark.requirement("DC-23")
async def test_a_former_owner_notes_nothing_and_nobody_notes_at_another_version(store: TaskStore) -> None:
    await store.insert(MINE, [image(1, "a")], NOW)
    asking = AskingStore(store)

    assert not await asking.note(MINE, str(uuid.UUID(int=1)), 2, ASKED, LATER)
    await store.take(NEXT, owner="v", now=NOW)
    with pytest.raises(FencedError):
        await asking.note(MINE, str(uuid.UUID(int=1)), 1, ASKED, LATER)

    ((kept,),) = await store.run("SELECT asked FROM delivery.open_task", {})
    assert kept is None
