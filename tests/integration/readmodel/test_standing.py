"""What the read model says to a worker: acknowledged, not, not yet, or that nobody folds here."""

import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.contracts.names import state_topic
from waybill.delivery.store import TaskStore
from waybill.kernel.ids import Tenant
from waybill.readmodel.standing import ReadModelStanding
from waybill.readmodel.store import prepare

pytestmark = pytest.mark.postgres
ACME = Tenant("acme")
DONE, OPEN, NEVER = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


@pytest.fixture
async def store(fresh_database: FreshDatabase) -> AsyncIterator[TaskStore]:
    """The worker's own role."""
    found = TaskStore(fresh_database.dsn("waybill_worker"))
    await found.open()
    yield found
    await found.close()


def fold(database: FreshDatabase, *, to: int) -> None:
    """Let the model stand at an offset with one delivery done and one under way."""
    prepare(database.dsn())
    with psycopg.connect(database.dsn(), autocommit=True) as connection:
        for delivery_id, state in ((DONE, "acknowledged"), (OPEN, "retrying")):
            connection.execute(
                "INSERT INTO read.delivery (tenant, delivery_id, command_id, destination, aggregate, sequence, state,"
                " version) VALUES ('acme', %s, %s, 'crm', 'subject/1', 1, %s, 1)",
                (delivery_id, delivery_id, state),
            )
        connection.execute(
            "INSERT INTO read.position (topic, partition, tenant, base, next) VALUES (%s, 2, 'acme', 0, %s)",
            (state_topic(ACME), to),
        )


@pytest.mark.requirement("AT-2", "RS-2")
async def test_what_was_acknowledged_is_known_once_everything_is_folded(
    store: TaskStore, fresh_database: FreshDatabase
) -> None:
    fold(fresh_database, to=7)
    standing = ReadModelStanding(store.run)

    assert list(await standing.acknowledged(ACME, 2, 7, [DONE, OPEN, NEVER]) or ()) == [DONE]
    assert list(await standing.acknowledged(ACME, 2, 5, [OPEN]) or ()) == []
    assert await standing.acknowledged(ACME, 2, 8, [DONE]) is None, "not yet"
    assert await standing.acknowledged(ACME, 1, 0, [DONE]) is None, "nobody began with this partition"


async def test_without_a_read_model_nothing_is_known_to_be_acknowledged(store: TaskStore) -> None:
    assert list(await ReadModelStanding(store.run).acknowledged(ACME, 2, 7, [DONE]) or ()) == []
