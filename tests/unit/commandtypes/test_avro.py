"""Avro data in their two forms, how they are told to break a schema, and which schemas read each other."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.commandtypes.core.avro import MismatchError, decode, encode, from_json, schema_fault, to_json
from waybill.commandtypes.core.avro_resolution import disagreements, unreadable

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "next", "type": ["null", "Line"], "default": None}],
}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "acme",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "count", "type": "int", "default": 1},
            {"name": "price", "type": "double", "default": 0.5},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}, "default": "NEW"},
            {"name": "before", "type": ["null", "State"], "default": None},
            {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}, "default": "ab"},
            {"name": "blob", "type": ["null", "bytes"], "default": None},
            {"name": "lines", "type": {"type": "array", "items": LINE}, "default": []},
            {"name": "tags", "type": {"type": "map", "values": "boolean"}, "default": {}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
            {"name": "worth", "type": ["null", "long", "double"], "default": None},
        ],
    }
)  # fmt: skip


def broken(call: Any, *arguments: Any) -> str:
    with pytest.raises(MismatchError) as caught:
        call(*arguments)
    return str(caught.value.fault)


def test_a_value_becomes_json_and_comes_back_as_the_same_bytes():
    value = {
        "id": 2**62, "state": "OLD", "before": "NEW", "key": b"\xff\x00", "blob": b"\x01",
        "lines": [{"sku": "é\u2028", "next": {"sku": "b"}}], "tags": {"a": True},
        "at": datetime(2026, 1, 1, tzinfo=UTC), "worth": 1.5,
    }  # fmt: skip

    binary = encode(ORDER, value)
    text = to_json(ORDER, binary)

    assert json.loads(text) == {
        "id": 2**62, "count": 1, "price": 0.5, "state": "OLD", "before": "NEW", "key": "/wA=", "blob": "AQ==",
        "lines": [{"sku": "é\u2028", "next": {"sku": "b", "next": None}}], "tags": {"a": True},
        "at": 1767225600000, "worth": 1.5,
    }  # fmt: skip
    assert encode(ORDER, from_json(ORDER, text)) == binary


@given(
    number=st.integers(-(2**63), 2**63 - 1),
    price=st.floats(allow_nan=False, allow_infinity=False),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    blob=st.none() | st.binary(max_size=4),
)
def test_every_value_comes_back_from_its_json(number: int, price: float, names: list[str], blob: bytes | None):
    binary = encode(ORDER, {"id": number, "price": price, "lines": [{"sku": each} for each in names], "blob": blob})

    assert encode(ORDER, from_json(ORDER, to_json(ORDER, binary))) == binary


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "at /id (required)"),
        ('{"id": "hunter2"}', "at /id (long)"),
        ('{"id": 9223372036854775808}', "at /id (long)"),
        ('{"id": 1.5}', "at /id (long)"),
        ('{"id": true}', "at /id (long)"),
        ('{"id": 1, "count": 2147483648}', "at /count (int)"),
        ('{"id": 1, "price": 1e400}', "at /price (double)"),
        ('{"id": 1, "state": "GONE"}', "at /state (enum)"),
        ('{"id": 1, "key": "/w=="}', "at /key (fixed)"),
        ('{"id": 1, "blob": "no base64"}', "at /blob (union)"),
        ('{"id": 1, "lines": [{"sku": "a"}, {"sku": 2}]}', "at /lines/1/sku (string)"),
        ('{"id": 1, "tags": {"hunter2": 2}}', "at /tags/* (boolean)"),
        ('{"id": 1, "hunter2": 2}', "at the top (no other fields)"),
        ('{"id": 1, "id": 2}', "at the top (json)"),
        ("[]", "at the top (record)"),
    ],
)
def test_json_that_breaks_the_schema_is_told_by_place(text: str, expected: str):
    assert broken(from_json, ORDER, text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, "at /id (required)"),
        ({"id": "hunter2"}, "at /id (long)"),
        ({"id": 2**63}, "at /id (long)"),
        ({"id": 1, "lines": [{"sku": 2}]}, "at /lines/0/sku (string)"),
        ({"id": 1, "lines": {"sku": "a"}}, "at /lines (array)"),
        ({"id": 1, "tags": {1: True}}, "at /tags (map)"),
        ({"id": 1, "worth": "x"}, "at /worth (union)"),
        ({"id": 1, "hunter2": 2}, "at the top (no other fields)"),
        (7, "at the top (record)"),
    ],
)
def test_a_value_that_breaks_the_schema_is_told_by_place(value: Any, expected: str):
    assert broken(encode, ORDER, value) == expected


def test_bytes_that_are_not_one_whole_value_are_refused():
    whole = encode(ORDER, {"id": 1})

    assert {broken(decode, ORDER, data) for data in (b"", whole[:-1], whole + b"\0", b"\xff" * 40)} == {
        "at the top (avro)"
    }
    assert broken(to_json, ORDER, encode(ORDER, {"id": 1, "price": float("nan")})) == "at /price (a finite number)"


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        (ORDER, False),
        ('"string"', True),
        ("{", True),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', True),
    ],
)
def test_what_is_no_record_is_no_schema_of_the_catalogue(text: str, is_wrong: bool):
    assert (schema_fault(text) is not None) is is_wrong


def record(*fields: Any, name: str = "A", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


def field(kind: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


AGREE = {
    "the same": (record(field("int")), record(field("int"))),
    "a field with a default": (record(), record(field("int", default=1))),
    "text and bytes": (record(field("string")), record(field("bytes"))),
    "another name, known": (record(field("int")), record(field("int", "g", aliases=["f"], default=1), field("int", default=2))),
    "an enum with a default": (record(field(enum("a", default="a"))), record(field(enum("a", "b", default="a")))),
    "in a circle": (record(field(["null", "A"], default=None)), record(field(["null", "A"], default=None))),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), AGREE.values(), ids=AGREE)
def test_versions_that_read_each_other_pass(old: str, new: str):
    assert disagreements(old, new) == []


DISAGREE = {
    "a field without a default": (record(), record(field("int")), "/f"),
    "one that goes and had none": (record(field("int")), record(), "/f"),
    "wider one way alone": (record(field("int")), record(field("long")), "/f"),
    "a branch more": (record(field(["null", "int"], default=None)), record(field(["null", "int", "string"], default=None)), "/f"),
    "a symbol more": (record(field(enum("a"))), record(field(enum("a", "b"))), "/f"),
    "another meaning": (record(field("long")), record(field({"type": "long", "logicalType": "timestamp-millis"})), "/f"),
    "another name": (record(), record(name="B"), ""),
    "another size": (record(field({"type": "fixed", "name": "F", "size": 2})), record(field({"type": "fixed", "name": "F", "size": 3})), "/f"),
    "deep": (record(field({"type": "array", "items": {"type": "map", "values": "int"}})), record(field({"type": "array", "items": {"type": "map", "values": "string"}})), "/f/*/*"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place"), DISAGREE.values(), ids=DISAGREE)
def test_versions_that_do_not_read_each_other_are_refused_with_the_field(old: str, new: str, place: str):
    assert place in [each.pointer for each in disagreements(old, new)]


def test_a_reader_may_be_wider_than_the_writer():
    assert unreadable(record(field("double")), record(field("int"))) == []
    assert unreadable(record(field("int")), record(field("double"))) != []
