"""The rules of schema files, each broken once."""

import json
from typing import Any

import pytest

from waybill.catalog import load_schemas
from waybill.catalog.core.avro_lint import lint_schema
from waybill.infra.registry import canonical_schema


def schema(**changed: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Thing",
        "namespace": "waybill",
        "doc": "One thing that happened. [pii: none]",
        "fields": [
            {"name": "id", "type": "string", "doc": "Identity of the thing. [pii: pseudonym]"},
            {"name": "size", "type": "long", "doc": "Length in bytes. [pii: none]"},
            {
                "name": "note",
                "type": ["null", "string"],
                "default": None,
                "doc": "What somebody said about it. [pii: personal]",
            },
        ],
    } | changed


def faults(document: dict[str, Any], file: str = "avro/Thing.avsc") -> list[str]:
    return [str(fault) for fault in lint_schema(json.dumps(document, indent=2), file)]


def with_field(**field: Any) -> dict[str, Any]:
    return schema(fields=[{"name": "x", "type": "string", "doc": "Some text here. [pii: none]"} | field])


def test_a_good_schema_has_no_fault() -> None:
    assert faults(schema()) == []


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        (with_field(doc=""), "Thing.x", "a doc that ends in [pii:"),
        (with_field(doc="Some text here."), "Thing.x", "a doc that ends in [pii:"),
        # a class nobody defined
        (with_field(doc="Some text here. [pii: maybe]"), "Thing.x", "a doc that ends in [pii:"),
        (with_field(doc="[pii: none]"), "Thing.x", "a doc that says what it means"),
        # a number without a unit
        (with_field(type="int", doc="Some text here. [pii: none]"), "Thing.x", "a doc that names the unit"),
        (
            with_field(type={"type": "long", "logicalType": "timestamp-millis"}),
            "Thing.x",
            "a doc that names the unit",
        ),
        (with_field(type=["string", "null"]), "Thing.x", '"null" as the first branch'),
        (with_field(type=["null", "string"]), "Thing.x", '"null" as the first branch'),
        # an enum inside a field has a doc of its own
        (with_field(type={"type": "enum", "name": "Kind", "symbols": ["a"]}), "Thing.x.Kind", "a doc that ends"),
        (schema(name="Other"), "Thing", '"name": "Thing"'),
        (schema(namespace="else"), "Thing", '"namespace": "waybill"'),
        (schema(doc="x"), "Thing", "a doc that ends"),
    ],
)
def test_each_rule_is_named_with_its_place(document: dict[str, Any], path: str, expected: str) -> None:
    found = faults(document)

    assert len(found) == 1
    assert f": {path}: expected {expected}" in found[0]


def test_a_fault_points_to_the_line_of_its_field() -> None:
    text = json.dumps(schema(), indent=2).replace("Length in bytes. [pii: none]", "Length of it. [pii: none]")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if '"size"' in row)

    assert [fault.line for fault in lint_schema(text, "avro/Thing.avsc")] == [line]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{\n  broken", "avro/Thing.avsc:2: Thing: expected JSON"),
        ('"string"', "expected one record"),
        ('{"type": "record", "name": "Thing", "fields": [{"name": "x", "type": "nope"}]}', "expected an Avro schema"),
    ],
)
def test_what_is_no_schema_says_so(text: str, expected: str) -> None:
    assert expected in str(lint_schema(text, "avro/Thing.avsc")[0])


def test_the_shipped_schemas_pass() -> None:
    assert {file.subject for file in load_schemas()} >= {"waybill.TaskState", "waybill.Outcome", "waybill.DeadLetter"}


def test_a_canonical_schema_does_not_depend_on_the_order_of_keys_or_white_space() -> None:
    document = schema()
    turned = {key: document[key] for key in reversed(list(document))}
    turned["fields"] = [{key: field[key] for key in reversed(list(field))} for field in document["fields"]]

    assert canonical_schema(json.dumps(turned, indent=4)) == canonical_schema(json.dumps(document))
    assert json.loads(canonical_schema(json.dumps(document))) == document
