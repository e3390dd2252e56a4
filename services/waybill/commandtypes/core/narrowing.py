"""Whether a JSON Schema accepts everything that another one accepted.

The question cannot be answered for every pair of schemas, so it is answered by rules that err on one side: what
passes here accepts every document the old schema accepted; what is refused may be harmless all the same, and is then
a new major version.

A keyword only ever forbids. So for each keyword the new schema has, the old one must have forbidden at least as much
by the same keyword; keywords the new one dropped, and notes, play no part. Lists of types and values may grow,
bounds may widen, members may stop being required. Schemas inside are compared in the same way:

| the new schema describes | it is held against |
| --- | --- |
| a member the old one described | that description |
| a member the old one did not describe | what it said of other members: nothing of that name could come where `additionalProperties` was `false`, and anything where nothing was said |
| other members (`additionalProperties`) | the same of the old one, and every member it described and the new one does not |
| items of a list | the same of the old one |
| a reference | the reference of the old one, both followed |

Everything else (`anyOf`, `if`, `patternProperties`, …) must stay as it is, with what it refers to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from waybill.commandtypes.core.json_schema import pointer

__all__ = ["Narrowing", "is_equal", "narrowings"]

_Path: TypeAlias = tuple[str | int, ...]
_Pair: TypeAlias = tuple[str, str]

#: Keyword → whether a larger value accepts more; what holds where it is absent and means the same as its absence.
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_FROM_ZERO: Final = frozenset({"minLength", "minItems", "minProperties"})
_NOTES: Final = frozenset(
    {"$schema", "$comment", "$defs", "title", "description", "default", "examples", "deprecated", "readOnly"}
    | {"writeOnly", "format", "contentEncoding", "contentMediaType"}
)
#: Keywords that are read together: all stay as they are, or none is left.
_GROUPS: Final = (
    ("allOf",), ("anyOf",), ("oneOf",), ("not",), ("if", "then", "else"), ("contains", "minContains", "maxContains"),
    ("propertyNames",), ("dependentSchemas",), ("dependentRequired",), ("pattern",), ("multipleOf",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Narrowing:
    """One place where the new schema may refuse what the old one accepted."""

    #: JSON Pointer into the new schema.
    pointer: str
    reason: str


def narrowings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Narrowing]:
    """Return every place where `new` may refuse what `old` accepted; none means that it accepts all of it."""
    comparison = _Comparison(old, new)
    return list(dict.fromkeys(comparison.schemas(old, new, ())))


class _Comparison:
    """Two documents; the references met on the way, each pair followed once."""

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old, self._new = old, new
        self._followed: set[_Pair] = set()

    def schemas(self, old: Any, new: Any, path: _Path) -> Iterator[Narrowing]:
        """Compare two schemas that stand in the same place."""
        if new is True or old is False:
            return
        if new is False:
            yield Narrowing(pointer(path), "nothing is accepted here any more")
            return
        before = {} if old is True else old
        yield from self._values(before, new, path)
        yield from self._bounds(before, new, path)
        yield from self._groups(before, new, path)
        yield from self._members(before, new, path)
        yield from self._items(before, new, path)
        yield from self._reference(before, new, path)

    def _values(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        if "type" in new:
            gone = _types(old) - _types(new)
            if gone:
                yield Narrowing(pointer((*path, "type")), f"{' and '.join(sorted(gone))} was accepted")
        for keyword in ("enum", "const"):
            if keyword not in new:
                continue
            taken = new["enum"] if keyword == "enum" else [new["const"]]
            given = old["enum"] if "enum" in old else [old["const"]] if "const" in old else None
            if given is None or any(not _has(taken, value) for value in given):
                yield Narrowing(pointer((*path, keyword)), "a value that was accepted is not listed")

    def _bounds(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        for keyword in (*_UPPER, *_LOWER):
            if keyword not in new or (keyword in _FROM_ZERO and new[keyword] == 0):
                continue
            is_wide = keyword in old and (
                old[keyword] <= new[keyword] if keyword in _UPPER else old[keyword] >= new[keyword]
            )
            if not is_wide:
                yield Narrowing(pointer((*path, keyword)), "the bound is new or narrower")
        if new.get("uniqueItems") and not old.get("uniqueItems"):
            yield Narrowing(pointer((*path, "uniqueItems")), "items could be equal")
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield Narrowing(pointer((*path, "required")), f"{name} could be left out")

    def _groups(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        for group in _GROUPS:
            said = {keyword: new[keyword] for keyword in group if keyword in new}
            if said and not self._same({keyword: old[keyword] for keyword in group if keyword in old}, said):
                yield Narrowing(pointer((*path, next(iter(said)))), f"{' with '.join(said)} stays as it is, or goes")
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in new and not self._same(_asserted(old), _asserted(new)):
                yield Narrowing(pointer((*path, keyword)), "beside it everything stays as it is")

    def _members(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        patterns_before, patterns = old.get("patternProperties", {}), new.get("patternProperties", {})
        before, now = old.get("properties", {}), new.get("properties", {})
        others_before, others = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if patterns and not self._same(patterns_before, patterns):
            yield Narrowing(pointer((*path, "patternProperties")), "it stays as it is, or goes")
        if patterns_before and not patterns and others is not True:
            yield Narrowing(pointer((*path, "additionalProperties")), "members of the old patterns fall under it")
        for name, schema in now.items():
            undescribed = True if patterns_before else others_before
            yield from self.schemas(before.get(name, undescribed), schema, (*path, "properties", name))
        if "additionalProperties" in new:
            here = (*path, "additionalProperties")
            yield from self.schemas(others_before, others, here)
            for name in before.keys() - now.keys():
                if any(True for _ in self.schemas(before[name], others, here)):
                    yield Narrowing(pointer(here), f"{name} was described and would fall under it")

    def _items(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        first_before, first = old.get("prefixItems", []), new.get("prefixItems", [])
        if (first or "items" in new) and not self._same(first_before, first):
            yield Narrowing(pointer((*path, "prefixItems" if first else "items")), "prefixItems stay as they are")
        elif "items" in new:
            yield from self.schemas(old.get("items", True), new["items"], (*path, "items"))

    def _reference(self, old: Mapping[str, Any], new: Mapping[str, Any], path: _Path) -> Iterator[Narrowing]:
        """Follow references; a schema that is nothing but one is what it refers to."""
        if "$ref" not in new:
            return
        if "$ref" not in old:
            yield Narrowing(pointer((*path, "$ref")), "the reference is new: write out what it refers to")
            return
        pair = (old["$ref"], new["$ref"])
        if pair not in self._followed:
            self._followed.add(pair)
            target = () if new["$ref"] == "#" else ("$defs", new["$ref"].rsplit("/", 1)[-1])
            yield from self.schemas(_target(self._old, pair[0]), _target(self._new, pair[1]), target)

    def _same(self, old: Any, new: Any) -> bool:
        """Whether two parts mean the same: they are equal, and so is what they refer to."""
        refers = _refers(new)
        return is_equal(old, new) and (
            not refers or (is_equal(self._old.get("$defs"), self._new.get("$defs")) and "#" not in refers)
        )


def _target(document: Mapping[str, Any], ref: str) -> Any:
    return document if ref == "#" else document["$defs"][ref.rsplit("/", 1)[-1]]


def _refers(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*map(_refers, part.values()))
    return set().union(*map(_refers, part)) if isinstance(part, list) else set()


def _asserted(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword not in _NOTES}


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types a schema takes; a number takes integers."""
    said = schema.get("type", ["array", "boolean", "null", "number", "object", "string"])
    listed = {said} if isinstance(said, str) else set(said)
    return listed | {"integer"} if "number" in listed else listed


def is_equal(one: Any, other: Any) -> bool:
    """Compare as JSON does: `true` is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)


def _has(values: list[Any], value: Any) -> bool:
    return any(is_equal(value, each) for each in values)
