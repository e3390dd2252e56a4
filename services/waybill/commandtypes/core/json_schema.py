"""JSON Schema 2020-12 as the catalogue takes it, and data held against it.

A schema here is one document: it refers only to itself, and only to its `$defs`. A keyword nobody knows is refused,
since a misspelt one would check nothing; `x-…` is free. `format` is an annotation, as the standard has it.

What is wrong with data is told by a JSON Pointer and the keyword that was broken. Names of members are data too (an
object may be keyed by e-mail address), so a pointer spells out only the names the schema itself has; others are `*`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import referencing
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import best_match

__all__ = ["IN_LIST", "IN_MAP", "IN_PLACE", "Fault", "data_fault", "pointer", "read_strict", "schema_faults"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

#: Keywords whose value is an object of schemas, a list of schemas, a schema.
IN_MAP: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
IN_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
IN_PLACE: Final = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
    | {"not", "if", "then", "else"}
)
_BOUNDS: Final = frozenset(
    {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties"}
    | {"required", "dependentRequired", "type", "enum", "const", "$ref"}
)
_NOTES: Final = frozenset(
    {"$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"format", "contentEncoding", "contentMediaType"}
)
_KNOWN: Final = IN_MAP | IN_LIST | IN_PLACE | _BOUNDS | _NOTES
_REF: Final = re.compile(r"^#(/\$defs/[A-Za-z0-9_.-]+)?$")
#: Beyond this Python converts no digits; such a number is only compared.
_MAX_DIGITS: Final = 4000


@dataclass(frozen=True, slots=True)
class Fault:
    """Where something is wrong, and which keyword says so."""

    #: JSON Pointer; empty for the whole.
    pointer: str
    keyword: str

    def __str__(self) -> str:
        """Render for people: `at /id (type)`."""
        return f"at {self.pointer or 'the top'} ({self.keyword})"


def pointer(parts: Iterable[str | int]) -> str:
    """Return a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def read_strict(raw: bytes | str) -> Any:
    """Read exactly one JSON value in UTF-8, no member of it twice.

    Raises:
        ValueError: it is anything else; the message quotes nothing.
        RecursionError: nested too deep.
    """
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole)
    except ValueError as error:
        raise ValueError("not exactly one JSON value with each member once") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member comes twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def schema_faults(schema: Any) -> list[Fault]:
    """Return what keeps a document from being a schema of the catalogue, in the order of its pointers."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return [Fault(pointer(error.absolute_path), str(error.validator))]
    except RecursionError:
        return [Fault("", "nesting")]
    if not isinstance(schema, dict):
        return [Fault("", "type")]
    return sorted(set(_node_faults(schema, schema, ())), key=lambda fault: (fault.pointer, fault.keyword))


def _node_faults(root: Mapping[str, Any], node: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    if not isinstance(node, dict):
        return
    for keyword, value in node.items():
        here = (*path, keyword)
        if keyword not in _KNOWN and not keyword.startswith("x-"):
            yield Fault(pointer(here), "unknown keyword")
        elif not _is_sound(root, keyword, value):
            yield Fault(pointer(here), keyword)
    for parts, inner in _inside(node):
        yield from _node_faults(root, inner, (*path, *parts))


def _is_sound(root: Mapping[str, Any], keyword: str, value: Any) -> bool:
    if keyword == "$schema":
        return bool(value == DIALECT)
    return keyword != "$ref" or _is_known_ref(root, value)


def _is_known_ref(root: Mapping[str, Any], ref: str) -> bool:
    return _REF.match(ref) is not None and (ref == "#" or ref.removeprefix("#/$defs/") in root.get("$defs", {}))


def _inside(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the schemas directly inside one, each with its path from there."""
    for keyword, value in node.items():
        if keyword in IN_PLACE:
            yield (keyword,), value
        elif keyword in IN_MAP:
            yield from (((keyword, name), inner) for name, inner in value.items())
        elif keyword in IN_LIST:
            yield from (((keyword, number), inner) for number, inner in enumerate(value))


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: Draft202012Validator
    #: Names of members the schema itself speaks of.
    names: frozenset[str]


@lru_cache(maxsize=256)
def _compiled(schema: str) -> _Compiled:
    document = json.loads(schema)
    # an empty registry: nothing is ever fetched
    validator = Draft202012Validator(document, registry=referencing.Registry())
    return _Compiled(validator, frozenset(_names(document)))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from node.get("properties", ())
        yield from node.get("required", ())
        for _, inner in _inside(node):
            yield from _names(inner)


def data_fault(schema: str, data: bytes) -> Fault | None:
    """Say how data break a schema, or None when they keep it.

    Args:
        schema: the JSON text of a schema without faults.
        data: the bytes that will travel.
    """
    try:
        value = read_strict(data)
        compiled = _compiled(schema)
        error = best_match(compiled.validator.iter_errors(value))
    except ValueError:
        return Fault("", "json")
    except RecursionError:
        return Fault("", "nesting")
    return None if error is None else Fault(pointer(_path(error, compiled.names)), str(error.validator or "false"))


def _path(error: ValidationError, names: frozenset[str]) -> Iterator[str | int]:
    for part in error.absolute_path:
        yield part if isinstance(part, int) or part in names else "*"
    if error.validator == "required":
        yield next(name for name in error.validator_value if name not in error.instance)
