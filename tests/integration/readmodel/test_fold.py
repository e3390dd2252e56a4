"""The read model over real Kafka, registry and PostgreSQL: every fact once, whatever happens to the process."""

import uuid
from contextlib import closing

import psycopg
import pytest
from fixtures.fix_read_model import AT, Road

from waybill.kernel.errors import FencedError
from waybill.readmodel import PostgresStore, ReadModel
from waybill.readmodel.core.records import Rows
from waybill.testing import eventually

pytestmark = pytest.mark.stack


def write_a_day(road: Road) -> None:
    """Thirty commands over two destinations, settled in several ways, with repeats and poison among them."""
    for number in range(30):
        aggregate = f"subject/{number % 7}"

        def write(aggregate: str = aggregate, number: int = number) -> None:
            sequence = number // 7 + 1
            command = road.command(aggregate, "crm", "archive")
            if number % 3 == 0:
                return
            road.outcome(command, aggregate, "crm", sequence)
            road.state(command, aggregate, "crm", sequence)
            if number % 5 == 0:
                road.outcome(command, aggregate, "crm", sequence, moved=False)
                road.command(aggregate, sequences={"crm": sequence, "archive": sequence}, command_id=command)
            if number % 4 == 0:
                road.outcome(
                    command, aggregate, "archive", sequence, state_after="retrying", error_code="TRANSIENT_NETWORK"
                )
                road.state(command, aggregate, "archive", sequence, state="retrying", next_due=AT)

        road.transaction(write)
    road.transaction(lambda: road.command("subject/1", "crm", headers={"ce_sequences": "poison"}))
    road.transaction(road.dead_letter)


@pytest.mark.requirement("RS-3")
def test_committed_command_is_queued_and_an_aborted_one_is_nothing(road: Road) -> None:
    road.transaction(lambda: road.command("subject/1", "crm", "archive"))
    road.transaction(lambda: road.command("subject/1", sequences={"crm": 2}), abort=True)

    road.fold()

    rows = road.rows("SELECT destination, state, version, sequence, copies FROM read.delivery ORDER BY destination")
    assert rows == [
        {"destination": name, "state": "queued", "version": 0, "sequence": 1, "copies": 1}
        for name in ("archive", "crm")
    ]


def test_every_kind_of_record_finds_its_table(road: Road) -> None:
    write_a_day(road)

    road.fold()

    (counts,) = road.rows(
        """SELECT (SELECT count(*) FROM read.delivery) AS deliveries,
            (SELECT count(*) FROM read.delivery WHERE state = 'acknowledged') AS acknowledged,
            (SELECT count(*) FROM read.delivery WHERE state = 'retrying') AS retrying,
            (SELECT count(*) FROM read.attempt WHERE kind = 'repeat') AS repeats,
            (SELECT count(*) FROM read.attempt) AS attempts,
            (SELECT count(*) FROM read.dead_letter) AS dead_letters,
            (SELECT count(*) FROM read.anomaly WHERE kind = 'unreadable') AS unreadable,
            (SELECT count(*) FROM read.anomaly WHERE kind <> 'unreadable') AS other"""
    )
    assert counts == {
        "deliveries": 60,
        "acknowledged": 20,
        "retrying": 5,
        "repeats": 4,
        "attempts": 29,
        "dead_letters": 1,
        "unreadable": 1,
        "other": 0,
    }


def test_rebuild_gives_the_same_rows_as_following_did(road: Road) -> None:
    write_a_day(road)
    road.fold()
    followed = road.fingerprint()

    with closing(PostgresStore(road.dsn)) as store:
        store.forget(road.tenant)
    emptied = road.fingerprint()
    road.fold()

    assert emptied != followed
    assert road.fingerprint() == followed


def test_folding_in_pieces_gives_the_same_rows_as_folding_at_once(road: Road) -> None:
    for _ in range(2):
        write_a_day(road)
        road.fold()
    in_pieces = road.fingerprint()

    with closing(PostgresStore(road.dsn)) as store:
        store.forget(None)
    road.fold()

    assert road.fingerprint() == in_pieces


def test_second_run_reads_nothing_again(road: Road) -> None:
    write_a_day(road)
    first = road.fold()

    second = road.fold()

    assert (first > 0, second) == (True, 0)


def test_state_that_is_older_than_what_is_known_changes_nothing(road: Road) -> None:
    command = uuid.uuid4()

    def write() -> None:
        known = road.command("subject/1", "crm", command_id=command)
        road.state(known, "subject/1", "crm", 1, state="acknowledged", version=2)
        road.state(known, "subject/1", "crm", 1, state="retrying", version=1, next_due=AT)

    road.transaction(write)
    road.fold()

    assert road.rows("SELECT state, version, next_due FROM read.delivery") == [
        {"state": "acknowledged", "version": 2, "next_due": None}
    ]


@pytest.mark.requirement("DC-7")
def test_hole_and_reused_number_are_found_and_a_filled_hole_is_resolved(road: Road) -> None:
    for number in (1, 3, 5):
        road.transaction(lambda n=number: road.command("subject/1", sequences={"crm": n}))  # type: ignore[misc]
    road.fold()
    for number in (4, 3):
        road.transaction(lambda n=number: road.command("subject/1", sequences={"crm": n}))  # type: ignore[misc]
    road.fold()

    rows = road.rows(
        "SELECT kind, first_sequence AS first, missing, resolved_at IS NULL AS is_open FROM read.anomaly ORDER BY 1, 2"
    )
    assert rows == [
        {"kind": "hole", "first": 2, "missing": 1, "is_open": True},
        {"kind": "hole", "first": 4, "missing": 0, "is_open": False},
        {"kind": "reused_number", "first": 3, "missing": 0, "is_open": True},
    ]
    with closing(psycopg.connect(road.dsn)) as connection:
        still_open = ReadModel(connection).open_anomalies()
    assert [(row["kind"], row["anomalies"]) for row in still_open] == [("hole", 1), ("reused_number", 1)]
    assert all(row["oldest"].tzinfo is not None for row in still_open)


def test_write_of_a_process_that_was_overtaken_changes_nothing(road: Road) -> None:
    write_a_day(road)
    road.fold()
    before = road.fingerprint()
    place = (f"waybill.{road.tenant}.state", 0)

    with closing(PostgresStore(road.dsn)) as stale, pytest.raises(FencedError):
        stale.apply(Rows(), {place: 0}, {place: 1}, {})

    assert road.fingerprint() == before


def test_tenant_has_one_folder_at_a_time_and_another_takes_over_when_it_is_gone(road: Road) -> None:
    road.fold()
    with closing(PostgresStore(road.dsn)) as first, closing(PostgresStore(road.dsn)) as second:
        assert first.claim({"acme", "zeta"}) == {"acme", "zeta"}
        assert second.claim({"acme"}) == set()

        first.close()

        assert eventually(lambda: second.claim({"acme"})) == {"acme"}


@pytest.mark.requirement("RS-1")
def test_ninth_state_is_refused_by_the_database(road: Road) -> None:
    road.transaction(lambda: road.command("subject/1", "crm"))
    road.fold()

    with pytest.raises(psycopg.errors.CheckViolation):
        road.rows("UPDATE read.delivery SET state = 'lost' RETURNING 1 AS one")
