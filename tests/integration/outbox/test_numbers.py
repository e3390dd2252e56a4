"""Numbers per aggregate and destination: 1..n, whoever writes at once, whatever is rolled back."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.outbox import CommandDraft, Outbox, is_retryable

pytestmark = pytest.mark.postgres


def draft(aggregate: str, *destinations: str) -> CommandDraft:
    return CommandDraft(
        aggregate_type="subject",
        aggregate_id=aggregate,
        command_type="subject.erase",
        data={},
        destinations=destinations,
    )


def in_parallel(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `work(i)` in `count` threads that start together; raise the first error."""
    together = threading.Barrier(count)

    def start(index: int) -> object:
        together.wait(timeout=60)
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def numbers(outbox: OutboxDatabase) -> dict[tuple[str, str], list[int]]:
    """(aggregate, destination) → numbers in the order of the rows."""
    found = defaultdict(list)
    query = """
        SELECT aggregate, key, value::int FROM waybill.outbox, jsonb_each(sequences)
        WHERE tenant = %s ORDER BY created_day, position
    """
    for aggregate, destination, number in outbox.rows(query, outbox.tenant):
        found[aggregate, destination].append(number)
    return dict(found)


@pytest.mark.requirement("DC-7")
def test_fifty_writers_on_one_aggregate_give_1_to_n(any_outbox: OutboxDatabase):
    each = 6
    chances = [random.Random(writer) for writer in range(50)]

    def write(writer: int) -> int:
        committed = 0
        with closing(any_outbox.connect()) as connection:
            for _ in range(each):
                Outbox(connection, tenant=any_outbox.tenant).emit(draft("hot"))
                if chances[writer].random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    committed += 1
        return committed

    committed = sum(int(str(count)) for count in in_parallel(50, write))

    assert 200 < committed < 300
    assert numbers(any_outbox) == {
        ("subject/hot", "crm"): list(range(1, committed + 1)),
        ("subject/hot", "erp"): list(range(1, committed + 1)),
    }


@pytest.mark.requirement("DC-7")
def test_transactions_over_many_aggregates_do_not_wait_for_each_other(outbox: OutboxDatabase):
    aggregates = [f"a{number}" for number in range(12)]

    def write(writer: int) -> None:
        chance = random.Random(writer)
        with closing(outbox.connect()) as connection:
            for _ in range(8):
                with connection.transaction(), Outbox(connection, tenant=outbox.tenant).collect() as box:
                    for aggregate in chance.sample(aggregates, 8):  # any order, a deadlock if locks were taken so
                        box.emit(draft(aggregate))
                        box.emit(draft(aggregate, "crm"))

    in_parallel(12, write)

    for (_, destination), taken in numbers(outbox).items():
        assert taken == list(range(1, len(taken) + 1)), destination
    assert sum(map(len, numbers(outbox).values())) == 12 * 8 * 8 * 3


def test_single_emits_in_opposite_order_deadlock_and_the_error_says_try_again(outbox: OutboxDatabase):
    first, second = (psycopg.connect(outbox.dsn("waybill_app")) for _ in range(2))
    with closing(first), closing(second), ThreadPoolExecutor(1) as pool:
        Outbox(first, tenant=outbox.tenant).emit(draft("a"))
        Outbox(second, tenant=outbox.tenant).emit(draft("b"))
        waiting = pool.submit(Outbox(first, tenant=outbox.tenant).emit, draft("b"))
        errors = []
        try:
            Outbox(second, tenant=outbox.tenant).emit(draft("a"))
        except psycopg.Error as error:
            errors.append(error)
            second.rollback()
        try:
            waiting.result(timeout=30)
        except psycopg.Error as error:
            errors.append(error)

    assert [is_retryable(error) for error in errors] == [True]


def test_a_repeatable_read_transaction_that_lost_the_race_is_told_to_try_again(outbox: OutboxDatabase):
    with closing(outbox.connect()) as early, closing(outbox.connect()) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        Outbox(early, tenant=outbox.tenant).emit(draft("a"))
        early.commit()
        late.execute("SELECT 1")
        Outbox(early, tenant=outbox.tenant).emit(draft("a"))
        early.commit()

        with pytest.raises(psycopg.Error) as caught:
            Outbox(late, tenant=outbox.tenant).emit(draft("a"))
        late.rollback()
        again = Outbox(late, tenant=outbox.tenant).emit(draft("a"))

    assert is_retryable(caught.value)
    assert again.sequences == {"crm": 3, "erp": 3}


def test_a_rollback_gives_the_numbers_back(any_outbox: OutboxDatabase):
    with closing(any_outbox.connect()) as connection:
        box = Outbox(connection, tenant=any_outbox.tenant)
        box.emit(draft("a"))
        connection.commit()
        box.emit_many([draft("a"), draft("a"), draft("b")])
        connection.rollback()
        after = box.emit_many([draft("b"), draft("a")])
        connection.commit()

    assert [emitted.sequences for emitted in after] == [{"crm": 1, "erp": 1}, {"crm": 2, "erp": 2}]


def test_a_savepoint_that_was_rolled_back_takes_no_number(outbox: OutboxDatabase):
    with closing(outbox.connect()) as connection, connection.transaction():
        box = Outbox(connection, tenant=outbox.tenant)
        with connection.transaction(force_rollback=True):
            box.emit(draft("a"))
        kept = box.emit(draft("a"))

    assert kept.sequences == {"crm": 1, "erp": 1}


def test_each_destination_counts_for_itself(any_outbox: OutboxDatabase):
    with any_outbox.connect() as connection:
        emitted = Outbox(connection, tenant=any_outbox.tenant).emit_many(
            [draft("a", "crm"), draft("b"), draft("a"), draft("a", "erp"), draft("a", "crm", "erp")]
        )

    assert [one.sequences for one in emitted] == [
        {"crm": 1},
        {"crm": 1, "erp": 1},
        {"crm": 2, "erp": 1},
        {"erp": 2},
        {"crm": 3, "erp": 3},
    ]


def test_commands_lie_in_the_outbox_in_the_order_they_were_given(outbox: OutboxDatabase):
    given = [random.Random(1).choice("cab") for _ in range(200)]

    with outbox.connect() as connection:
        emitted = Outbox(connection, tenant=outbox.tenant).emit_many([draft(one) for one in given])

    rows = outbox.rows(
        "SELECT aggregate, command_id FROM waybill.outbox WHERE tenant = %s ORDER BY position", outbox.tenant
    )
    assert rows == [(f"subject/{one}", command.command_id) for one, command in zip(given, emitted, strict=True)]


def test_two_tenants_count_apart(outbox: OutboxDatabase):
    other = f"{outbox.tenant}-b"
    outbox.serve(other)

    with outbox.connect() as connection:
        mine = Outbox(connection, tenant=outbox.tenant).emit(draft("a"))
        theirs = Outbox(connection, tenant=other).emit(draft("a"))

    assert mine.sequences == theirs.sequences == {"crm": 1, "erp": 1}
