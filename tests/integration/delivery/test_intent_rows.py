"""Intents in a real PostgreSQL: opened by the owner alone, answered by whoever knows, counted as they left."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.delivery.intents.statements import Answer, Intent, IntentStore, Opened, Opening
from waybill.delivery.store import Owned, TaskStore
from waybill.infra.migrate import migrate
from waybill.kernel.errors import FencedError

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
MINE = Owned(tenant="acme", destination="cad", partition=0, epoch=uuid.UUID(int=1))
NEXT = Owned(tenant="acme", destination="cad", partition=0, epoch=uuid.UUID(int=2))
ID = str(uuid.UUID(int=7))


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


async def begin(
    store: TaskStore, number: int, *, after: int | None = None, by: Owned = MINE, at: datetime = NOW
) -> Opened | Intent:
    opening = Opening(delivery_id=ID, record_offset=3, number=number, found=after)
    return (await IntentStore(store).begin(by, [opening], at))[ID]


async def answer(store: TaskStore, number: int, *, unsent: int = 0, by: Owned = MINE) -> None:
    said = Answer(delivery_id=ID, number=number, unsent=unsent, answer={"n": number})
    await IntentStore(store).answer(by, [said])


async def look(store: TaskStore) -> Intent:
    return (await IntentStore(store).look(MINE, [ID]))[ID]


async def test_an_intent_is_opened_once_and_again_only_after_its_answer(store: TaskStore) -> None:
    first, second = await begin(store, 1), await begin(store, 2, at=LATER)
    await answer(store, 1)
    third = await begin(store, 2, at=LATER)

    assert isinstance(first, Opened)
    assert isinstance(second, Intent)
    assert (second.attempts, second.sends, second.answer) == (1, 1, None)
    assert third == Opened(ID, 2, NOW)


async def test_another_attempt_after_an_unanswered_one_names_the_one_it_follows(store: TaskStore) -> None:
    await begin(store, 1)

    stale, follows = await begin(store, 3, after=2), await begin(store, 2, after=1, at=LATER)

    assert isinstance(stale, Intent)
    assert follows == Opened(ID, 2, NOW)


@pytest.mark.requirement("AM-5")
async def test_an_attempt_that_never_left_is_no_send(store: TaskStore) -> None:
    await begin(store, 1)
    await answer(store, 1, unsent=1)
    unsent = await look(store)
    opened = await begin(store, 2, at=LATER)

    assert (unsent.attempts, unsent.sends, unsent.first_sent_at) == (1, 0, None)
    assert opened == Opened(ID, 1, LATER)


async def test_an_answer_that_is_there_stays(store: TaskStore) -> None:
    await begin(store, 1)
    await answer(store, 1)
    await answer(store, 1, unsent=1)

    found = await look(store)
    assert (found.sends, found.answer) == (1, {"n": 1})


@pytest.mark.requirement("AM-1", "DC-23")
async def test_a_former_owner_opens_nothing_and_its_answers_count(store: TaskStore) -> None:
    await begin(store, 1)
    await store.take(NEXT, owner="v", now=LATER)

    with pytest.raises(FencedError):
        await begin(store, 2, after=1)
    await answer(store, 1)

    found = await look(store)
    assert (found.attempts, found.epoch, found.answer) == (1, str(MINE.epoch), {"n": 1})
