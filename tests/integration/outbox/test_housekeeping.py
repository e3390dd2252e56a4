"""Days: made ahead, closed when nobody can write them any more, dropped only behind the relay."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import ON_BOTH, OutboxDatabase

from waybill.outbox import CommandDraft, Outbox
from waybill.outbox.housekeeping import Action, Housekeeping, Step, housekeep

pytestmark = pytest.mark.postgres

PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})
SLOT = "waybill_relay_test"


@pytest.fixture
def owner(own_outbox: OutboxDatabase) -> Iterator[psycopg.Connection[Any]]:
    with closing(own_outbox.connect("postgres", autocommit=True)) as connection:
        yield connection


def today() -> date:
    return datetime.now(UTC).date()


def emit(outbox: OutboxDatabase) -> None:
    with outbox.connect() as connection:
        Outbox(connection, tenant="acme").emit(PLAIN)


def run(owner: psycopg.Connection[Any], day: date, **wanted: Any) -> list[tuple[Action, str]]:
    steps = housekeep(owner, "waybill", Housekeeping(**wanted), today=day)
    return [(step.action, step.partition) for step in steps if step.action is not Action.MADE]


def partition(day: date) -> str:
    return f"outbox_{day:%Y%m%d}"


@contextmanager
def slot(owner: psycopg.Connection[Any], name: str) -> Iterator[None]:
    owner.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    yield
    owner.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def confirm(owner: psycopg.Connection[Any], name: str) -> None:
    """Move a slot to the end of the WAL, as a relay does that has read everything."""
    owner.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())", (name,))


def test_a_round_makes_the_days_ahead_and_a_second_one_nothing(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    first = housekeep(owner, "waybill", Housekeeping(ahead_days=10))
    second = housekeep(owner, "waybill", Housekeeping(ahead_days=10))

    made = [partition(today() + timedelta(days=ahead)) for ahead in (8, 9, 10)]  # 0 to 7 came with the migration
    assert first == [Step(action=Action.MADE, partition=name, reason="ahead") for name in made]
    assert second == []


@ON_BOTH
def test_a_day_is_dropped_only_when_it_is_past_retention_and_the_relay_has_read_it(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    day = partition(today())
    with slot(owner, SLOT):
        emit(own_outbox)

        assert run(owner, today(), keep_days=3) == []
        assert run(owner, today() + timedelta(days=1), keep_days=3) == [(Action.CLOSED, day)]
        confirm(owner, SLOT)
        assert run(owner, today() + timedelta(days=3), keep_days=3)[-1][0] is Action.CLOSED  # younger days
        assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(1,)]
        assert (Action.DROPPED, day) in run(owner, today() + timedelta(days=4), keep_days=3)

    assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(0,)]
    assert own_outbox.rows("SELECT to_regclass(%s)", f"waybill.{day}") == [(None,)]


def test_a_day_the_relay_has_not_read_is_kept_however_old(own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    day = partition(today())
    later = today() + timedelta(days=300)
    with slot(owner, SLOT):
        emit(own_outbox)
        run(owner, today() + timedelta(days=1))

        assert (Action.KEPT, day) in run(owner, later)
        assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(1,)]

        confirm(owner, SLOT)
        assert (Action.DROPPED, day) in run(owner, later, slot=SLOT)


def test_without_a_slot_nothing_is_dropped(own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    emit(own_outbox)
    run(owner, today() + timedelta(days=1))

    assert (Action.KEPT, partition(today())) in run(owner, today() + timedelta(days=300))
    assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(1,)]


def test_a_second_slot_that_lags_holds_the_day_unless_the_relays_is_named(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    day, later = partition(today()), today() + timedelta(days=300)
    with slot(owner, "lagging"), slot(owner, SLOT):
        emit(own_outbox)
        run(owner, today() + timedelta(days=1))
        confirm(owner, SLOT)

        assert (Action.KEPT, day) in run(owner, later)
        assert (Action.DROPPED, day) in run(owner, later, slot=SLOT)


@ON_BOTH
def test_a_day_is_not_closed_while_a_transaction_that_wrote_it_is_open(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    day = partition(today())
    with slot(owner, SLOT), closing(own_outbox.connect()) as writer:
        Outbox(writer, tenant="acme").emit(PLAIN)  # before midnight
        after_midnight = today() + timedelta(days=1)

        assert (Action.BUSY, day) in run(owner, after_midnight)
        writer.commit()
        assert run(owner, after_midnight) == [(Action.CLOSED, day)]


def test_a_row_that_comes_after_its_day_was_closed_closes_it_again(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    day, later = partition(today()), today() + timedelta(days=300)
    with slot(owner, SLOT):
        emit(own_outbox)
        run(owner, today() + timedelta(days=1))
        confirm(owner, SLOT)
        emit(own_outbox)  # its clock was set back

        steps = run(owner, later)

        assert (Action.CLOSED, day) in steps
        assert (Action.KEPT, day) in steps
        assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(2,)]


def test_a_day_somebody_holds_is_dropped_later_and_the_one_before_it_is_gone(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    first, second = partition(today()), partition(today() + timedelta(days=1))
    later = today() + timedelta(days=300)
    with slot(owner, SLOT), closing(own_outbox.connect("postgres")) as holder:
        run(owner, later)
        confirm(owner, SLOT)
        holder.execute(f"SELECT FROM waybill.{second}".encode())

        steps = run(owner, later)

        assert [step for step in steps if step[0] is Action.DROPPED] == [(Action.DROPPED, first)]
        assert (Action.BUSY, second) in steps
        exists = own_outbox.rows("SELECT to_regclass(%s), to_regclass(%s)", f"waybill.{first}", f"waybill.{second}")
        assert exists == [(None, f"waybill.{second}")]


def insert_on(owner: psycopg.Connection[Any], *days: date) -> None:
    owner.execute(
        "INSERT INTO waybill.outbox (created_day, route, command_id, source, command_type, aggregate, issued_at, "
        "content_type, tenant, sequences, expires_at, config_version, capability, capability_version, payload) "
        "SELECT d, 'acme.commands', gen_random_uuid(), 'waybill://acme/s', 'a.b', 'subject/1', '2030-01-01', "
        """'application/json', 'acme', '{"crm": 1}', '2031-01-01', 1, 'a.b', 1, '{}' FROM unnest(%s::date[]) d""",
        (list(days),),
    )


def test_rows_around_a_day_that_has_a_partition_block_nothing_but_themselves(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    day = today() + timedelta(days=20)
    owner.execute("SELECT waybill.add_partition(%s)", (day,))
    insert_on(owner, day - timedelta(days=1), day + timedelta(days=1))

    steps = housekeep(owner, "waybill", Housekeeping(ahead_days=3), today=day)

    blocked = [step for step in steps if step.action is Action.BLOCKED]
    made = [step.partition for step in steps if step.action is Action.MADE]
    assert [step.partition for step in blocked] == ["outbox_default", "outbox_default"]
    assert made == [partition(day + timedelta(days=2)), partition(day + timedelta(days=3))]
    assert own_outbox.rows("SELECT count(*) FROM waybill.outbox_default") == [(2,)]


@ON_BOTH
def test_rows_of_days_nobody_prepared_get_a_partition_and_are_kept_like_the_others(
    own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]
):
    first, last = today() + timedelta(days=20), today() + timedelta(days=21)
    insert_on(owner, first, last)

    steps = run(owner, first)

    adopted = f"outbox_{first:%Y%m%d}_{last:%Y%m%d}"
    assert (Action.ADOPTED, adopted) in steps
    assert own_outbox.rows("SELECT count(*) FROM waybill.outbox_default") == [(0,)]
    assert own_outbox.rows(f"SELECT count(*) FROM waybill.{adopted}") == [(2,)]
    with pytest.raises(psycopg.Error, match="never changes"):
        own_outbox.rows(f"TRUNCATE waybill.{adopted}")
    with pytest.raises(psycopg.Error, match="never changes"):
        own_outbox.rows("DELETE FROM waybill.outbox")
    assert Action.ADOPTED not in [action for action, _ in run(owner, first)]


@ON_BOTH
def test_a_new_partition_is_relayed_and_dropping_one_is_not(own_outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    """What the publication lets out, decoded: inserts under the root's name and nothing else."""
    day = partition(today())
    with slot(owner, SLOT):
        housekeep(owner, "waybill", Housekeeping(ahead_days=9))
        emit(own_outbox)
        owner.execute(f"DROP TABLE waybill.{day}".encode())

        changes = owner.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, "
            "'proto_version', '1', 'publication_names', 'waybill_outbox')",
            (SLOT,),
        ).fetchall()

    kinds = [chr(data[0]) for (data,) in changes]
    inserted_into = {data[1:5] for (data,) in changes if chr(data[0]) == "I"}
    root = {data[1:5] for (data,) in changes if b"waybill\x00outbox\x00" in bytes(data)}
    assert kinds.count("I") == 1
    assert not {"U", "D", "T"} & set(kinds)
    assert inserted_into == root
