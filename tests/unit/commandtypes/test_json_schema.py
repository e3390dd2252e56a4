"""What is a schema of the catalogue, and how data are told that they break one."""

import json
from typing import Any

import pytest

from waybill.commandtypes.core.json_schema import Fault, data_fault, schema_faults

SUBJECT: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": {"type": "integer"},
    "properties": {
        "id": {"type": "integer"},
        "mail": {"type": "string", "pattern": "@"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "a/b": {"const": 1},
        "never": False,
    },
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}


def fault(data: str, schema: dict[str, Any] = SUBJECT) -> Fault | None:
    return data_fault(json.dumps(schema), data.encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"id": 7}', None),
        ('{"id": 7.0, "lines": [{"sku": "x"}]}', None),
        # the place, spelled with names of the schema only
        ("{}", Fault("/id", "required")),
        ('{"id": "7"}', Fault("/id", "type")),
        ('{"id": 7, "mail": "nobody"}', Fault("/mail", "pattern")),
        ('{"id": 7, "lines": [{"sku": "x"}, {}]}', Fault("/lines/1/sku", "required")),
        ('{"id": 7, "a/b": 2}', Fault("/a~1b", "const")),
        ('{"id": 7, "never": 1}', Fault("", "false")),
        ("7", Fault("", "type")),
        # a member's name is data where the schema does not know it
        ('{"id": 7, "ann@example.test": "x"}', Fault("/*", "type")),
        # what readers could read in two ways is none
        ('{"id": 7, "id": "x"}', Fault("", "json")),
        ('{"id": NaN}', Fault("", "json")),
        ('{"id": 7} {}', Fault("", "json")),
        ("", Fault("", "json")),
        ("[" * 100_000, Fault("", "nesting")),
        # more digits than Python converts
        ('{"id": 7, "mail": ' + "9" * 5000 + "}", Fault("/mail", "type")),
    ],
)
def test_data_are_told_where_and_by_what_they_break_the_schema(data: str, expected: Fault | None):
    assert fault(data) == expected


def test_what_is_told_holds_nothing_of_the_data():
    secret = "hunter2"
    texts = [
        f'{{"id": "{secret}"}}',
        f'{{"id": 7, "{secret}": "{secret}"}}',
        f'{{"id": 7, "mail": "{secret}"}}',
        secret,
    ]

    assert not [text for text in texts if secret in str(fault(text))]


def test_a_schema_that_never_comes_to_an_end_is_broken_by_everything():
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}

    assert fault("1", endless) == Fault("", "nesting")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (SUBJECT, []),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "x-team": "crm", "$ref": "#"}, []),
        ({"properties": {"const": {"type": "string"}, "$ref": {"enum": [{"$ref": "a"}]}}}, []),
        ({"type": "strin"}, [Fault("/type", "anyOf")]),
        (True, [Fault("", "type")]),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, [Fault("/$schema", "$schema")]),
        # a misspelt keyword would check nothing
        ({"properties": {"id": {"requird": ["a"]}}}, [Fault("/properties/id/requird", "unknown keyword")]),
        ({"$id": "https://a.test/x"}, [Fault("/$id", "unknown keyword")]),
        # nothing is fetched, nothing outside $defs is referred to
        ({"items": {"$ref": "https://a.test/x"}}, [Fault("/items/$ref", "$ref")]),
        ({"items": {"$ref": "#/$defs/gone"}}, [Fault("/items/$ref", "$ref")]),
        ({"items": {"$ref": "#/properties/a"}, "properties": {"a": {}}}, [Fault("/items/$ref", "$ref")]),
        ({"anyOf": [{}, {"pattern": "("}]}, [Fault("/anyOf/1/pattern", "format")]),
        ({"patternProperties": {"(": {}}}, [Fault("/patternProperties", "format")]),
    ],
)  # fmt: skip
def test_what_is_no_schema_of_the_catalogue_is_told(schema: Any, expected: list[Fault]):
    assert schema_faults(schema) == expected
