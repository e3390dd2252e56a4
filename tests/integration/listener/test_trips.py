"""Several statements in one trip to the server, and what a handler may and may not do between two of them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone

import psycopg
import pytest
from fixtures.fix_listener import Site
from psycopg import AsyncConnection, sql

from waybill.kernel.errors import InvariantBroken
from waybill.listener import Done, Received
from waybill.listener.stores.postgres_trips import BEGIN, COMMIT, Statement, TripConnection, instant
from waybill.testing.waiting import eventually_async

pytestmark = pytest.mark.postgres
WRITE = Statement(b"INSERT INTO contact_erasure (what) VALUES ($1)", (b"x",))
BROKEN = Statement(b"SELECT 1 / $1::integer", (bytes(4),))


@pytest.fixture
async def connection(bare_site: Site) -> AsyncIterator[TripConnection]:
    async with await TripConnection.connect(bare_site.dsn, autocommit=True) as opened:
        yield opened


@pytest.mark.requirement("GW-6")
async def test_a_record_that_is_gone_before_its_receipt_takes_the_effect_with_it(bare_site: Site) -> None:
    site = bare_site

    @site.listener.on("subject.erase")
    async def erase(_: Received, transaction: AsyncConnection) -> Done:
        await transaction.execute("INSERT INTO contact_erasure (what) VALUES ('x')")
        await transaction.execute(sql.SQL("DELETE FROM {}.delivery").format(sql.Identifier(site.schema)))
        return Done(source_version="1", evidence="e", count=1)

    with pytest.raises(InvariantBroken, match="before its receipt"):
        await site.send(site.make_command())

    assert await site.effects() == []


@pytest.mark.requirement("GW-6")
async def test_a_handler_may_take_back_a_part_of_what_it_did(bare_site: Site) -> None:
    site = bare_site

    @site.listener.on("subject.erase")
    async def erase(_: Received, transaction: AsyncConnection) -> Done:
        for _again in range(8):  # often enough that psycopg has the server prepare it, and then forget it all
            async with transaction.transaction(force_rollback=True):
                await transaction.execute("INSERT INTO contact_erasure (what) VALUES ('taken back')", prepare=True)
        await transaction.execute("INSERT INTO contact_erasure (what) VALUES ('kept')")
        return Done(source_version="1", evidence="e", count=1)

    for number in (1, 2):
        assert (await site.send(site.make_command(sequences={"crm": number}))).status_code == 200

    assert await site.effects() == ["kept", "kept"]


async def test_nothing_behind_a_statement_that_fails_is_executed(bare_site: Site, connection: TripConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await connection.trip(BEGIN, WRITE, BROKEN, COMMIT)

    assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
    await connection.undo()
    await connection.trip(BEGIN, WRITE, COMMIT)
    assert await bare_site.effects() == ["x"]


async def test_each_statement_has_its_result(connection: TripConnection) -> None:
    found = await connection.trip(BEGIN, Statement(b"SELECT $1::text", (b"a",)), Statement(b"SELECT 'b'"), COMMIT)

    assert [found[1].get_value(0, 0), found[2].get_value(0, 0)] == [b"a", b"b"]


@pytest.mark.parametrize("year", [1970, 2026, 9999])
async def test_a_moment_arrives_to_the_microsecond(connection: TripConnection, year: int) -> None:
    moment = datetime(year, 12, 1, 16, 59, 7, 123_456, tzinfo=timezone(timedelta(hours=2)))

    statement = Statement(b"SELECT $1::timestamptz = $2::text::timestamptz", (instant(moment), str(moment).encode()))

    assert (await connection.trip(statement))[0].get_value(0, 0) == b"t"


async def test_more_than_a_socket_holds_goes_in_one_trip(connection: TripConnection) -> None:
    large = b"x" * 16_000_000

    found = await connection.trip(Statement(b"SELECT length($1::text)", (large,)), Statement(b"SELECT 1"))

    assert found[0].get_value(0, 0) == b"16000000"


async def test_a_trip_that_is_given_up_leaves_no_answer_behind(connection: TripConnection, bare_site: Site) -> None:
    trip = asyncio.create_task(connection.trip(Statement(b"SELECT pg_sleep(60)"), Statement(b"SELECT 1")))
    query = f"SELECT state FROM pg_stat_activity WHERE pid = {connection.info.backend_pid}"

    async def is_under_way() -> bool:
        return await bare_site.rows(query) == ["active"]

    await eventually_async(is_under_way)

    trip.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trip

    assert (await connection.trip(Statement(b"SELECT 2")))[0].get_value(0, 0) == b"2"


async def test_a_trip_that_ends_in_the_middle_closes_the_connection(connection: TripConnection) -> None:
    with pytest.raises(TypeError):
        await connection.trip(Statement(b"SELECT 1"), Statement(b"SELECT $1::text", ("no bytes",)))  # type: ignore[arg-type]

    assert connection.closed
