"""Where two processes meet, and what comes late: the tables decide."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.cli.migrate import migrate_all
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import FencedError
from waybill.readmodel.core.records import DeliveryRow, Rows, StateRow
from waybill.readmodel.ports import Bounds
from waybill.requests.store import RequestStore

pytestmark = pytest.mark.postgres
AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
TENANT = "acme"
PLACE = ("waybill.acme.state", 0)
ID = uuid.UUID(int=7)


@pytest.fixture
def database(fresh_database: FreshDatabase) -> Iterator[psycopg.Connection[Any]]:
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        connection.execute("INSERT INTO fabric.control_route VALUES ('acme.requests')")
        yield connection


def opened(fresh_database: FreshDatabase) -> RequestStore:
    return RequestStore(fresh_database.dsn(), SystemClock(), lambda told: told.turn.value.encode())


def command() -> DeliveryRow:
    return DeliveryRow(
        tenant=TENANT,
        delivery_id=ID,
        command_id=ID,
        destination="crm",
        aggregate="subject/1",
        sequence=1,
        request_id="request-1",
        request_size=1,
        required=True,
        in_topic_at=AT,
        command_partition=0,
        command_offset=0,
    )


def state(name: str, version: int) -> StateRow:
    return StateRow(
        tenant=TENANT,
        delivery_id=ID,
        command_id=ID,
        destination="crm",
        aggregate="subject/1",
        sequence=1,
        command_type="subject.erase",
        request_id="request-1",
        required=True,
        expires_at=AT,
        state=name,
        version=version,
        error_code=None,
        detail=None,
        attempt=1,
        next_due=None,
        owner="team",
        proof_level=None,
        profile="durable_idempotent",
        config_version=1,
        updated_at=AT,
    )


def write(store: RequestStore, offset: int, *states: StateRow) -> None:
    rows = Rows(deliveries=[command()], states=list(states))
    store.apply(rows, {PLACE: offset}, {PLACE: offset + 1}, {})


def begin(store: RequestStore) -> None:
    assert store.claim([TENANT]) == {TENANT}
    assert store.positions({PLACE: TENANT}, {PLACE: Bounds(first=0, end=9)}) == {PLACE: 0}


def test_one_process_folds_a_tenant_and_another_that_thinks_so_writes_nothing(
    database: psycopg.Connection[Any], fresh_database: FreshDatabase
):
    with closing(opened(fresh_database)) as first, closing(opened(fresh_database)) as second:
        begin(first)
        write(first, 0)

        assert second.claim([TENANT]) == frozenset()
        with pytest.raises(FencedError):
            write(second, 0, state("acknowledged", 1))

    assert database.execute("SELECT count(*) FROM requests.outcome").fetchone() == (0,)


def test_a_tenant_whose_topic_of_requests_is_not_there_is_left_alone(
    database: psycopg.Connection[Any], fresh_database: FreshDatabase
):
    with closing(opened(fresh_database)) as store:
        assert store.claim([TENANT, "other"]) == {TENANT}


def test_a_state_that_was_overtaken_changes_nothing(database: psycopg.Connection[Any], fresh_database: FreshDatabase):
    with closing(opened(fresh_database)) as store:
        begin(store)
        write(store, 0, state("acknowledged", 2))
        write(store, 1, state("retrying", 1))

    assert database.execute("SELECT is_complete, completions FROM requests.request").fetchall() == [(True, 1)]
    assert database.execute("SELECT key, payload FROM fabric.control_outbox").fetchall() == [
        ("request-1", b"completed")
    ]


def test_a_completion_number_exists_once(database: psycopg.Connection[Any], fresh_database: FreshDatabase):
    with closing(opened(fresh_database)) as store:
        begin(store)
        write(store, 0, state("acknowledged", 1))
        database.execute("UPDATE requests.request SET is_complete = false, completions = 0")

        with pytest.raises(psycopg.errors.UniqueViolation):
            write(store, 1, state("acknowledged", 2))

    assert database.execute("SELECT count(*) FROM fabric.control_outbox").fetchone() == (1,)
    assert database.execute("SELECT next FROM requests.position").fetchone() == (1,)
