"""Data against the catalogue, before they are in the outbox: by the SDK whole, by the database as far as it can see."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase, outbox_settings

from waybill.contracts.fabric import Rendering, SchemaFormat
from waybill.crypto.keys import Algorithm, new_key
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Tenant
from waybill.outbox import AsyncOutbox, CommandDraft, Outbox, Rule
from waybill.outbox.core.rules import SQLSTATES
from waybill.outbox.core.settings import TypeSchema
from waybill.outbox.provision import read, sync

pytestmark = pytest.mark.postgres

SCHEMA = '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}'
ERASE = "subject.erase"
TYPES = tuple(
    TypeSchema(command_type=ERASE, version=version, format=SchemaFormat.JSON_SCHEMA, schema=schema)
    for version, schema in (("v1.0", SCHEMA), ("v1.2", SCHEMA), ("v1.10", SCHEMA), ("v2.0", '{"type": "array"}'))
)
RIGHT = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type=ERASE, data={"id": 7})
WRONG = replace(RIGHT, data={"id": "hunter2"})


@pytest.fixture
def catalogued(any_outbox: OutboxDatabase) -> OutboxDatabase:
    """The outbox, with a catalogue for the tenant."""
    any_outbox.serve(any_outbox.tenant, types=TYPES)
    return any_outbox


@pytest.fixture
def owner(outbox: OutboxDatabase) -> Iterator[psycopg.Connection[Any]]:
    with closing(outbox.connect("postgres", autocommit=True)) as connection:
        yield connection


def uri(outbox: OutboxDatabase, version: str) -> str:
    return f"waybill://{outbox.tenant}/types/{ERASE}/{version}"


def named(outbox: OutboxDatabase) -> list[str | None]:
    query = "SELECT data_schema FROM waybill.outbox WHERE tenant = %s ORDER BY position"
    return [row[0] for row in outbox.rows(query, outbox.tenant)]


def refused(outbox: OutboxDatabase, *drafts: CommandDraft) -> RefusedError:
    with outbox.connect() as connection, pytest.raises(RefusedError) as caught:
        Outbox(connection, tenant=outbox.tenant).emit_many(drafts)
    return caught.value


def test_data_that_break_their_schema_are_refused_and_not_told(catalogued: OutboxDatabase):
    alone, among_others = refused(catalogued, WRONG), refused(catalogued, RIGHT, WRONG)

    assert (alone.rule, among_others.rule) == (Rule.PAYLOAD_INVALID, Rule.PAYLOAD_INVALID)
    assert str(alone) == f"the data break the schema of {ERASE} v1.10 at /id (type)"
    assert str(among_others).startswith("command 2 of 2: the data break")
    assert "hunter2" not in str(alone) + str(among_others)
    assert named(catalogued) == []


def test_data_that_keep_it_name_the_version_they_were_held_against(catalogued: OutboxDatabase):
    own = replace(RIGHT, data_schema="https://acme.test/erase")
    later = replace(RIGHT, data=[], data_schema=uri(catalogued, "v2.0"))

    with catalogued.connect() as connection:
        Outbox(connection, tenant=catalogued.tenant).emit_many([RIGHT, own, later])

    assert named(catalogued) == [uri(catalogued, "v1.10"), own.data_schema, later.data_schema]


async def test_the_same_holds_for_asynchronous_connections(outbox: OutboxDatabase):
    outbox.serve(outbox.tenant, types=TYPES)

    async with await psycopg.AsyncConnection.connect(outbox.dsn("waybill_app")) as connection:
        box = AsyncOutbox(connection, tenant=outbox.tenant)
        with pytest.raises(RefusedError) as caught:
            await box.emit(WRONG)
        await box.emit(RIGHT)

    assert caught.value.rule == Rule.PAYLOAD_INVALID
    assert named(outbox) == [uri(outbox, "v1.10")]


def test_what_is_sealed_is_held_against_the_schema_before(outbox: OutboxDatabase):
    outbox.serve(outbox.tenant, types=TYPES)
    key = new_key(Algorithm.AES_256_GCM, Tenant(outbox.tenant), datetime(2026, 1, 1, tzinfo=UTC))

    found = refused(outbox, replace(WRONG, seal_with=key))
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(replace(RIGHT, seal_with=key))

    assert found.rule == Rule.PAYLOAD_INVALID
    assert named(outbox) == [uri(outbox, "v1.10")]


def test_what_nobody_can_look_at_passes_without_a_version(outbox: OutboxDatabase):
    outbox.serve(outbox.tenant, types=TYPES)
    elsewhere = {"data_ref": "s3://bucket/7", "data_digest": "sha256:" + "0" * 64}

    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit_many(
            [replace(RIGHT, data=b"", **elsewhere), replace(RIGHT, data=b"sealed", data_key_id="k1")]
        )

    assert named(outbox) == [None, None]


def test_a_type_without_an_entry_carries_anything(catalogued: OutboxDatabase):
    with catalogued.connect() as connection:
        Outbox(connection, tenant=catalogued.tenant).emit(
            replace(RIGHT, command_type="order.dispatch", data=b"x", content_type="text/plain")
        )

    assert named(catalogued) == [None]


@pytest.mark.parametrize(
    ("options", "data", "rule"),
    [
        ({"data_schema": "v9.0"}, "{}", Rule.UNKNOWN_TYPE_VERSION),
        ({"content_type": "text/plain"}, "{}", Rule.PAYLOAD_INVALID),
        ({"data_schema": "v2.0"}, '{"id": "7"}', None),  # the data are not looked at
        ({"content_type": "text/plain", "data_form": "sealed", "data_key_id": "k1"}, "x", None),
    ],
)
def test_the_database_refuses_what_it_can_see(
    catalogued: OutboxDatabase, options: dict[str, str], data: str, rule: Rule | None
):
    if "data_schema" in options:
        options = {**options, "data_schema": uri(catalogued, options["data_schema"])}
    query = "SELECT command_id FROM waybill.emit(%s, 'subject', '7', %s, %s::text, %s::jsonb)"
    with catalogued.connect() as connection:
        try:
            connection.execute(query, (catalogued.tenant, ERASE, data, psycopg.types.json.Json(options)))
            found = None
        except psycopg.DatabaseError as error:
            found = SQLSTATES.get(error.sqlstate or "")

    assert found == rule


def test_what_is_applied_is_what_an_outbox_knows(outbox: OutboxDatabase, owner: psycopg.Connection[Any]):
    rows = "SELECT ctid::text, xmin::text FROM waybill.type_version WHERE tenant = %s"
    settings = outbox_settings(outbox.tenant, version=4, types=TYPES)

    sync(owner, "waybill", settings)
    before = outbox.rows(rows, outbox.tenant)
    sync(owner, "waybill", settings)
    known = read(owner, "waybill", outbox.tenant)
    sync(owner, "waybill", replace(settings, types=TYPES[:1]))
    less = read(owner, "waybill", outbox.tenant)

    assert known is not None
    assert less is not None
    assert (known.types, less.types) == (TYPES, TYPES[:1])
    assert len(before) == len(TYPES)
    assert outbox.rows(rows, outbox.tenant) == [row for row in before if row == before[0]]


SHIP = (
    '{"type": "record", "name": "Ship", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "note", "type": ["null", "string"], "default": null}]}'
)
AVRO = (TypeSchema(command_type="order.dispatch", version="v1.0", format=SchemaFormat.AVRO, schema=SHIP),)
DISPATCH = CommandDraft(aggregate_type="order", aggregate_id="7", command_type="order.dispatch", data={"id": 7})


@pytest.mark.parametrize(
    ("rendering", "stored"),
    [
        (Rendering.AVRO, ("application/avro", b"\x0e\x00")),
        (Rendering.JSON, ("application/json", b'{"id":7,"note":null}')),
    ],
)
def test_avro_data_are_stored_in_the_form_their_route_wants(
    any_outbox: OutboxDatabase, rendering: Rendering, stored: tuple[str, bytes]
):
    routes = tuple(replace(each, rendering=rendering) for each in outbox_settings(any_outbox.tenant).routes)
    any_outbox.serve(any_outbox.tenant, types=AVRO, routes=routes)

    with any_outbox.connect() as connection:
        Outbox(connection, tenant=any_outbox.tenant).emit(DISPATCH)
    refusal = refused(any_outbox, replace(DISPATCH, data={"id": "hunter2"}))

    rows = any_outbox.rows(
        "SELECT content_type, payload, data_schema FROM waybill.outbox WHERE tenant = %s", any_outbox.tenant
    )
    assert rows == [(*stored, f"waybill://{any_outbox.tenant}/types/order.dispatch/v1.0")]
    assert str(refusal) == "the data break the schema of order.dispatch v1.0 at /id (long)"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"content_type": "application/avro"}, Rule.UNKNOWN_TYPE_VERSION),
        ({"content_type": "application/avro", "data_schema": "v9.0"}, Rule.UNKNOWN_TYPE_VERSION),
        ({"content_type": "application/avro", "data_schema": "v1.0"}, None),
        ({"content_type": "text/plain"}, Rule.PAYLOAD_INVALID),
    ],
)
def test_the_database_takes_avro_data_that_name_their_version(
    any_outbox: OutboxDatabase, options: dict[str, str], rule: Rule | None
):
    any_outbox.serve(any_outbox.tenant, types=AVRO)
    base = f"waybill://{any_outbox.tenant}/types/order.dispatch/"
    if "data_schema" in options:
        options = {**options, "data_schema": base + options["data_schema"]}
    query = "SELECT command_id FROM waybill.emit(%s, 'order', '7', 'order.dispatch', %s::bytea, %s::jsonb)"
    with any_outbox.connect() as connection:
        try:
            connection.execute(query, (any_outbox.tenant, b"\x0e\x00", psycopg.types.json.Json(options)))
            found = None
        except psycopg.DatabaseError as error:
            found = SQLSTATES.get(error.sqlstate or "")

    assert found == rule


def test_the_application_asks_for_schemas_and_reads_no_table(outbox: OutboxDatabase):
    outbox.serve(outbox.tenant, types=TYPES)
    with outbox.connect() as connection:
        found = connection.execute(
            "SELECT version FROM waybill.type_versions(%s, %s::jsonb)", (outbox.tenant, f'["{ERASE}"]')
        ).fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM waybill.type_version")

    assert {row[0] for row in found} == {each.version for each in TYPES}
