"""From bytes to drafts: what is read, what is kept as it came, what is refused without being repeated."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.contracts.problem import Problem
from waybill.outbox import CommandDraft
from waybill.submission.core.members import MEMBERS, command_schema
from waybill.submission.core.reading import MAX_COMMANDS, Form, read_commands
from waybill.submission.core.verbatim import Slice, read_object, read_objects

COMMAND = {"commandType": "subject.erase", "aggregate": "subject/7", "data": 1}


def read(members: dict[str, Any]) -> CommandDraft | Problem:
    found = read_commands(Form.SINGLE, json.dumps(members).encode())
    return found if isinstance(found, Problem) else found[0]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
spaces = st.sampled_from(["", " ", "\t\n", "\r\n  "])


@settings(max_examples=60, deadline=None)
@given(value=values, is_ascii=st.booleans(), gap=spaces)
def test_the_text_of_the_data_is_cut_out_as_it_stands(value: object, is_ascii: bool, gap: str):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1 if gap else None)

    one = read_object(f'{gap}{{{gap}"a"{gap}:{gap}[1]{gap},"data":{gap}{text}{gap}}}{gap}', "data")
    many = read_objects(f'{{"commands":{gap}[{gap}{{"data":{text}}},{gap}{{}}{gap}]{gap}}}', "commands", "data")

    assert one == {"a": [1], "data": Slice(text)}
    assert many == [{"data": Slice(text)}, {}]


@pytest.mark.parametrize(
    "text",
    ["1.10", "-0", "1e999", "9" * 5000, '"\\u2028<>&\\/"', '{"a":1,"a":2}', "[ 1 ,\n2 ]", '"\\ud800"'],
    ids=lambda text: text[:12],
)
def test_no_number_character_or_repetition_is_touched(text: str):
    assert read_object(f'{{"data":{text}}}', "data") == {"data": Slice(text)}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "1", "{", "{}x", "{} {}", '{"a"}', '{"a":}', '{"a":1,}', "{,}", "{1:2}", '{"a":1 "b":2}', '{"a":NaN}',
        '{"data":-Infinity}', '{"data":01}', '{"data":"\t"}', '{"a":1,"a":1}', '{"data":1,"data":1}', "\ufeff{}", '{"a":' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_what_is_not_one_json_object_is_refused(text: str):
    with pytest.raises(ValueError):
        read_object(text, "data")


@settings(max_examples=60, deadline=None)
@given(body=st.binary() | st.text().map(str.encode) | values.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_read_or_refused(body: bytes):
    for form in Form:
        assert isinstance(read_commands(form, body), tuple | Problem)


def test_what_is_nested_too_deep_is_refused():
    found = read_commands(Form.SINGLE, b'{"data":' + b"[" * 100_000)

    assert isinstance(found, Problem)
    assert found.detail == "the body cannot be read: nested too deep"


def test_every_member_becomes_a_field_of_the_draft():
    told = {
        "commandType": "subject.erase",
        "aggregate": "subject/a/b",
        "dataBase64": "AAE=",
        "contentType": "application/avro",
        "destinations": ["crm", "erp"],
        "optional": ["erp"],
        "ttl": "90s",
        "operationId": "o-1",
        "requestId": "r-1",
        "requestSize": 2,
        "instructionVersion": 2,
        "replaces": "0199F3C0-0000-7000-8000-000000000000",
        "dataSchema": "urn:x:1",
        "capability": "erase",
        "capabilityVersion": 3,
        "legalVersions": "1..2",
        "configVersions": "..9",
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "dataKeyId": "k-1",
    }
    draft = read(told)

    assert isinstance(draft, CommandDraft)
    assert (draft.aggregate_type, draft.aggregate_id, draft.data) == ("subject", "a/b", b"\x00\x01")
    assert (draft.ttl, draft.replaces) == (timedelta(seconds=90), UUID(told["replaces"]))
    assert (draft.destinations, draft.optional) == (("crm", "erp"), ("erp",))
    for name, member in MEMBERS.items():
        if (
            name in told
            and isinstance(told[name], int | str)
            and member.field not in {"aggregate", "data", "ttl", "replaces"}
        ):
            assert getattr(draft, member.field) == told[name]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"urgent": 1}, "unknown_member"),
        ({"aggregate": "subject"}, "malformed_member"),
        ({"aggregate": "subject/7\n"}, "malformed_member"),
        ({"aggregate": "subject/" + "x" * 255}, "malformed_member"),
        ({"aggregate": "subject/\ud800"}, "malformed_member"),
        ({"commandType": "subject.erase\n"}, "malformed_member"),
        ({"commandType": None}, "malformed_member"),
        ({"ttl": "7"}, "malformed_member"),
        ({"requestSize": True}, "malformed_member"),
        ({"requestSize": 1.0}, "malformed_member"),
        ({"requestSize": 0}, "malformed_member"),
        ({"destinations": []}, "malformed_member"),
        ({"destinations": ["crm", 1]}, "malformed_member"),
        ({"dataBase64": "AAE="}, "missing_member"),
        ({"dataRef": "urn:x"}, "missing_member"),
    ],
)
def test_what_is_malformed_is_named_and_not_repeated(change: dict[str, Any], reason: str):
    found = read({**COMMAND, **change})

    assert isinstance(found, Problem)
    assert found.reason == reason
    (value,) = change.values()
    assert str(value) not in found.detail or len(str(value)) < 4


@pytest.mark.parametrize("name", ["commandType", "aggregate", "data"])
def test_what_is_missing_is_named(name: str):
    found = read({key: value for key, value in COMMAND.items() if key != name})

    assert isinstance(found, Problem)
    assert (found.reason, name in found.detail) == ("missing_member", True)


@pytest.mark.parametrize("count", [0, MAX_COMMANDS + 1])
def test_a_batch_is_bounded(count: int):
    found = read_commands(Form.BATCH, json.dumps({"commands": [COMMAND] * count}).encode())

    assert isinstance(found, Problem)


def test_what_is_wrong_in_a_batch_is_placed():
    found = read_commands(Form.BATCH, json.dumps({"commands": [COMMAND, {**COMMAND, "ttl": "x"}]}).encode())

    assert isinstance(found, Problem)
    assert found.detail.startswith("commands[1]: ttl: ")


def test_the_description_names_the_members_that_are_read():
    schema = command_schema()

    assert schema["required"] == ["commandType", "aggregate"]
    assert isinstance(schema["properties"], dict)
    assert set(schema["properties"]) == {"data", *MEMBERS}
