"""Rows in a real PostgreSQL: fenced, repeatable, moved only as the table of moves allows."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.contracts.codes import ErrorCode
from waybill.contracts.states import TRANSITIONS, State
from waybill.delivery.store import Owned, RowImage, RowMove, TaskStore
from waybill.infra.migrate import migrate
from waybill.kernel.errors import FencedError, InvariantBroken

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINE = Owned(tenant="acme", destination="crm", partition=0, epoch=uuid.UUID(int=1))


@pytest.fixture
def migrated(fresh_database: FreshDatabase) -> FreshDatabase:
    with psycopg.connect(fresh_database.dsn(), autocommit=True) as connection:
        migrate(connection, schema="delivery", package="waybill.delivery.migrations")
    return fresh_database


@pytest.fixture
async def store(migrated: FreshDatabase) -> AsyncIterator[TaskStore]:
    found = TaskStore(migrated.dsn("waybill_worker"))
    await found.open()
    MINE.beacons.begin(None, 0)
    await found.take(MINE, owner="w", now=NOW)
    yield found
    await found.close()


def image(number: int, **more: object) -> RowImage:
    fields: dict[str, object] = {
        "delivery_id": str(uuid.UUID(int=number)),
        "command_id": str(uuid.UUID(int=number)),
        "aggregate": "subject/1",
        "sequence": number,
        "record_offset": number,
        "state": "queued",
        "version": 0,
        "attempt": 0,
        "throttled": 0,
        "next_due": None,
        "expires_at": NOW + timedelta(days=1),
        "blocks": True,
        "error_code": None,
        "detail": None,
        "sent": False,
        "may_have_acted": False,
        "record": b"record",
        "pending_outcome": None,
        "pending_state": None,
        "pending_dead_letter": None,
        **more,
    }
    return RowImage(**fields)  # type: ignore[arg-type] # a table of fields


def move(number: int, state: str, version: int) -> RowMove:
    return RowMove(
        delivery_id=str(uuid.UUID(int=number)),
        state=state,
        version=version,
        attempt=1,
        throttled=0,
        next_due=None,
        blocks=state != "acknowledged",
        error_code=None,
        detail=None,
        sent=True,
        may_have_acted=False,
        pending_outcome=b"o",
        pending_state=b"s",
        pending_dead_letter=None,
    )


@pytest.mark.requirement("DC-23")
async def test_a_former_epoch_writes_moves_and_clears_nothing(store: TaskStore) -> None:
    await store.insert(MINE, [image(1)], NOW)
    await store.take(replace(MINE, epoch=uuid.UUID(int=2)), owner="w2", now=NOW)

    for write in (
        lambda: store.insert(MINE, [image(2)], NOW),
        lambda: store.move(MINE, [move(1, "acknowledged", 1)], NOW),
        lambda: store.published(MINE, [(str(uuid.UUID(int=1)), 0, None)]),
    ):
        with pytest.raises(FencedError):
            await write()
    (row,) = await store.find(MINE, [str(uuid.UUID(int=n)) for n in (1, 2)])
    assert (row.state, row.version) == ("queued", 0)


@pytest.mark.requirement("DC-23")
async def test_a_write_waits_for_a_change_of_owner_and_then_writes_nothing(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    async with await psycopg.AsyncConnection.connect(migrated.dsn()) as successor:
        await successor.execute("UPDATE delivery.partition_owner SET epoch = %s", (uuid.UUID(int=2),))
        write = asyncio.create_task(store.insert(MINE, [image(1)], NOW))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        async with await psycopg.AsyncConnection.connect(migrated.dsn(), autocommit=True) as watcher:
            async with asyncio.timeout(5):
                while not write.done() and await _number(watcher, waiting) == 0:  # noqa: ASYNC110 - a lock of the server
                    await asyncio.sleep(0.01)
        assert not write.done(), "it wrote without looking at what is being changed"
        await successor.commit()

    with pytest.raises(FencedError):
        await write
    assert await store.find(MINE, [str(uuid.UUID(int=1))]) == []


async def test_an_insert_and_a_move_are_safe_to_repeat(store: TaskStore) -> None:
    assert await store.insert(MINE, [image(1)], NOW) == {}
    again = await store.insert(MINE, [image(1)], NOW)
    assert again[str(uuid.UUID(int=1))].record_offset == 1
    await store.move(MINE, [move(1, "retrying", 1)], NOW)
    await store.move(MINE, [move(1, "retrying", 1)], NOW)

    with pytest.raises(InvariantBroken):
        await store.move(MINE, [move(1, "retrying", 3)], NOW)


@pytest.mark.requirement("AT-2")
async def test_another_record_of_a_delivery_is_told_apart_from_our_own_repeat(store: TaskStore) -> None:
    found = await store.insert(MINE, [image(1), image(1, record_offset=9)], NOW)

    assert found[str(uuid.UUID(int=1))].record_offset == 1


async def test_rows_are_fed_by_sequence_whatever_their_offset(store: TaskStore) -> None:
    later = NOW + timedelta(hours=1)
    first = image(1, record_offset=7, next_due=later)
    rows = [image(3, record_offset=1, next_due=NOW), first, image(2), image(4, blocks=False)]
    await store.insert(MINE, rows, NOW)

    assert [feed.sequence for feed in await store.feed(MINE, ["subject/1"], 2)] == [1, 2]
    assert await store.lanes(MINE) == [("subject/1", 3, later)], "the first of them says when"
    assert len(await store.known(MINE)) == 4


async def test_what_is_pending_is_found_until_it_is_published(store: TaskStore) -> None:
    await store.insert(MINE, [image(1, state="retrying", version=1, pending_outcome=b"o", pending_state=b"s")], NOW)
    (left,) = await store.unpublished(MINE, 10)
    assert (left.pending_outcome, left.pending_state, left.pending_dead_letter) == (b"o", b"s", None)

    await store.published(MINE, [(left.delivery_id, 0, None)])
    assert len(await store.unpublished(MINE, 10)) == 1, "another version is pending"
    await store.published(MINE, [(left.delivery_id, 1, None)])
    assert await store.unpublished(MINE, 10) == []


@pytest.mark.requirement("AT-2")
async def test_only_rows_closed_long_ago_are_dropped_and_a_few_at_a_time(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    old, expired = datetime.now(UTC) - timedelta(days=70), datetime.now(UTC) - timedelta(days=60)
    done = {"state": "acknowledged", "version": 1, "blocks": False, "expires_at": expired}
    kept = [
        image(1, **{**done, "state": "failed", "blocks": True}),
        image(2, **{**done, "pending_outcome": b"o", "pending_state": b"s"}),
        image(3, **{**done, "expires_at": datetime.now(UTC) + timedelta(days=1)}),
        image(4, **{**done, "state": "failed"}),
    ]
    await store.insert(MINE, [*kept, *(image(n, **done) for n in range(10, 15))], old)
    await store.insert(MINE, [image(20, **done)], datetime.now(UTC) - timedelta(days=40))
    other = replace(MINE, partition=1)

    assert await store.drop_closed(other, datetime.now(UTC), 100) == 0
    assert [await store.drop_closed(MINE, datetime.now(UTC) - timedelta(days=60), 3) for _ in range(3)] == [3, 2, 0]
    left = {key.int for key in await store.known(MINE)}

    assert left == {1, 2, 3, 4, 20}
    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        connection.execute("UPDATE delivery.open_task SET updated_at = now() - interval '29 days'")
    assert await store.drop_closed(MINE, datetime.now(UTC) + timedelta(days=9999), 100) == 0, "never a young one"


@pytest.mark.requirement("AT-2")
async def test_intents_and_superseding_go_as_closed_rows_do_and_what_people_decided_stays(
    store: TaskStore, migrated: FreshDatabase
) -> None:
    now = datetime.now(UTC)
    old, young = now - timedelta(days=70), now - timedelta(days=50)
    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        for number, (sent_at, answer) in enumerate([(old, "{}"), (old, "{}"), (old, None), (young, "{}")], start=1):
            connection.execute(
                "INSERT INTO delivery.intent VALUES ('acme', 'crm', %s, 0, 1, %s, 1, 1, %s, %s, %s)",
                (uuid.UUID(int=number), uuid.UUID(int=1), sent_at, sent_at, answer),
            )
        for number, (kind, verdict, at) in enumerate(
            [
                ("supersede", "applied", old), ("supersede", "early", old), ("supersede", "open", None),
                ("supersede", "void", young), ("cancel", "applied", old), ("supersede", "void", old),
            ],
            start=11,
        ):  # fmt: skip
            connection.execute(
                "INSERT INTO delivery.decision (tenant, destination, decision_id, partition, aggregate, kind,"
                " delivery_id, states, decided_by, reason, decided_at, verdict, judged_at)"
                " VALUES ('acme', 'crm', %(id)s, 0, 'subject/1', %(kind)s, %(id)s, '{}', 'w', 'r', now(), %(v)s, %(at)s)",
                {"id": uuid.UUID(int=number), "kind": kind, "v": verdict, "at": at},
            )
    settled = {"state": "acknowledged", "version": 1, "blocks": False, "expires_at": now + timedelta(days=1)}
    await store.insert(MINE, [image(2, **settled), image(16, **settled)], old)

    assert [await store.drop_closed(MINE, now - timedelta(days=60), 1) for _ in range(3)] == [1, 1, 0]

    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        intents = connection.execute("SELECT delivery_id FROM delivery.intent").fetchall()
        decisions = connection.execute("SELECT decision_id FROM delivery.decision").fetchall()
    assert {key.int for (key,) in intents} == {2, 3, 4}, "one with a row, one unanswered, one young"
    assert {key.int for (key,) in decisions} == {13, 14, 15, 16}, "open, young, of people, with a row"


@pytest.mark.requirement("RS-2")
def test_the_database_allows_exactly_the_moves_of_the_table(migrated: FreshDatabase) -> None:
    allowed = {(before, after) for (before, _), after in TRANSITIONS.items()}
    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        for before, after in itertools.product(State, State):
            connection.execute("DELETE FROM delivery.open_task")
            _plain_row(connection, before, 1)
            try:
                connection.execute("UPDATE delivery.open_task SET state = %s, version = 2", (after,))
                accepted = True
            except psycopg.errors.CheckViolation:
                accepted = False
            assert accepted is ((before, after) in allowed), (before, after)


@pytest.mark.requirement("RS-2")
def test_a_version_never_jumps_and_a_refused_move_changes_nothing(migrated: FreshDatabase) -> None:
    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        _plain_row(connection, State.RETRYING, 1)
        for state, version in (("acknowledged", 3), ("acknowledged", 1), ("retrying", 0)):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute("UPDATE delivery.open_task SET state = %s, version = %s", (state, version))
        assert connection.execute("SELECT state, version FROM delivery.open_task").fetchall() == [("retrying", 1)]


@pytest.mark.requirement("RS-1", "ET-1")
def test_the_database_knows_the_eight_states_and_fourteen_codes_and_no_other(migrated: FreshDatabase) -> None:
    with psycopg.connect(migrated.dsn(), autocommit=True) as connection:
        _plain_row(connection, State.RETRYING, 1)
        for code in ErrorCode:
            connection.execute("UPDATE delivery.open_task SET error_code = %s", (code,))
        for column in ("state", "error_code"):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(f"UPDATE delivery.open_task SET {column} = 'invented', version = 2")
        with pytest.raises(psycopg.errors.CheckViolation, match="open_task_state"):
            _plain_row(connection, "invented", 1)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM delivery.open_task",
        "TRUNCATE delivery.open_task",
        "DELETE FROM delivery.partition_owner",
        "DROP TABLE delivery.open_task",
        "ALTER TABLE delivery.open_task DISABLE TRIGGER ALL",
        "CREATE TABLE delivery.more (x integer)",
        "SELECT * FROM delivery.migration",
    ],
)
def test_the_workers_role_may_not(migrated: FreshDatabase, statement: str) -> None:
    with (
        psycopg.connect(migrated.dsn("waybill_worker"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_a_worker_that_freezes_in_a_transaction_is_thrown_out_in_three_seconds(migrated: FreshDatabase) -> None:
    with psycopg.connect(migrated.dsn("waybill_worker")) as connection:
        found = connection.execute(
            "SELECT name, setting FROM pg_settings WHERE name IN "
            "('idle_in_transaction_session_timeout', 'statement_timeout', 'synchronous_commit')"
        ).fetchall()

    assert dict(found) == {
        "idle_in_transaction_session_timeout": "3000",
        "statement_timeout": "10000",
        "synchronous_commit": "on",
    }


def _plain_row(connection: psycopg.Connection, state: str, version: int) -> None:
    connection.execute(
        "INSERT INTO delivery.open_task (tenant, destination, delivery_id, command_id, aggregate, sequence, partition,"
        " record_offset, state, version, attempt, expires_at, blocks, sent, may_have_acted, record, created_at,"
        " updated_at) VALUES ('acme', 'crm', gen_random_uuid(), gen_random_uuid(), 'a/1', 1, 0, 1, %s, %s, 0, now(),"
        " false, false, false, '', now(), now())",
        (state, version),
    )


async def _number(connection: psycopg.AsyncConnection, query: str) -> int:
    row = await (await connection.execute(query.encode())).fetchone()
    assert row is not None
    return int(row[0])
