"""What a producer is refused, in its own transaction, and how: the rule, a word of advice, never the payload."""

import json
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.kernel.errors import RefusedError
from waybill.outbox import CommandDraft, Outbox, Rule
from waybill.outbox.core.rules import SQLSTATES

pytestmark = pytest.mark.postgres

SECRET = "canary-4711"  # in every payload; must be in no error
DIGEST = f"sha256:{'0' * 64}"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def draft(**changes: Any) -> CommandDraft:
    values: dict[str, Any] = {
        "aggregate_type": "subject",
        "aggregate_id": "7",
        "command_type": "subject.erase",
        "data": {"secret": SECRET},
    }
    return CommandDraft(**{**values, **changes})


def refusal(outbox: OutboxDatabase, tenant: str, command: CommandDraft) -> RefusedError:
    with outbox.connect() as connection, pytest.raises(RefusedError) as caught:
        Outbox(connection, tenant=tenant).emit(command)
    return caught.value


def nothing_was_written(outbox: OutboxDatabase) -> bool:
    counts = "SELECT (SELECT count(*) FROM waybill.outbox WHERE tenant = %s), (SELECT count(*) FROM waybill.counter WHERE tenant = %s)"
    return outbox.rows(counts, outbox.tenant, outbox.tenant) == [(0, 0)]


REFUSALS: dict[str, tuple[Rule, dict[str, Any]]] = {
    "tenant nobody provisioned": (Rule.UNKNOWN_TENANT, {"tenant": "nobody"}),
    "tenant that is no name": (Rule.UNKNOWN_TENANT, {"tenant": f"X {SECRET}"}),
    "aggregate type of another outbox": (Rule.FOREIGN_AGGREGATE_TYPE, {"aggregate_type": "invoice"}),
    "aggregate type that is none": (Rule.FOREIGN_AGGREGATE_TYPE, {"aggregate_type": f"Sub ject {SECRET}"}),
    "no route": (Rule.UNKNOWN_ROUTE, {"command_type": "subject.forget"}),
    "no route and only destinations": (Rule.UNKNOWN_ROUTE, {"command_type": "subject.forget", "destinations": ("crm",)}),
    "no route and only a ttl": (Rule.UNKNOWN_ROUTE, {"command_type": "subject.forget", "ttl": timedelta(days=1)}),
    "destination nobody provisioned": (Rule.UNKNOWN_DESTINATION, {"destinations": ("crm", "billing")}),
    "destination that is no name": (Rule.UNKNOWN_DESTINATION, {"destinations": ('crm": 1, "x',)}),
    "payload over the tenant's limit": (Rule.PAYLOAD_TOO_LARGE, {"data": SECRET * 25_000}),
    "form the route does not permit": (Rule.FORM_NOT_PERMITTED, {"command_type": "subject.hold"}),
    "ttl of nothing": (Rule.TTL_OUT_OF_RANGE, {"ttl": timedelta(0)}),
    "ttl in the past": (Rule.TTL_OUT_OF_RANGE, {"ttl": timedelta(seconds=-1)}),
    "ttl beyond what a destination of the route remembers": (Rule.TTL_OUT_OF_RANGE, {"ttl": timedelta(days=9)}),
    "ttl beyond what a named destination remembers": (Rule.TTL_OUT_OF_RANGE, {
        "destinations": ("erp",), "ttl": timedelta(days=8, seconds=1)}),
    "ttl of eleven years": (Rule.TTL_OUT_OF_RANGE, {"ttl": timedelta(days=4015)}),
    "JSON with a second value": (Rule.PAYLOAD_NOT_JSON, {"data": b'{"a":1}{"dataform":"clear"}'}),
    "JSON closed early, to add fields": (Rule.PAYLOAD_NOT_JSON, {"data": b'1,"tenant":"other"'}),
    "JSON with trailing text": (Rule.PAYLOAD_NOT_JSON, {"data": b'{"a":1} x'}),
    "JSON behind a byte order mark": (Rule.PAYLOAD_NOT_JSON, {"data": b"\xef\xbb\xbf{}"}),
    "JSON with a comment": (Rule.PAYLOAD_NOT_JSON, {"data": b"{} // x"}),
    "JSON with NaN": (Rule.PAYLOAD_NOT_JSON, {"data": b"NaN"}),
    "no data at all": (Rule.PAYLOAD_NOT_JSON, {"data": b""}),
    "only white space": (Rule.PAYLOAD_NOT_JSON, {"data": b" \n"}),
    "a NUL byte": (Rule.PAYLOAD_NOT_JSON, {"data": b'"a\x00b"'}),
    "a NUL byte behind JSON": (Rule.PAYLOAD_NOT_JSON, {"data": b"{}\x00"}),
    "invalid UTF-8": (Rule.PAYLOAD_NOT_JSON, {"data": b'"\xff"'}),
    "overlong UTF-8": (Rule.PAYLOAD_NOT_JSON, {"data": b'"\xc0\xaf"'}),
    "a surrogate in UTF-8": (Rule.PAYLOAD_NOT_JSON, {"data": b'"\xed\xa0\x80"'}),
    "UTF-16": (Rule.PAYLOAD_NOT_JSON, {"data": '{"a":1}'.encode("utf-16")}),
    "a control character inside a string": (Rule.PAYLOAD_NOT_JSON, {"data": b'"a\x01b"'}),
    "nested deeper than any reader": (Rule.PAYLOAD_NOT_JSON, {"data": b"[" * 100_000 + b"]" * 100_000}),
    "not JSON under a +json type": (Rule.PAYLOAD_NOT_JSON, {"data": b"x", "content_type": "application/a+json"}),
    "not JSON under a text type": (Rule.PAYLOAD_NOT_JSON, {"data": b"x", "content_type": "text/json; charset=utf-8"}),
    "JSON in capitals": (Rule.MALFORMED_FIELD, {"data": b"x", "content_type": "application/JSON"}),
    "a content type with a line end": (Rule.MALFORMED_FIELD, {"content_type": "application/json\r\nx: y"}),
    "a content type that is none": (Rule.MALFORMED_FIELD, {"content_type": "json"}),
    "a line end in the aggregate": (Rule.MALFORMED_FIELD, {"aggregate_id": "7\nx"}),
    "an escape in the aggregate": (Rule.MALFORMED_FIELD, {"aggregate_id": "7\x1b[2J"}),
    "a C1 control in the aggregate": (Rule.MALFORMED_FIELD, {"aggregate_id": "7\x85"}),
    "a line separator in the aggregate": (Rule.MALFORMED_FIELD, {"aggregate_id": "7\u20288"}),
    "white space at the end of the aggregate": (Rule.MALFORMED_FIELD, {"aggregate_id": "7 "}),
    "an empty aggregate id": (Rule.MALFORMED_FIELD, {"aggregate_id": ""}),
    "an aggregate too long for a key": (Rule.MALFORMED_FIELD, {"aggregate_id": "x" * 248}),
    "an operation id with white space": (Rule.MALFORMED_FIELD, {"operation_id": "a b"}),
    "an operation id outside ASCII": (Rule.MALFORMED_FIELD, {"operation_id": "ä"}),
    "an operation id that is too long": (Rule.MALFORMED_FIELD, {"operation_id": "x" * 201}),
    "an empty operation id": (Rule.MALFORMED_FIELD, {"operation_id": ""}),
    "a request id with a line end": (Rule.MALFORMED_FIELD, {"request_id": "a\n"}),
    "a size without a request": (Rule.MALFORMED_FIELD, {"request_size": 3}),
    "a size of nothing": (Rule.MALFORMED_FIELD, {"request_id": "r", "request_size": 0}),
    "a size beyond 32 bits": (Rule.MALFORMED_FIELD, {"request_id": "r", "request_size": 2**31}),
    "a version without what it replaces": (Rule.MALFORMED_FIELD, {"instruction_version": 2}),
    "a first version that replaces": (Rule.MALFORMED_FIELD, {"replaces": uuid.uuid4()}),
    "a version of nothing": (Rule.MALFORMED_FIELD, {"instruction_version": 0}),
    "a schema that is no URI": (Rule.MALFORMED_FIELD, {"data_schema": "not a uri"}),
    "a capability with a dash in front": (Rule.MALFORMED_FIELD, {"capability": "-x"}),
    "a range with one dot": (Rule.MALFORMED_FIELD, {"legal_versions": "1.2"}),
    "a range with white space": (Rule.MALFORMED_FIELD, {"config_versions": "1 .. 2"}),
    "a trace id of zeros": (Rule.MALFORMED_FIELD, {"traceparent": TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)}),
    "a trace parent with a tail": (Rule.MALFORMED_FIELD, {"traceparent": TRACE + "-x"}),
    "an optional destination that is none of it": (Rule.MALFORMED_FIELD, {"destinations": ("crm",), "optional": ("erp",)}),
    "a reference without a digest": (Rule.MALFORMED_FIELD, {"data": b"", "data_ref": "s3://b/k"}),
    "a digest without a reference": (Rule.MALFORMED_FIELD, {"data": b"", "data_digest": DIGEST}),
    "a reference with data": (Rule.MALFORMED_FIELD, {"data_ref": "s3://b/k", "data_digest": DIGEST}),
    "a digest of another kind": (Rule.MALFORMED_FIELD, {"data": b"", "data_ref": "s3://b/k", "data_digest": "md5:00"}),
    "sealed nothing": (Rule.MALFORMED_FIELD, {"data": b"", "data_key_id": "k1"}),
    "a reserved command type": (Rule.MALFORMED_FIELD, {"command_type": "waybill.canary"}),
    "a fabric event about something else": (Rule.MALFORMED_FIELD, {"command_type": "waybill.delivery.failed"}),
    "a fabric event about what another one is about": (Rule.MALFORMED_FIELD, {
        "aggregate_type": "waybill.destination", "command_type": "waybill.delivery.failed"}),
    "no fabric event about a destination": (Rule.MALFORMED_FIELD, {"aggregate_type": "waybill.destination"}),
    "no fabric event about a delivery": (Rule.MALFORMED_FIELD, {"aggregate_type": "waybill.delivery"}),
    "a command type with white space": (Rule.MALFORMED_FIELD, {
        "command_type": "a b", "destinations": ("crm",), "ttl": timedelta(days=1)}),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "changes"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_its_rule_and_never_shows_the_data(
    shared_outbox: OutboxDatabase, rule: Rule, changes: dict[str, Any]
):
    tenant = changes.get("tenant", shared_outbox.tenant)
    fields = {name: value for name, value in changes.items() if name != "tenant"}

    error = refusal(shared_outbox, tenant, draft(**fields))

    assert error.rule == rule
    below = error.__cause__
    assert isinstance(below, psycopg.Error)
    assert SQLSTATES[below.sqlstate] == below.diag.constraint_name == rule
    shown = " ".join(str(part) for part in (error, below, below.diag.message_detail, below.diag.context))
    assert SECRET not in shown
    assert nothing_was_written(shared_outbox)


@pytest.mark.requirement("GW-8")
def test_a_ttl_is_measured_against_what_each_destination_remembers(shared_outbox: OutboxDatabase):
    refused = refusal(shared_outbox, shared_outbox.tenant, draft(ttl=timedelta(days=9)))
    with shared_outbox.connect() as connection:
        taken = Outbox(connection, tenant=shared_outbox.tenant).emit_many(
            [draft(destinations=("crm",), ttl=timedelta(days=29)), draft(ttl=timedelta(days=8))]
        )
        connection.rollback()

    assert "destination erp" in str(refused)
    assert "691200" in str(refused)
    assert len(taken) == 2


@pytest.mark.system
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b'{"a":1} x', "application/json"),
        (b"{}{}", "application/json"),
        (b'"\xff"', "application/json"),
        (b'"a\x00b"', "application/json"),
        (b"", "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
)
def test_below_16_the_same_is_no_json(outbox15: OutboxDatabase, data: bytes, content_type: str):
    assert refusal(outbox15, outbox15.tenant, draft(data=data, content_type=content_type)).rule == Rule.PAYLOAD_NOT_JSON


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (Rule.UNKNOWN_OPTION, {"ttl": 3}),  # misspelt, it would silently take the route's
        (Rule.UNKNOWN_OPTION, {"command_id": str(uuid.uuid4())}),  # ids are given here
        (Rule.MALFORMED_FIELD, {"ttl_s": "soon"}),
        (Rule.MALFORMED_FIELD, {"operation_id": {"a": 1}}),
        (Rule.MALFORMED_FIELD, {"operation_id": ["a"]}),
        (Rule.MALFORMED_FIELD, {"destinations": "crm"}),
        (Rule.UNKNOWN_DESTINATION, {"destinations": []}),
        (Rule.UNKNOWN_DESTINATION, {"destinations": [None]}),
        (Rule.UNKNOWN_DESTINATION, {"destinations": [{"a": 1}]}),
        (Rule.MALFORMED_FIELD, {"optional": [1]}),
        (Rule.MALFORMED_FIELD, {"request_id": "r", "request_size": 1.5}),
        (Rule.MALFORMED_FIELD, {"replaces": "x"}),
        (Rule.MALFORMED_FIELD, {"data_form": "secret"}),
        (Rule.MALFORMED_FIELD, [1]),
    ],
)
def test_options_of_the_sql_function_are_checked(any_outbox: OutboxDatabase, rule: Rule, options: object):
    with any_outbox.connect() as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(
            "SELECT waybill.emit(%s, 'subject', '7', 'subject.erase', %s, %s::jsonb)",
            (any_outbox.tenant, f'"{SECRET}"', json.dumps(options)),
        )

    assert SQLSTATES.get(caught.value.sqlstate) == rule
    assert SECRET not in f"{caught.value} {caught.value.diag.message_detail} {caught.value.diag.context}"


@pytest.mark.parametrize(
    "commands",
    ['{"a": 1}', "null", "[null]", "[1]", '[{"data": 1, "data_base64": "MQ=="}]', '[{"data_base64": "MQ"}]',
     '[{"data_base64": 7}]', '[{"data_base64": "*"}]'],
)  # fmt: skip
def test_emit_many_takes_nothing_but_commands(shared_outbox: OutboxDatabase, commands: str):
    with shared_outbox.connect() as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute("SELECT waybill.emit_many(%s, %s::jsonb)", (shared_outbox.tenant, commands))

    assert SQLSTATES.get(caught.value.sqlstate) in (Rule.MALFORMED_FIELD, Rule.FOREIGN_AGGREGATE_TYPE)


def test_one_bad_command_refuses_all_of_its_call(shared_outbox: OutboxDatabase):
    with shared_outbox.connect() as connection, pytest.raises(RefusedError):
        Outbox(connection, tenant=shared_outbox.tenant).emit_many([draft(), draft(data=b"x")])

    assert nothing_was_written(shared_outbox)


def test_a_limit_is_each_tenants_own(outbox: OutboxDatabase):
    large = draft(data="x" * 2000)
    outbox.serve("zenith", max_payload_bytes=1000)

    assert refusal(outbox, "zenith", large).rule == Rule.PAYLOAD_TOO_LARGE
    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(large)


def test_a_payload_at_the_limit_passes_and_one_byte_more_does_not(outbox: OutboxDatabase):
    limit = 262_144
    exact = draft(data=b'"' + b"x" * (limit - 2) + b'"')

    with outbox.connect() as connection:
        Outbox(connection, tenant=outbox.tenant).emit(exact)

    assert refusal(outbox, outbox.tenant, draft(data=b'"' + b"x" * (limit - 1) + b'"')).rule == Rule.PAYLOAD_TOO_LARGE


ROW = {
    "created_day": "current_date", "route": "'{tenant}.commands'", "command_id": "gen_random_uuid()", "source": "'waybill://acme/s'",
    "command_type": "'a.b'", "aggregate": "'subject/1'", "issued_at": "date_trunc('milliseconds', now())",
    "content_type": "'application/json'", "tenant": "'{tenant}'", "sequences": """'{"crm": 1}'""",
    "expires_at": "date_trunc('milliseconds', now()) + interval '1 day'", "config_version": "1", "capability": "'a.b'",
    "capability_version": "1", "payload": "'{}'",
}  # fmt: skip
SMUGGLED: dict[str, dict[str, str]] = {
    "a topic that does not exist": {"tenant": "'ghost'", "route": "'ghost.commands'"},
    "another tenant's topic": {"tenant": "'other'"},
    "a route of no tenant": {"route": "'__consumer_offsets'"},
    "an aggregate without an id": {"aggregate": "'subject'"},
    "an aggregate with a control character": {"aggregate": "E'subject/1\\x07'"},
    "no destination": {"sequences": "'{}'"},
    "a canary with a destination": {"command_type": "'waybill.canary'"},
    "a list for sequences": {"sequences": "'[1]'"},
    "number zero": {"sequences": """'{"crm": 0}'"""},
    "a negative number": {"sequences": """'{"crm": -1}'"""},
    "a fraction": {"sequences": """'{"crm": 1.0}'"""},
    "a number beyond 32 bits": {"sequences": """'{"crm": 2147483648}'"""},
    "a number as text": {"sequences": """'{"crm": "1"}'"""},
    "a nested map": {"sequences": """'{"crm": {"a": 1}}'"""},
    "a destination in capitals": {"sequences": """'{"CRM": 1}'"""},
    "an optional one that is none": {"optional_destinations": """'["erp"]'"""},
    "microseconds": {"issued_at": "date_trunc('milliseconds', now()) + interval '1 microsecond'"},
    "expired before issued": {"expires_at": "now() - interval '1 day'"},
    "another envelope version": {"envelope_version": "2"},
    "another CloudEvents version": {"spec_version": "'0.3'"},
    "a source that is no URI": {"source": "'shop'"},
    "two JSON values": {"payload": "'{}{}'"},
    "sealed without a key": {"data_form": "'sealed'"},
    "a key without a seal": {"data_key_id": "'k'"},
    "an unknown form": {"data_form": "'secret'"},
    "a megabyte": {"payload": "convert_to('\"' || repeat('x', 921600) || '\"', 'UTF8')"},
    "a null payload, a tombstone": {"payload": "NULL"},
}  # fmt: skip


def insert_statement(tenant: str, changes: dict[str, str]) -> str:
    row = {name: value.replace("{tenant}", tenant) for name, value in {**ROW, **changes}.items()}
    return f"INSERT INTO waybill.outbox ({', '.join(row)}) VALUES ({', '.join(row.values())})"


@pytest.mark.parametrize("changes", SMUGGLED.values(), ids=SMUGGLED)
def test_not_even_the_owner_inserts_a_row_that_could_not_be_produced(
    shared_outbox: OutboxDatabase, changes: dict[str, Any]
):
    with pytest.raises(psycopg.Error) as caught:
        shared_outbox.rows(insert_statement(shared_outbox.tenant, changes))

    assert caught.value.sqlstate in {*SQLSTATES, "23514", "23503", "23502"}, caught.value


def test_the_owners_row_without_such_a_fault_goes_in(outbox: OutboxDatabase):
    outbox.rows(insert_statement(outbox.tenant, {}))

    assert outbox.rows("SELECT aggregate FROM waybill.outbox WHERE tenant = %s", outbox.tenant) == [("subject/1",)]
