"""What emit writes: every column, the bytes as they came, times and numbers; readable as the command it was."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.contracts.command import CANARY_TYPE, HEADERS, DataForm, parse_command
from waybill.kernel.ids import delivery_id
from waybill.outbox import CommandDraft, Outbox

pytestmark = pytest.mark.postgres

PLUMBING = {"created_day", "position", "route", "payload"}
PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})


def as_header(value: Any) -> bytes | None:
    """Render a column the way the relay's string converter does."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z").encode()
    return (json.dumps(value) if isinstance(value, dict | list) else str(value)).encode()


def stored(outbox: OutboxDatabase) -> list[dict[str, Any]]:
    with outbox.connect("postgres") as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(
            "SELECT * FROM waybill.outbox WHERE tenant = %s ORDER BY position", (outbox.tenant,)
        ).fetchall()


def as_record(row: dict[str, Any]) -> tuple[bytes, list[tuple[str, bytes | None]], bytes]:
    headers = [(field.header, as_header(row[field.column])) for field in HEADERS]
    return row["aggregate"].encode(), headers, row["payload"]


def test_the_outbox_has_the_columns_of_the_command_headers_and_its_plumbing(any_outbox: OutboxDatabase):
    columns = any_outbox.rows(
        "SELECT attname, attnotnull FROM pg_attribute WHERE attrelid = 'waybill.outbox'::regclass AND attnum > 0"
    )

    required = {name for name, is_required in columns if is_required}
    assert {name for name, _ in columns} == {field.column for field in HEADERS} | PLUMBING
    assert required == {field.column for field in HEADERS if field.required} | PLUMBING


def test_an_emitted_command_reads_back_as_the_command_it_was(any_outbox: OutboxDatabase):
    first = uuid.uuid4()
    draft = CommandDraft(
        aggregate_type="subject", aggregate_id="7 ü/8", command_type="subject.erase", data={"id": 7, "name": "Zoë"},
        destinations=("erp", "crm"), optional=("erp",), ttl=timedelta(hours=2), operation_id="op:1", request_id="r-1",
        request_size=3, instruction_version=2, replaces=first, data_schema="https://x.test/s.json", capability="wipe",
        capability_version=4, legal_versions="1.2..3", config_versions="..7",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )  # fmt: skip

    with any_outbox.connect() as connection:
        emitted = Outbox(connection, tenant=any_outbox.tenant).emit(draft)
    command = parse_command(*as_record(stored(any_outbox)[0]))

    assert command.command_id == emitted.command_id
    assert command.aggregate == emitted.aggregate == "subject/7 ü/8"
    assert command.sequences == emitted.sequences == {"crm": 1, "erp": 1}
    assert command.optional_destinations == {"erp"}
    assert (command.tenant, command.config_version) == (any_outbox.tenant, 3)
    assert command.source == f"waybill://{any_outbox.tenant}/shop"
    assert (command.command_type, command.content_type) == ("subject.erase", "application/json")
    assert command.data_schema == "https://x.test/s.json"
    assert (command.operation_id, command.request_id, command.request_size) == ("op:1", "r-1", 3)
    assert (command.instruction_version, command.replaces) == (2, first)
    assert (command.capability, command.capability_version) == ("wipe", 4)
    assert (command.legal_versions, command.config_versions) == ("1.2..3", "..7")
    assert (command.envelope_version, command.data_form) == (1, DataForm.CLEAR)
    assert command.traceparent == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert command.data == '{"id":7,"name":"Zoë"}'.encode()
    assert command.expires_at - command.issued_at == timedelta(hours=2)
    assert (command.issued_at, command.expires_at) == (emitted.issued_at, emitted.expires_at)
    assert emitted.issued_at.microsecond % 1000 == 0


def test_what_a_command_leaves_out_follows_its_route(any_outbox: OutboxDatabase):
    with any_outbox.connect() as connection:
        emitted = Outbox(connection, tenant=any_outbox.tenant).emit(PLAIN)
    command = parse_command(*as_record(stored(any_outbox)[0]))

    assert set(command.sequences) == {"crm", "erp"}
    assert (command.capability, command.capability_version) == ("erase", 2)
    assert command.expires_at - command.issued_at == timedelta(days=7)
    assert command.optional_destinations == frozenset()
    assert emitted.delivery_ids == {name: delivery_id(command.command_id, name) for name in ("crm", "erp")}


def test_a_route_without_a_capability_asks_for_its_command_type(outbox: OutboxDatabase):
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(
            CommandDraft(aggregate_type="order", aggregate_id="1", command_type="order.dispatch", data={})
        )

    assert parse_command(*as_record(stored(outbox)[0])).capability == "order.dispatch"


def test_a_command_with_destinations_and_ttl_needs_no_route(outbox: OutboxDatabase):
    with outbox.connect() as connection:
        emitted = Outbox(connection, tenant=outbox.tenant).emit(
            CommandDraft(
                aggregate_type="order", aggregate_id="1", command_type="order.count", data=[],
                destinations=("crm",), ttl=timedelta(seconds=30),
            )
        )  # fmt: skip

    assert emitted.sequences == {"crm": 1}
    assert emitted.expires_at - emitted.issued_at == timedelta(seconds=30)


@pytest.mark.parametrize(
    "text",
    [
        b'{"price":1.10}',  # a number keeps its digits
        b' { "b" : 1 , "a" : 2 }\n',  # white space and key order stay
        '"\\u0000 \u00e9 \U0001f600"'.encode(),  # escapes and text stay what they were
        b"null",
        b"123456789012345678901234567890",
    ],
)
def test_json_travels_byte_for_byte(any_outbox: OutboxDatabase, text: bytes):
    with any_outbox.connect() as connection:
        connection.execute(
            "SELECT waybill.emit(%s, 'subject', '7', 'subject.erase', %s)", (any_outbox.tenant, text.decode())
        )
        Outbox(connection, tenant=any_outbox.tenant).emit(
            CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data=text)
        )

    assert [row["payload"] for row in stored(any_outbox)] == [text, text]


def test_each_sql_door_takes_its_kind_of_data(any_outbox: OutboxDatabase):
    with any_outbox.connect() as connection:
        for call in (
            """SELECT aggregate FROM waybill.emit(%s, 'subject', '1', 'subject.erase', '{"a": 1}')""",
            """SELECT aggregate FROM waybill.emit(%s, 'subject', '1', 'subject.erase', jsonb_build_object('a', 1))""",
            r"""SELECT aggregate FROM waybill.emit(%s, 'subject', '1', 'subject.erase', '\xff00'::bytea,
                '{"content_type": "application/octet-stream"}')""",
            """SELECT aggregate FROM waybill.emit_many(%s, '[{"aggregate_type": "subject", "aggregate_id": "1",
                "command_type": "subject.erase", "data": {"a": 1}}]')""",
        ):
            assert connection.execute(call, (any_outbox.tenant,)).fetchall() == [("subject/1",)]

    assert [row["payload"] for row in stored(any_outbox)] == [b'{"a": 1}', b'{"a": 1}', b"\xff\x00", b'{"a": 1}']


def test_ids_are_version_7_and_rise(any_outbox: OutboxDatabase):
    with any_outbox.connect() as connection:
        box = Outbox(connection, tenant=any_outbox.tenant)
        ids = [emitted.command_id for _ in range(3) for emitted in (box.emit(PLAIN),)]
        before = connection.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000").fetchone()[0]

    assert [one.version for one in ids] == [7, 7, 7]
    assert {one.variant for one in ids} == {uuid.RFC_4122}
    assert abs((ids[-1].int >> 80) - float(before)) < 60_000
    assert [one.int >> 80 for one in ids] == sorted(one.int >> 80 for one in ids)


def test_rows_lie_in_the_partition_of_their_utc_day(any_outbox: OutboxDatabase):
    with any_outbox.connect(options="-c timezone=Pacific/Kiritimati") as connection:
        Outbox(connection, tenant=any_outbox.tenant).emit(PLAIN)

    rows = any_outbox.rows(
        "SELECT tableoid::regclass::text, created_day = (issued_at AT TIME ZONE 'UTC')::date FROM waybill.outbox"
        " WHERE tenant = %s",
        any_outbox.tenant,
    )
    day = stored(any_outbox)[0]["created_day"]
    assert rows == [(f"waybill.outbox_{day:%Y%m%d}", True)]


@pytest.mark.requirement("DC-6")
def test_two_destinations_and_two_commands_never_share_a_delivery_id(outbox: OutboxDatabase):
    with outbox.connect() as connection:
        emitted = Outbox(connection, tenant=outbox.tenant).emit_many([PLAIN, PLAIN])

    ids = [one for command in emitted for one in command.delivery_ids.values()]
    assert len(set(ids)) == 4


def test_the_canary_goes_to_the_tenants_topic_and_to_nobody(any_outbox: OutboxDatabase):
    with any_outbox.connect() as connection:
        made = connection.execute("SELECT waybill.canary(%s, 'p0')", (any_outbox.tenant,)).fetchone()[0]

    row = stored(any_outbox)[0]
    command = parse_command(*as_record(row))
    assert (command.command_id, command.command_type, command.aggregate) == (made, CANARY_TYPE, "waybill.canary/p0")
    assert (row["route"], command.sequences) == (f"{any_outbox.tenant}.commands", {})


@pytest.mark.requirement("DC-2")
def test_a_correction_leaves_both_versions_readable(outbox: OutboxDatabase):
    with outbox.connect() as connection:
        box = Outbox(connection, tenant=outbox.tenant)
        first = box.emit(PLAIN)
        second = box.emit(
            CommandDraft(
                aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 8},
                instruction_version=2, replaces=first.command_id,
            )
        )  # fmt: skip

    rows = [(row["command_id"], row["instruction_version"], row["replaces"], row["payload"]) for row in stored(outbox)]
    assert rows == [
        (first.command_id, 1, None, b'{"id":7}'),
        (second.command_id, 2, first.command_id, b'{"id":8}'),
    ]
