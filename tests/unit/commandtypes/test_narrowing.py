"""A new version of a schema: what passes accepts all that the old one accepted, and what is refused is named."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from waybill.commandtypes.core.narrowing import narrowings

CLOSED = {"type": "object", "additionalProperties": False}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": properties}


WIDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same": (closed(a={"type": "string"}), closed(a={"type": "string"})),
    "notes": ({"title": "a", "format": "email"}, {"description": "b", "default": 1, "examples": [2]}),
    "a member that could not come": (closed(a={}), closed(a={}, b={"type": "string"})),
    "a member whose kind was said": (
        {"additionalProperties": {"type": "integer"}},
        {"additionalProperties": {"type": "integer"}, "properties": {"a": {"type": "number"}}},
    ),
    "less is required": ({"required": ["a", "b"]}, {"required": ["a"]}),
    "more types": ({"type": "integer"}, {"type": ["number", "null"]}),
    "more values": ({"enum": [1, 2]}, {"enum": [2, 3, 1]}),
    "a constant among values": ({"const": "a"}, {"enum": ["a", "b"]}),
    "wider bounds": ({"maxLength": 5, "minimum": 3}, {"maxLength": 9, "minimum": 2.5}),
    "a bound that bounds nothing": ({}, {"minLength": 0}),
    "opened": (closed(a={"type": "string"}), {"type": "object"}),
    "a rule less": ({"anyOf": [{"type": "string"}], "pattern": "x"}, {}),
    "followed": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "maximum": 3}}},
        {"$ref": "#/$defs/b", "$defs": {"b": {"type": "integer", "maximum": 4}}},
    ),
    "in a circle": (
        {"properties": {"next": {"$ref": "#"}, "size": {"maximum": 1}}},
        {"properties": {"next": {"$ref": "#"}, "size": {"maximum": 2}}},
    ),
    "items": ({"items": {"maxLength": 1}}, {"items": {"maxLength": 2}}),
    "nothing was accepted": ({"properties": {"a": False}}, {"properties": {"a": {"type": "string"}}}),
}


@pytest.mark.parametrize(("old", "new"), WIDER.values(), ids=WIDER)
def test_a_schema_that_accepts_more_passes(old: dict[str, Any], new: dict[str, Any]):
    assert narrowings(old, new) == []


NARROWER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "required": ({}, {"required": ["a"]}, "/required"),
    "a member of an open object": ({}, {"properties": {"a": {"type": "string"}}}, "/properties/a/type"),
    "closed": ({}, CLOSED, "/additionalProperties"),
    "taken away": (closed(a={}, b={}), closed(a={}), "/additionalProperties"),
    "fewer types": ({"type": ["integer", "string"]}, {"type": "integer"}, "/type"),
    "no fractions": ({"type": "number"}, {"type": "integer"}, "/type"),
    "fewer values": ({"enum": [1, 2]}, {"enum": [1]}, "/enum"),
    "truth is no number": ({"const": True}, {"const": 1}, "/const"),
    "a bound": ({}, {"maxLength": 5}, "/maxLength"),
    "a lower bound": ({"minimum": 2}, {"minimum": 3}, "/minimum"),
    "equal items": ({}, {"uniqueItems": True}, "/uniqueItems"),
    "another pattern": ({"pattern": "a"}, {"pattern": "b"}, "/pattern"),
    "another rule": ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "integer"}]}, "/anyOf"),
    "a rule that lost its exception": (
        {"contains": {"const": 1}, "minContains": 0},
        {"contains": {"const": 1}},
        "/contains",
    ),
    "the same rule about something else": (
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"const": 1}}},
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "integer"}}},
        "/not",
    ),
    "what is referred to": (
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}},
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "integer"}}},
        "/$defs/a/type",
    ),
    "described in one place less": (
        {"properties": {"a": {}}, "unevaluatedProperties": False},
        {"unevaluatedProperties": False},
        "/unevaluatedProperties",
    ),
    "patterns gone": ({"patternProperties": {"^x": {}}, **CLOSED}, CLOSED, "/additionalProperties"),
    "first items": ({"prefixItems": [{}], "items": {"const": 1}}, {"items": {"const": 1}}, "/items"),
    "deep": (closed(a=closed(b={"type": "string"})), closed(a=closed(b={"type": "null"})), "/properties/a/properties/b/type"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "pointer"), NARROWER.values(), ids=NARROWER)
def test_a_schema_that_may_refuse_more_is_refused_and_the_place_is_named(
    old: dict[str, Any], new: dict[str, Any], pointer: str
):
    assert pointer in [each.pointer for each in narrowings(old, new)]


values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, 1.0, 1.5, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(0, 3)
names = st.sampled_from("abc")


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schema = inner | st.booleans()
    members = {
        "type": st.sampled_from(["integer", "number", "string", "object", "array", ["null", "object"], ["integer", "string"]]),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "minimum": numbers, "maximum": numbers, "exclusiveMaximum": numbers,
        "minLength": numbers, "maxLength": numbers, "pattern": st.sampled_from(["a", "^a$"]),
        "minItems": numbers, "maxItems": numbers, "uniqueItems": st.booleans(),
        "minProperties": numbers, "maxProperties": numbers,
        "required": st.lists(names, max_size=2, unique=True),
        "properties": st.dictionaries(names, schema, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["a|b", "c"]), schema, max_size=1),
        "additionalProperties": schema,
        "unevaluatedProperties": st.just(False),
        "items": schema, "prefixItems": st.lists(schema, min_size=1, max_size=2),
        "contains": schema, "minContains": st.just(0),
        "anyOf": st.lists(schema, min_size=1, max_size=2), "not": schema,
        "if": schema, "then": schema, "else": schema,
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=1), max_size=1),
        "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
    }  # fmt: skip
    return st.lists(st.sampled_from(sorted(members)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({key: members[key] for key in chosen})
    )


plain = _schemas(st.just({})).map(lambda schema: {k: v for k, v in schema.items() if k != "$ref"})
schemas = st.recursive(st.just({}), _schemas, max_leaves=6)
documents = st.builds(
    lambda schema, x, y: {**schema, "$defs": {"x": x, "y": y}}, schemas, plain | st.booleans(), plain | st.booleans()
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas that often have much in common."""
    old, other = draw(documents), draw(documents)
    new = dict(old)
    for key in draw(st.lists(st.sampled_from(sorted({*old, *other})), max_size=3, unique=True)):
        new.pop(key, None)
        if key in other:
            new[key] = other[key]
    new.setdefault("$defs", old["$defs"])
    return old, new


@settings(max_examples=400, deadline=None)
@given(step=steps(), instances=st.lists(values, min_size=5, max_size=10))
@example(step=({"const": True, "$defs": {}}, {"enum": [1], "$defs": {}}), instances=[True])
def test_what_passes_accepts_all_that_was_accepted(step: tuple[Any, Any], instances: list[Any]):
    old, new = step
    before, after = Draft202012Validator(old), Draft202012Validator(new)

    if not narrowings(old, new):
        assert [each for each in instances if before.is_valid(each) and not after.is_valid(each)] == []
