"""The catalogue in `fabric.yaml`: how it is written, what is refused in it, and what stays once it was applied."""

import hashlib
import json
from dataclasses import replace

import pytest

from waybill.contracts.fabric import CommandTypeConfig, FabricConfig, PiiClass, TypeVersion
from waybill.fabric.core.document import Problem
from waybill.fabric.core.parse import parse
from waybill.fabric.core.plan import plan

CATALOGUE = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    commandTypes:
      - name: subject.erase
        owner: team-privacy
        pii: pseudonym
        description: Erase everything about a subject.
        versions:
          - version: v1.0
            schema:
              type: object
              required: [id]
              additionalProperties: false
              properties:
                id: {type: integer}
            example: {id: 7}
          - version: v1.1
            schema: '{"type": "object", "properties": {"id": {"type": "number"}}}'
            example: '{"id": 7.10}'
"""
INLINE = """schema: '{"type": "object", "properties": {"id": {"type": "number"}}}'"""
PLACE = "tenants[0].commandTypes[0]"
FILE = b'{"type": "object"}\n'
DIGEST = "sha256:" + hashlib.sha256(FILE).hexdigest()


def files(name: str) -> bytes:
    if name == "schemas/erase.json":
        return FILE
    if name == "latin":
        return b'{"title": "\xe9"}'
    raise FileNotFoundError(2, "No such file or directory")


def read(text: str) -> FabricConfig:
    found = parse(text.encode(), files)
    assert isinstance(found, FabricConfig), found
    return found


def problems(text: str) -> list[Problem]:
    found = parse(text.encode(), files)
    assert not isinstance(found, FabricConfig), "expected problems, the file was accepted"
    return list(found)


def declared(text: str) -> CommandTypeConfig:
    return read(text).tenants[0].command_types[0]


def test_schemas_and_examples_become_text_however_they_are_written():
    found = declared(CATALOGUE)

    assert (found.name, found.owner, found.pii) == ("subject.erase", "team-privacy", PiiClass.PSEUDONYM)
    assert [each.version for each in found.versions] == ["v1.0", "v1.1"]
    assert json.loads(found.versions[0].schema)["properties"] == {"id": {"type": "integer"}}
    assert [each.example for each in found.versions] == ['{"id": 7}', '{"id": 7.10}']


def test_a_schema_in_a_file_of_its_own_is_read_when_its_bytes_are_those_that_are_named():
    in_a_file = CATALOGUE.replace(INLINE, f"schema: {{file: schemas/erase.json, digest: '{DIGEST}'}}")

    assert declared(in_a_file).versions[1].schema == FILE.decode().strip()


#: old text, new text → line, what follows the command type's path, rule, part of what was expected.
WRONG = {
    "no digest": (INLINE, "schema: {file: schemas/erase.json}", 19, ".versions[1].schema", "schema-file", f"write digest: {DIGEST}"),
    "another file": (INLINE, f"schema: {{file: schemas/erase.json, digest: 'sha256:{'0' * 64}'}}", 19, ".versions[1].schema", "schema-file", "another one"),
    "no such file": (INLINE, f"schema: {{file: x.json, digest: '{DIGEST}'}}", 19, ".versions[1].schema", "schema-file", "No such file"),
    "not UTF-8": (INLINE, f"schema: {{file: latin, digest: '{DIGEST}'}}", 19, ".versions[1].schema", "schema-file", "UTF-8"),
    "more than a file": (INLINE, "schema: {file: a, digest: b, more: c}", 19, ".versions[1].schema", "schema-file", "nothing else"),
    "not JSON": (INLINE, "schema: '{\"type\": }'", 19, ".versions[1].schema", "schema", "one JSON object"),
    "twice": (INLINE, 'schema: \'{"type": "object", "type": "object"}\'', 19, ".versions[1].schema", "schema", "twice"),
    "no schema": (INLINE, "schema: {type: strin}", 19, ".versions[1].schema", "schema", "at /type"),
    "misspelt": ("required: [id]", "requird: [id]", 11, ".versions[0].schema", "schema", "at /requird (unknown keyword)"),
    "bad example": ("example: {id: 7}", "example: {id: x}", 17, ".versions[0].example", "example", "at /id (type)"),
    "no example": ("            example: {id: 7}\n", "", 10, ".versions[0].example", "required-keys", "missing"),
    "example is no JSON": ('{"id": 7.10}', "{id: 7}", 20, ".versions[1].example", "example", "(json)"),
    "no version": ("v1.1", "1.1", 18, ".versions[1].version", "type-version", "v<major>.<minor>"),
    "the same version": ("v1.1", "v1.0", 18, ".versions[1].version", "type-version", "above v1.0"),
    "narrower": ('"type": "number"', '"type": "string"', 19, ".versions[1].schema", "schema-narrower", "/properties/id/type: integer was accepted"),
    "reserved": ("name: subject.erase", "name: waybill.erase", 5, ".name", "reserved", "Waybill's own"),
    "no class": ("pii: pseudonym", "pii: some", 7, ".pii", "type", "none, pseudonym, personal, special"),
    "too long": ("description: Erase everything about a subject.", "description: ' '", 8, ".description", "type", "1 to 2000"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "path", "rule", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_line_field_and_rule(
    old: str, new: str, line: int, path: str, rule: str, expected: str
):
    assert old in CATALOGUE
    found = [each for each in problems(CATALOGUE.replace(old, new)) if each.path == PLACE + path]

    assert [(each.line, each.rule) for each in found] == [(line, rule)]
    assert expected in found[0].message


def test_a_type_without_versions_and_one_that_comes_twice_are_refused():
    start = CATALOGUE.index("      - name")
    empty = CATALOGUE[: CATALOGUE.index("        versions:")] + "        versions: []\n"

    assert [(each.rule, each.line) for each in problems(empty)] == [("type-version", 9)]
    assert [(each.rule, each.line) for each in problems(CATALOGUE + CATALOGUE[start:])] == [("unique", 21)]


def test_a_type_that_would_fill_a_record_is_refused():
    more = "".join(
        f"          - {{version: v1.{number}, schema: {{description: {'x' * 60_000}}}, example: 1}}\n"
        for number in range(2, 9)
    )

    assert [each.rule for each in problems(CATALOGUE + more)] == ["type-version"]


def test_another_major_may_mean_anything():
    other = CATALOGUE.replace("v1.1", "v2.0").replace('"type": "number"', '"type": "string"').replace("7.10", '"x"')

    assert [each.version for each in declared(other).versions] == ["v1.0", "v2.0"]


def test_a_schema_that_was_left_out_of_a_parse_without_files_is_refused():
    in_a_file = CATALOGUE.replace(INLINE, f"schema: {{file: schemas/erase.json, digest: '{DIGEST}'}}")

    found = parse(in_a_file.encode())

    assert not isinstance(found, FabricConfig)
    assert [each.rule for each in found] == ["schema-file"]


def with_versions(*versions: TypeVersion) -> FabricConfig:
    config = read(CATALOGUE)
    changed = replace(config.tenants[0].command_types[0], versions=versions)
    return replace(config, tenants=(replace(config.tenants[0], command_types=(changed,)),))


FIRST, SECOND = declared(CATALOGUE).versions
#: What is wanted instead of the catalogue → what refuses it.
STEPS = {
    "more versions": (with_versions(FIRST, SECOND, replace(SECOND, version="v2.0")), []),
    "another example": (with_versions(FIRST, replace(SECOND, example="{}")), []),
    "other white space": (with_versions(FIRST, replace(SECOND, schema=SECOND.schema.replace(" ", ""))), []),
    "a version taken away": (with_versions(FIRST), ["version-stays"]),
    "another schema": (with_versions(FIRST, replace(SECOND, schema="{}")), ["version-stays"]),
    "taken out of the catalogue": (read(CATALOGUE[: CATALOGUE.index("    commandTypes")]), ["never-removed"]),
}


@pytest.mark.parametrize(("wanted", "rules"), STEPS.values(), ids=STEPS)
def test_what_was_applied_stays(wanted: FabricConfig, rules: list[str]):
    found = plan(read(CATALOGUE), wanted).refusals

    assert [each.rule for each in found] == rules
    assert {str(each.key) for each in found} <= {"acme command-type/subject.erase"}


def test_a_constant_truth_does_not_become_a_number():
    truth, number = (with_versions(FIRST, replace(SECOND, schema=f'{{"const": {text}}}')) for text in ("true", "1"))

    assert [each.rule for each in plan(truth, number).refusals] == ["version-stays"]


AVRO = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    commandTypes:
      - name: order.ship
        owner: team-orders
        pii: none
        description: Ship it.
        format: avro
        versions:
          - version: v1.0
            schema: {type: record, name: Ship, fields: [{name: id, type: long}]}
            example: {id: 7}
          - version: v1.1
            schema:
              type: record
              name: Ship
              fields: [{name: id, type: long}, {name: note, type: ['null', string], default: null}]
            example: {id: 7, note: soon}
"""


def test_an_avro_type_is_read_with_its_defaults_as_they_are_written():
    assert json.loads(declared(AVRO).versions[1].schema)["fields"][1]["default"] is None
    assert declared(AVRO).format == "avro"


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "rule", "expected"),
    [
        (", default: null", "", 15, ".versions[1].schema", "schema-unreadable", "/note: it may be missing"),
        (
            "type: long}]}",
            "type: int}]}",
            15,
            ".versions[1].schema",
            "schema-unreadable",
            "/id: int does not read long",
        ),
        (
            "type: record, name: Ship",
            "type: enum, name: Ship",
            12,
            ".versions[0].schema",
            "schema",
            "Avro schema of one record",
        ),
        ("example: {id: 7}", "example: {id: x}", 13, ".versions[0].example", "example", "at /id (long)"),
    ],
)
def test_what_is_wrong_with_an_avro_type_is_named(old: str, new: str, line: int, path: str, rule: str, expected: str):
    found = [each for each in problems(AVRO.replace(old, new, 1)) if each.path == PLACE + path]

    assert [(each.line, each.rule) for each in found] == [(line, rule)]
    assert expected in found[0].message


def test_the_format_of_a_type_stays():
    other = CATALOGUE.replace("subject.erase", "order.ship")

    assert [each.rule for each in plan(read(AVRO), read(other)).refusals] == ["version-stays"]
