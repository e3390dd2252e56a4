"""The rules about a tenant's catalogue, each by itself and between the versions of one command type."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from waybill.commandtypes.core.json_schema import data_fault, read_strict, schema_faults
from waybill.commandtypes.core.narrowing import narrowings
from waybill.commandtypes.core.versions import major_of, version_key
from waybill.fabric.core.document import Problem
from waybill.fabric.core.reading import Reading
from waybill.fabric.core.reading import problem_at as _problem

__all__ = ["MAX_CATALOGUED", "command_type"]

#: Characters of all schemas and examples of one type: it travels as one record.
MAX_CATALOGUED: Final = 393_216


def command_type(declared: Reading) -> Iterator[Problem]:
    """Judge one command type of a catalogue."""
    if str(declared.get("name")).startswith("waybill."):
        yield _problem(declared.at("name"), "reserved", "expected another type, waybill. is Waybill's own")
    versions = declared.many("versions")
    if not versions and "versions" in declared.found:
        yield _problem(declared.at("versions"), "type-version", "expected at least one version")
    if sum(len(each.get("schema") or "") + len(each.get("example") or "") for each in versions) > MAX_CATALOGUED:
        yield _problem(declared.at("versions"), "type-version", f"expected at most {MAX_CATALOGUED} characters in all")
    yield from _order(versions)
    yield from _schemas(versions)


def _order(versions: tuple[Reading, ...]) -> Iterator[Problem]:
    named = [each for each in versions if each.get("version") is not None]
    for before, after in pairwise(named):
        if version_key(after.get("version")) <= version_key(before.get("version")):
            message = f"expected a version above {before.get('version')}: each once, in rising order"
            yield _problem(after.at("version"), "type-version", message)


def _schemas(versions: tuple[Reading, ...]) -> Iterator[Problem]:
    sound: list[tuple[str, dict[str, Any]]] = []
    for each in versions:
        version, text = each.get("version"), each.get("schema")
        if version is None or text is None:
            continue
        wrong = list(_schema(each, text))
        yield from wrong
        if wrong:
            continue
        schema = read_strict(text)
        yield from _example(each, text)
        if sound and major_of(sound[-1][0]) == major_of(version):
            yield from _follows(each, sound[-1], schema)
        sound.append((version, schema))


def _schema(version: Reading, text: str) -> Iterator[Problem]:
    try:
        faults = schema_faults(read_strict(text))
    except (ValueError, RecursionError):
        yield _problem(version.at("schema"), "schema", "expected one JSON object, no member of it twice")
        return
    for fault in faults:
        yield _problem(version.at("schema"), "schema", f"expected JSON Schema 2020-12, it is not {fault}")


def _example(version: Reading, schema: str) -> Iterator[Problem]:
    example = version.get("example")
    fault = data_fault(schema, example.encode()) if example is not None else None
    if fault is not None:
        yield _problem(
            version.at("example"), "example", f"expected an example that keeps the schema, it breaks it {fault}"
        )


def _follows(version: Reading, before: tuple[str, dict[str, Any]], schema: dict[str, Any]) -> Iterator[Problem]:
    found = narrowings(before[1], schema)
    if found:
        shown = "; ".join(f"{each.pointer or 'the top'}: {each.reason}" for each in found[:5])
        message = (
            f"expected a schema that accepts whatever {before[0]} accepted ({shown}): widen it, or make it "
            f"v{major_of(before[0]) + 1}.0"
        )
        yield _problem(version.at("schema"), "schema-narrower", message)
