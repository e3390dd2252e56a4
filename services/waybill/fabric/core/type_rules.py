"""The rules about a tenant's catalogue, each by itself and between the versions of one command type."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from waybill.commandtypes.core import avro
from waybill.commandtypes.core.avro_resolution import disagreements
from waybill.commandtypes.core.json_schema import Fault, data_fault, read_strict, schema_faults
from waybill.commandtypes.core.narrowing import Narrowing, narrowings
from waybill.commandtypes.core.versions import major_of, version_key
from waybill.contracts.fabric import SchemaFormat
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
    yield from _schemas(versions, declared.get("format"))


def _order(versions: tuple[Reading, ...]) -> Iterator[Problem]:
    named = [each for each in versions if each.get("version") is not None]
    for before, after in pairwise(named):
        if version_key(after.get("version")) <= version_key(before.get("version")):
            message = f"expected a version above {before.get('version')}: each once, in rising order"
            yield _problem(after.at("version"), "type-version", message)


def _schemas(versions: tuple[Reading, ...], form: SchemaFormat | None) -> Iterator[Problem]:
    if form is None:
        return
    sound: list[tuple[str, str]] = []
    for each in versions:
        version, text = each.get("version"), each.get("schema")
        if version is None or text is None:
            continue
        wrong = list(_avro_schema(each, text) if form is SchemaFormat.AVRO else _json_schema(each, text))
        yield from wrong
        if wrong:
            continue
        yield from _example(each, text, form)
        before = [known for known in sound if major_of(known[0]) == major_of(version)]
        yield from _reads(each, before, text) if form is SchemaFormat.AVRO else _widens(each, before[-1:], text)
        sound.append((version, text))


def _json_schema(version: Reading, text: str) -> Iterator[Problem]:
    try:
        faults = schema_faults(read_strict(text))
    except (ValueError, RecursionError):
        yield _problem(version.at("schema"), "schema", "expected one JSON object, no member of it twice")
        return
    for fault in faults:
        yield _problem(version.at("schema"), "schema", f"expected JSON Schema 2020-12, it is not {fault}")


def _avro_schema(version: Reading, text: str) -> Iterator[Problem]:
    fault = avro.schema_fault(text)
    if fault is not None:
        yield _problem(version.at("schema"), "schema", f"expected an Avro schema of one record, it is not {fault}")


def _example(version: Reading, schema: str, form: SchemaFormat) -> Iterator[Problem]:
    example = version.get("example")
    if example is None:
        return
    fault = _avro_fault(schema, example) if form is SchemaFormat.AVRO else data_fault(schema, example.encode())
    if fault is not None:
        message = f"expected an example that keeps the schema, it breaks it {fault}"
        yield _problem(version.at("example"), "example", message)


def _avro_fault(schema: str, example: str) -> Fault | None:
    try:
        avro.encode(schema, avro.from_json(schema, example))
    except avro.MismatchError as error:
        return error.fault
    return None


def _widens(version: Reading, before: list[tuple[str, str]], text: str) -> Iterator[Problem]:
    """Hold a JSON Schema against its predecessor, which holds it against all before: accepting more is transitive."""
    for known, schema in before:
        found = narrowings(read_strict(schema), read_strict(text))
        if found:
            message = (
                f"expected a schema that accepts whatever {known} accepted ({_shown(found)}): widen it, or make it "
            )
            yield _problem(version.at("schema"), "schema-narrower", f"{message}v{major_of(known) + 1}.0")


def _reads(version: Reading, before: list[tuple[str, str]], text: str) -> Iterator[Problem]:
    """Hold an Avro schema against each before it, both ways: reading each other is not transitive."""
    for known, schema in before:
        found = disagreements(schema, text)
        if found:
            message = (
                f"expected a schema that reads {known} and is read by it ({_shown(found)}): change it, or make it "
            )
            yield _problem(version.at("schema"), "schema-unreadable", f"{message}v{major_of(known) + 1}.0")
            return


def _shown(found: list[Narrowing]) -> str:
    return "; ".join(f"{each.pointer or 'the top'}: {each.reason}" for each in found[:5])
