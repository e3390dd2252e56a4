"""The SDK joins the caller's transaction, whatever library opened it, and refuses to make one of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from fixtures.fix_outbox import OutboxDatabase
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

from waybill.crypto.keys import Algorithm, new_key
from waybill.crypto.sealing import SealBinding, SealingKeys, seal, unseal
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import Aggregate, Tenant
from waybill.outbox import AsyncOutbox, CommandDraft, Outbox, Rule

pytestmark = pytest.mark.postgres

PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})
NOT_JSON = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data=b"x")


def issued(outbox: OutboxDatabase) -> int:
    return int(outbox.rows("SELECT count(*) FROM waybill.outbox WHERE tenant = %s", outbox.tenant)[0][0])


def url(outbox: OutboxDatabase) -> str:
    return outbox.dsn("waybill_app").replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def engine(outbox: OutboxDatabase, **settings: Any) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(url(outbox), poolclass=sqlalchemy.NullPool, **settings)
    yield made
    made.dispose()


@contextmanager
def django_connection(outbox: OutboxDatabase) -> Iterator[Any]:
    from django.db import connections
    from django.db.utils import ConnectionHandler

    parts = conninfo_to_dict(outbox.dsn("waybill_app"))
    handler = ConnectionHandler(
        {"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts["user"],
            "PASSWORD": parts.get("password") or "", "HOST": parts["host"], "PORT": parts["port"],
        }}
    )  # fmt: skip
    connection = handler["default"]
    connection.alias = "outbox_test"
    connections["outbox_test"] = connection
    yield connection
    connection.close()
    del connections["outbox_test"]


@pytest.fixture(scope="module", autouse=True)
def django_settings() -> None:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True, INSTALLED_APPS=[])
        django.setup()


def test_collected_commands_are_sent_when_the_block_ends_and_commit_with_the_caller(outbox: OutboxDatabase):
    with closing(outbox.connect()) as connection:
        with Outbox(connection, tenant=outbox.tenant).collect() as box:
            places = [box.emit(PLAIN), box.emit(PLAIN)]
            assert box.emitted == []
        assert [box.emitted[place].sequences["crm"] for place in places] == [1, 2]
        assert issued(outbox) == 0
        connection.commit()

    assert issued(outbox) == 2


@pytest.mark.requirement("DC-4")
def test_what_the_caller_rolls_back_was_never_emitted(outbox: OutboxDatabase):
    with closing(outbox.connect()) as connection:
        with Outbox(connection, tenant=outbox.tenant).collect() as box:
            box.emit(PLAIN)
        connection.rollback()

    assert issued(outbox) == 0


def test_a_block_that_raises_sends_nothing(outbox: OutboxDatabase):
    def change_and_fail(connection: psycopg.Connection[Any]) -> None:
        with Outbox(connection, tenant=outbox.tenant).collect() as box:
            box.emit(PLAIN)
            raise ZeroDivisionError

    with closing(outbox.connect()) as connection:
        with pytest.raises(ZeroDivisionError):
            change_and_fail(connection)
        connection.commit()

    assert issued(outbox) == 0


def test_an_empty_block_sends_nothing(outbox: OutboxDatabase):
    with closing(outbox.connect()) as connection, Outbox(connection, tenant=outbox.tenant).collect() as box:
        pass

    assert box.emitted == []


def test_psycopg_in_autocommit_is_refused_unless_a_transaction_is_open(outbox: OutboxDatabase):
    with closing(outbox.connect(autocommit=True)) as connection:
        sdk = Outbox(connection, tenant=outbox.tenant)
        with pytest.raises(ConfigError, match="autocommit"):
            sdk.emit(PLAIN)
        with pytest.raises(ConfigError, match="autocommit"), sdk.collect():
            pass
        with connection.transaction():
            sdk.emit(PLAIN)

    assert issued(outbox) == 1


def test_psycopg_rows_of_another_shape_do_not_matter(outbox: OutboxDatabase):
    with closing(outbox.connect(row_factory=psycopg.rows.dict_row)) as connection:
        emitted = Outbox(connection, tenant=outbox.tenant).emit(PLAIN)

    assert emitted.aggregate == "subject/7"


async def test_asynchronous_psycopg_does_the_same(outbox: OutboxDatabase):
    async with await psycopg.AsyncConnection.connect(outbox.dsn("waybill_app")) as connection:
        async with AsyncOutbox(connection, tenant=outbox.tenant).collect() as box:
            box.emit(PLAIN)
        assert box.emitted[0].sequences == {"crm": 1, "erp": 1}
    async with await psycopg.AsyncConnection.connect(outbox.dsn("waybill_app"), autocommit=True) as connection:
        with pytest.raises(ConfigError, match="autocommit"):
            await AsyncOutbox(connection, tenant=outbox.tenant).emit(PLAIN)
        with pytest.raises(RefusedError) as refused:
            async with connection.transaction():
                await AsyncOutbox(connection, tenant=outbox.tenant).emit(NOT_JSON)

    assert refused.value.rule == Rule.PAYLOAD_NOT_JSON
    assert issued(outbox) == 1


def test_a_sqlalchemy_session_does_the_same(outbox: OutboxDatabase):
    with engine(outbox) as made:
        with Session(made) as session, session.begin(), Outbox(session, tenant=outbox.tenant).collect() as box:
            box.emit(PLAIN)
        with made.begin() as connection:
            assert Outbox(connection, tenant=outbox.tenant).emit(PLAIN).sequences == {"crm": 2, "erp": 2}
        with Session(made) as session, pytest.raises(RefusedError) as refused:
            Outbox(session, tenant=outbox.tenant).emit(NOT_JSON)

    assert box.emitted[0].sequences == {"crm": 1, "erp": 1}
    assert refused.value.rule == Rule.PAYLOAD_NOT_JSON
    assert issued(outbox) == 2


def test_a_sqlalchemy_engine_in_autocommit_is_refused(outbox: OutboxDatabase):
    with (
        engine(outbox, isolation_level="AUTOCOMMIT") as made,
        Session(made) as session,
        pytest.raises(ConfigError, match="autocommit"),
    ):
        Outbox(session, tenant=outbox.tenant).emit(PLAIN)

    assert issued(outbox) == 0


def test_a_django_connection_does_the_same(outbox: OutboxDatabase):
    from django.db import transaction

    with django_connection(outbox) as connection:
        sdk = Outbox(connection, tenant=outbox.tenant)
        with pytest.raises(ConfigError, match="atomic"):
            sdk.emit(PLAIN)
        with transaction.atomic(using="outbox_test"), sdk.collect() as box:
            box.emit(PLAIN)
        with pytest.raises(RefusedError) as refused, transaction.atomic(using="outbox_test"):
            sdk.emit(NOT_JSON)

    assert box.emitted[0].sequences == {"crm": 1, "erp": 1}
    assert refused.value.rule == Rule.PAYLOAD_NOT_JSON
    assert issued(outbox) == 1


def test_the_wrong_kind_of_connection_is_named():
    with pytest.raises(ConfigError, match="neither a psycopg"):
        Outbox(object(), tenant="acme")
    with pytest.raises(ConfigError, match="use Outbox"):
        AsyncOutbox(object(), tenant="acme")


async def test_an_asynchronous_connection_is_sent_to_the_asynchronous_outbox(outbox: OutboxDatabase):
    async with await psycopg.AsyncConnection.connect(outbox.dsn("waybill_app")) as connection:
        with pytest.raises(ConfigError, match="AsyncOutbox"):
            Outbox(connection, tenant=outbox.tenant)


def test_the_databases_own_errors_pass_unchanged(outbox: OutboxDatabase):
    with closing(outbox.connect("waybill_relay")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        Outbox(connection, tenant=outbox.tenant).emit(PLAIN)


def test_data_sealed_at_emit_open_for_this_command_only(outbox: OutboxDatabase):
    key = new_key(Algorithm.AES_256_GCM, Tenant(outbox.tenant), datetime.now(UTC))
    draft = CommandDraft(
        aggregate_type="subject", aggregate_id="7", command_type="subject.hold", data={"id": 7}, seal_with=key
    )

    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(draft)

    query = "SELECT data_form, data_key_id, content_type, payload FROM waybill.outbox WHERE tenant = %s"
    form, key_id, content_type, payload = outbox.rows(query, outbox.tenant)[0]
    binding = SealBinding(tenant=Tenant(outbox.tenant), aggregate=Aggregate("subject/7"), command_type="subject.hold")
    assert (form, key_id, content_type) == ("sealed", key.key_id, "application/json")
    assert unseal(SealingKeys([key]), bytes(payload), binding) == b'{"id":7}'


def test_data_the_producer_sealed_itself_travel_as_they_are(outbox: OutboxDatabase):
    key = new_key(Algorithm.AES_256_GCM, Tenant(outbox.tenant), datetime.now(UTC))
    binding = SealBinding(tenant=Tenant(outbox.tenant), aggregate=Aggregate("subject/7"), command_type="subject.hold")
    sealed = seal(key, b"{}", binding)
    draft = CommandDraft(
        aggregate_type="subject", aggregate_id="7", command_type="subject.hold", data=sealed, data_key_id=key.key_id
    )

    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(draft)

    assert outbox.rows("SELECT payload FROM waybill.outbox WHERE tenant = %s", outbox.tenant) == [(sealed,)]


def test_a_reference_carries_no_data(outbox: OutboxDatabase):
    digest = f"sha256:{'ab' * 32}"
    draft = CommandDraft(
        aggregate_type="subject",
        aggregate_id="7",
        command_type="subject.hold",
        data_ref="s3://bucket/key",
        data_digest=digest,
    )

    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(draft)

    query = "SELECT data_form, data_ref, data_digest, payload FROM waybill.outbox WHERE tenant = %s"
    assert outbox.rows(query, outbox.tenant) == [("reference", "s3://bucket/key", digest, b"")]


def test_the_sdk_loads_no_kafka_http_or_command_line_library(tmp_path: Path):
    program = (
        "import sys, waybill.outbox; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'confluent_kafka', 'fastavro', 'pyreqwest', 'starlette', 'typer', 'rich', 'sqlalchemy', 'django', 'yaml'}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip

    assert done.stdout.strip() == "[]"
