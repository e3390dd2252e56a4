"""The catalogue for people and their tools: a document that is AsyncAPI, and pages."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from typer.testing import CliRunner

from waybill.cli.catalogue import app
from waybill.kernel.errors import ConfigError

FABRIC = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    destinations:
      - {name: crm, url: 'https://internal.crm.example/x', owner: team-crm, profile: durable_idempotent, tradeoff: t}
      - {name: erp, url: 'https://erp.example/x', owner: team-erp, profile: durable_idempotent, tradeoff: t}
    commandTypes:
      - name: order.ship
        owner: team|orders
        pii: none
        description: Ship it.
        versions:
          - version: v1.0
            schema:
              properties: {lines: {items: {$ref: '#/$defs/line'}}, $ref: {enum: [{$ref: '#'}]}}
              $defs: {line: {required: [sku]}}
            example: {lines: [{sku: a}], note: '```'}
          - version: v1.1
            schema: {}
            example: 1
      - {name: order.hold, owner: o, pii: special, description: d, versions: [{version: v2.0, schema: {}, example: 1}]}
      - name: order.pack
        owner: o
        pii: none
        description: d
        format: avro
        versions: [{version: v1.0, schema: {type: record, name: Pack, fields: [{name: id, type: long}]}, example: {id: 1}}]
    routes:
      - {type: order.pack, destinations: [erp], ttl: 1h}
      - {type: order.ship, destinations: [crm], ttl: 1h}
      - {type: order.other, destinations: [crm], ttl: 1h}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.yaml"
    path.write_text(FABRIC)
    return path


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_the_document_is_asyncapi(checkout: Path, file: Path):
    official = json.loads((checkout / "tests" / "vendor" / "asyncapi" / "3.0.0.json").read_text())

    found = [
        list(each.absolute_path)
        for each in Draft7Validator(official).iter_errors(run("asyncapi", "acme", "-f", str(file)))
    ]

    assert found == []


def test_the_document_of_the_example_is_asyncapi(checkout: Path):
    official = json.loads((checkout / "tests" / "vendor" / "asyncapi" / "3.0.0.json").read_text())
    example = str(checkout / "docs" / "examples" / "fabric.yaml")

    assert Draft7Validator(official).is_valid(run("asyncapi", "acme", "-f", example))
    assert not Draft7Validator(official).is_valid({"asyncapi": "3.0.0"})


def follow(document: Any, ref: str) -> Any:
    for part in ref.removeprefix("#/").split("/"):
        document = document[part.replace("~1", "/").replace("~0", "~")]
    return document


def test_every_reference_leads_somewhere_in_the_document(file: Path):
    document = run("asyncapi", "acme", "-f", str(file))

    def refs(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) and node["$ref"] != "#" else []
            return own + [ref for value in node.values() for ref in refs(value)]
        return [ref for each in node for ref in refs(each)] if isinstance(node, list) else []

    assert all(follow(document, ref) is not None for ref in refs(document))
    assert "#/components/schemas/order.ship.v1.0/schema/$defs/line" in refs(document)


def test_data_in_the_envelope_are_held_against_the_schema_of_the_type(file: Path):
    document = run("asyncapi", "acme", "-f", str(file))
    message = document["components"]["messages"]["order.ship.v1.0.delivery"]
    checker = Draft202012Validator({**message["payload"]["schema"], "components": document["components"]})
    envelope = {"specversion": "1.0", "id": "x", "source": "waybill://acme/shop", "type": "order.ship"}

    assert [checker.is_valid({**envelope, "data": {"lines": [line]}}) for line in ({"sku": 1}, {})] == [True, False]


def test_what_goes_where_is_told_and_where_that_lies_is_not(file: Path):
    document = run("asyncapi", "acme", "-f", str(file))

    assert sorted(document["channels"]) == ["commands", "destination-crm", "destination-erp"]
    assert sorted(document["channels"]["commands"]["messages"]) == [
        "order.hold.v2.0",
        "order.pack.v1.0",
        "order.ship.v1.0",
        "order.ship.v1.1",
    ]
    assert sorted(document["channels"]["destination-crm"]["messages"]) == [
        "order.ship.v1.0.delivery",
        "order.ship.v1.1.delivery",
    ]
    assert "internal.crm.example" not in json.dumps(document)


def test_each_type_has_a_page_and_a_line_in_the_list(tmp_path: Path, file: Path):
    out = tmp_path / "docs"

    done = run("docs", "acme", "--out", str(out), "-f", str(file), "--json")

    assert done["files"] == ["README.md", "asyncapi.json", "order.hold.md", "order.pack.md", "order.ship.md"]
    page = (out / "order.ship.md").read_text()
    assert "| goes to | crm |" in page
    assert "| held against, when a command names no version | v1.1 |" in page
    assert page.index("## v1.1") < page.index("## v1.0")
    assert "waybill://acme/types/order.ship/v1.0" in page
    assert "| stored, signed and sent as | avro |" in (out / "order.pack.md").read_text()
    assert '````json\n{"lines": [{"sku": "a"}], "note": "```"}\n````' in page
    assert (
        "| [order.ship](order.ship.md) | team\\|orders | none | v1.0, v1.1 | Ship it. |"
        in (out / "README.md").read_text()
    )
    assert json.loads((out / "asyncapi.json").read_text()) == run("asyncapi", "acme", "-f", str(file))


def test_a_type_is_shown_with_its_versions(file: Path):
    shown = run("show", "acme", "order.ship", "-f", str(file), "--json")

    assert [each["version"] for each in shown["versions"]] == ["v1.0", "v1.1"]
    assert (shown["owner"], shown["destinations"]) == ("team|orders", ["crm"])
    assert [each["name"] for each in run("list", "acme", "-f", str(file), "--json")["command_types"]] == [
        "order.ship",
        "order.hold",
        "order.pack",
    ]


@pytest.mark.parametrize(
    ("words", "expected"), [(["list", "other"], "in it are: acme"), (["show", "acme", "x"], "order.ship")]
)
def test_what_is_not_there_is_told_with_what_is(file: Path, words: list[str], expected: str):
    with pytest.raises(ConfigError, match=expected):
        run(*words, "-f", str(file))


@pytest.mark.parametrize(
    ("rendering", "content_type", "member"),
    [("avro", "application/avro", "data_base64"), ("json", "application/json", "data")],
)
def test_avro_data_are_described_in_the_form_they_go_in(
    checkout: Path, tmp_path: Path, rendering: str, content_type: str, member: str
):
    file = tmp_path / "fabric.yaml"
    file.write_text(FABRIC.replace("[erp], ttl: 1h", f"[erp], ttl: 1h, rendering: {rendering}"))
    official = json.loads((checkout / "tests" / "vendor" / "asyncapi" / "3.0.0.json").read_text())

    document = run("asyncapi", "acme", "-f", str(file))

    schema = document["components"]["schemas"]["order.pack.v1.0"]
    message = document["components"]["messages"]["order.pack.v1.0.delivery"]
    members = message["payload"]["schema"]["properties"]
    assert Draft7Validator(official).is_valid(document)
    assert schema["schemaFormat"].startswith("application/vnd.apache.avro+json")
    assert members["datacontenttype"] == {"const": content_type}
    assert member in members
