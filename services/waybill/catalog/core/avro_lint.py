"""The rules every schema file follows, so that a stranger can read a record without asking.

Each record, field, enum and fixed has a `doc`: what it means, in what unit where it counts something, and last its
class of personal data as `[pii: none|pseudonym|personal|special]`. Optional fields start with `null` and default to
it, since FULL_TRANSITIVE refuses anything else later. A file holds one record, named as the file.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from waybill.contracts.fabric import PiiClass

__all__ = ["PII_CLASSES", "SchemaFault", "lint_schema"]

PII_CLASSES: Final = tuple(map(str, PiiClass))
_PII: Final = re.compile(r"\[pii: ([a-z]+)\]$")
_NUMBERS: Final = frozenset({"int", "long", "float", "double"})
#: A number's doc names what it counts or in what.
_UNITS: Final = re.compile(
    r"\b(milliseconds|microseconds|seconds|days|bytes|number|count|version|offset|partition|status|attempts?|percent)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFault:
    """One fault: where it is and what was expected."""

    file: str
    line: int
    #: Dotted path such as `TaskState.next_due`.
    field: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: expected {self.expected}"


def lint_schema(text: str, file: str) -> list[SchemaFault]:
    """Return every fault of a schema file, in the order of its lines; empty when it may be registered."""
    stem = file.rsplit("/", 1)[-1].removesuffix(".avsc")
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        return [SchemaFault(file=file, line=error.lineno, field=stem, expected=f"JSON ({error.msg})")]
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return [SchemaFault(file=file, line=1, field=stem, expected="one record")]
    try:
        fastavro.parse_schema(json.loads(text))
    except Exception as error:  # fastavro raises many kinds for a schema it cannot read
        return [SchemaFault(file=file, line=1, field=stem, expected=f"an Avro schema ({error!r})")]
    lines = _Lines(text)
    found = [*_file_rules(schema, stem), *_record(schema, stem)]
    faults = [SchemaFault(file=file, line=lines.of(path), field=path, expected=rule) for path, rule in found]
    return sorted(faults, key=lambda fault: (fault.line, fault.field))


def _file_rules(schema: Mapping[str, Any], stem: str) -> Iterator[tuple[str, str]]:
    if schema.get("name") != stem:
        yield stem, f'"name": "{stem}", as the file is named'
    if schema.get("namespace") != "waybill":
        yield stem, '"namespace": "waybill"'


def _record(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    yield from _doc(schema, path)
    for field in schema["fields"]:
        here = f"{path}.{field['name']}"
        yield from _doc(field, here)
        yield from _unit(field, here)
        yield from _optional(field, here)
        yield from _nested(field["type"], here)


def _nested(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _nested(branch, path)
    elif isinstance(schema, Mapping):
        kind = schema["type"]
        if kind == "record":
            yield from _record(schema, f"{path}.{schema['name']}")
        elif kind == "enum":
            yield from _doc(schema, f"{path}.{schema['name']}")
        elif kind in {"array", "map"}:
            yield from _nested(schema["items" if kind == "array" else "values"], path)


def _doc(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    doc = part.get("doc", "")
    found = _PII.search(doc)
    if found is None or found[1] not in PII_CLASSES:
        yield path, f"a doc that ends in [pii: {'|'.join(PII_CLASSES)}]"
    elif len(doc[: found.start()].split()) < 2:
        yield path, "a doc that says what it means before its [pii: …]"


def _unit(field: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if _NUMBERS & set(_kinds(field["type"])) and not _UNITS.search(field.get("doc", "")):
        yield path, "a doc that names the unit, or what the number counts"


def _optional(field: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    kind = field["type"]
    if not isinstance(kind, list) or "null" not in kind:
        return
    if kind[0] != "null" or "default" not in field or field["default"] is not None:
        yield path, '"null" as the first branch and "default": null'


def _kinds(schema: Any) -> Iterable[str]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _kinds(branch)
    elif isinstance(schema, Mapping):
        yield from _kinds(schema["type"])
    else:
        yield str(schema)


class _Lines:
    """Finds the line of a dotted path by the order of `"name"` entries: good enough to point a person there."""

    def __init__(self, text: str) -> None:
        self._named = [
            (number, found[1])
            for number, line in enumerate(text.splitlines(), 1)
            for found in re.finditer(r'"name"\s*:\s*"([^"]+)"', line)
        ]

    def of(self, path: str) -> int:
        """Return the line where the last part of a path is named, following its parents in order."""
        line = 1
        for part in path.split("."):
            line = next((number for number, name in self._named if name == part and number >= line), line)
        return line
