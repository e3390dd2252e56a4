"""Exceptions in a real PostgreSQL: moved by the right people, held to it by the table, and audited."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase
from typer.testing import CliRunner

from waybill.audit import AuditStore, verify
from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.exceptions import Draft, ExceptionBook, ExceptionRecord, ExceptionState, Move
from waybill.fabric import Applied, FabricStore, plan
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.testing.clocks import MovableClock

pytestmark = pytest.mark.postgres
DAY = timedelta(days=1)
CLOSING = "SELECT exception_id FROM exceptions.closing"


@pytest.fixture
def database(fresh_database: FreshDatabase) -> Iterator[psycopg.Connection[Any]]:
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        yield connection


@pytest.fixture
def now() -> MovableClock:
    """Begin at the real time: the view of what closes goes by the database's clock."""
    return MovableClock(SystemClock().now())


@pytest.fixture
def book(database: psycopg.Connection[Any], now: MovableClock) -> ExceptionBook:
    return ExceptionBook(database, now)


def draft(now: MovableClock, **changes: Any) -> Draft:
    made = Draft(
        tenant="acme",
        destination="crm",
        delivery_id=uuid4(),
        source="https://law.example/17",
        reason="kept for the tax office",
        permits_closure=True,
        opened_by="ann",
        reviewer="bob",
        expires_at=now.now() + DAY,
    )
    return replace(made, **changes)


def closes(database: psycopg.Connection[Any]) -> set[UUID]:
    return {row[0] for row in database.execute(CLOSING)}


def acts(database: psycopg.Connection[Any]) -> list[tuple[str, str, str]]:
    bodies = [json.loads(entry.body) for entry in AuditStore(database, "acme").entries()]
    return [(body["act"], body["by"], body["row"]["state"]) for body in bodies]


def test_only_what_is_approved_and_permits_it_closes(
    book: ExceptionBook, database: psycopg.Connection[Any], now: MovableClock
) -> None:
    asked, permits, only_notes = (
        book.open(draft(now)),
        book.open(draft(now)),
        book.open(draft(now, permits_closure=False)),
    )
    assert closes(database) == set()
    book.move(permits.exception_id, Move.APPROVE, "bob", "read it")
    book.move(only_notes.exception_id, Move.APPROVE, "bob", "read it")

    assert closes(database) == {permits.exception_id}
    book.move(permits.exception_id, Move.REJECT, "bob", "the law changed")
    assert closes(database) == set()
    assert {each.exception_id: each.state for each in book.list("acme", None, 10)} == {
        asked.exception_id: ExceptionState.OPENED,
        permits.exception_id: ExceptionState.REJECTED,
        only_notes.exception_id: ExceptionState.APPROVED,
    }


def test_what_expired_closes_nothing_even_before_it_is_marked(
    book: ExceptionBook, database: psycopg.Connection[Any], now: MovableClock
) -> None:
    now.jump(now.now() - 3 * DAY)
    old = book.open(draft(now))
    book.move(old.exception_id, Move.APPROVE, "bob", "read it")
    live = book.open(draft(now, expires_at=now.now() + 9 * DAY))

    assert closes(database) == set()
    now.advance(timedelta(days=3))
    assert [(each.exception_id, each.moved_by) for each in book.expire_due()] == [(old.exception_id, "the clock")]
    assert book.expire_due() == []
    assert [each.exception_id for each in book.list(None, ExceptionState.OPENED, 10)] == [live.exception_id]


@pytest.mark.requirement("RS-14", "HS-7")
def test_each_move_is_an_entry_of_the_audit_and_a_refused_one_is_none(
    book: ExceptionBook, database: psycopg.Connection[Any], now: MovableClock
) -> None:
    made = book.open(draft(now))
    with pytest.raises(RefusedError, match="opened it"):
        book.move(made.exception_id, Move.APPROVE, "ann", "mine")
    book.move(made.exception_id, Move.APPROVE, "bob", "read it")
    now.advance(DAY)
    book.expire_due()

    assert acts(database) == [
        ("exceptions.exception.insert", "ann", "opened"),
        ("exceptions.exception.update", "bob", "approved"),
        ("exceptions.exception.update", "the clock", "expired"),
    ]
    assert verify(AuditStore(database, "acme").entries(), [], lambda _: False).findings == ()


def test_a_delivery_has_one_that_is_not_over(book: ExceptionBook, now: MovableClock) -> None:
    first = book.open(draft(now))
    with pytest.raises(RefusedError, match="has an exception"):
        book.open(draft(now, delivery_id=first.delivery_id))
    book.move(first.exception_id, Move.REJECT, "bob", "no")

    assert book.open(draft(now, delivery_id=first.delivery_id)).state is ExceptionState.OPENED
    with pytest.raises(ConfigError, match="no exception of that id"):
        book.move(uuid4(), Move.APPROVE, "bob", "read it")


def test_of_two_judgements_at_once_the_second_stands_on_the_first(
    fresh_database: FreshDatabase, book: ExceptionBook, now: MovableClock
) -> None:
    made = book.open(draft(now))

    def approve(_: int) -> bool:
        with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
            try:
                ExceptionBook(connection, now).move(made.exception_id, Move.APPROVE, "bob", "read it")
            except RefusedError:
                return False
            return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(approve, range(4))) == [False, False, False, True]


@pytest.mark.requirement("RS-14")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("SET state = 'approved', moved_by = 'ann', moved_at = now()", psycopg.errors.CheckViolation),
        ("SET state = 'approved', moved_by = 'cid', moved_at = now()", psycopg.errors.CheckViolation),
        ("SET state = 'approved'", psycopg.errors.CheckViolation),
        ("SET expires_at = 'infinity'", psycopg.errors.RestrictViolation),
        ("SET reviewer = 'cid'", psycopg.errors.RestrictViolation),
        ("SET permits_closure = NOT permits_closure", psycopg.errors.RestrictViolation),
    ],
)
def test_the_table_itself_refuses_what_nobody_may(
    book: ExceptionBook, database: psycopg.Connection[Any], now: MovableClock, change: str, error: type[Exception]
) -> None:
    book.open(draft(now))

    with pytest.raises(error):
        database.execute(f"UPDATE exceptions.exception {change}".encode())


def test_the_table_itself_refuses_a_maker_who_reviews_and_an_end_that_is_taken_back(
    book: ExceptionBook, database: psycopg.Connection[Any], now: MovableClock
) -> None:
    made = book.open(draft(now))
    with pytest.raises(psycopg.errors.CheckViolation):
        database.execute(
            "INSERT INTO exceptions.exception SELECT gen_random_uuid(), tenant, destination, gen_random_uuid(), source, reason, "
            "true, 'bob', opened_at, ' BOB', expires_at FROM exceptions.exception"
        )
    book.move(made.exception_id, Move.REJECT, "bob", "no")
    for change in ("UPDATE exceptions.exception SET state = 'approved'", "DELETE FROM exceptions.exception"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            database.execute(change.encode())


def run(*words: str) -> Any:
    done = CliRunner().invoke(root, ["exceptions", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["exceptions"]


def test_the_command_line_opens_approves_rejects_and_lists(
    fresh_database: FreshDatabase, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", fresh_database.dsn())
    crm = DestinationConfig(
        tenant=Tenant("acme"), name=DestinationName("crm"), url="http://crm.example/", owner="c", tradeoff="none"
    )
    fabric = FabricConfig(version=0, tenants=(TenantConfig(name=Tenant("acme"), destinations=(crm,)),))
    store = FabricStore(database)
    store.record(fabric, plan(store.current(), fabric).changes, Applied(at=SystemClock().now(), by="olga"))
    asked = ["open", "acme", "crm", str(uuid4()), "--source", "https://law.example/17", "--why", "tax office"]
    asked += ["--reviewer", "bob", "--expires", "30d", "--permits-closure", "--by", "ann"]

    (made,) = run(*asked)
    (approved,) = run("approve", made["exception_id"], "--why", "read it", "--by", "bob")
    (listed,) = run("list", "--tenant", "acme", "--state", "approved")
    (rejected,) = run("reject", made["exception_id"], "--why", "it changed", "--by", "bob")

    assert (made["state"], made["in_force"], approved["in_force"], rejected["state"]) == (
        "opened",
        False,
        True,
        "rejected",
    )
    assert listed == approved
    assert run("expire") == []
    for wrong, said in (
        (["open", "acme", "erp", *asked[3:]], "no such destination"),
        (["approve", "4711", "--why", "x"], "no id"),
        (["approve", made["exception_id"], "--why", " "], "--why"),
        ([*asked, "--expires", "soon"], "--expires"),
    ):
        assert said in str(CliRunner().invoke(root, ["exceptions", *wrong]).exception)


def test_records_are_read_as_they_were_written(book: ExceptionBook, now: MovableClock) -> None:
    made = book.open(draft(now))
    (listed,) = book.list("acme", None, 1)

    assert isinstance(listed, ExceptionRecord)
    assert listed == made
