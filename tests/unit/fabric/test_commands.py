"""What the command line says about a file it cannot use, before it asks anybody for anything."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.fabric import apps
from waybill.contracts.fabric import SecretRef
from waybill.infra.secrets import read_secret
from waybill.kernel.errors import ConfigError

WRONG = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    partition: 3
    destinations:
      - {name: crm, url: 'ftp://crm', owner: o, profile: bounded_deduplication, tradeoff: t}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "fabric.yaml"
    file.write_text(WRONG)
    return file


def test_a_wrong_file_ends_with_2_and_a_line_for_each_problem(wrong: Path) -> None:
    result = CliRunner().invoke(apps["apply"], ["-f", str(wrong)])

    profile = "expected `repeats: {attempts, age}` beside bounded_deduplication: how much it remembers"
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{wrong}:4: tenants[0].partition: expected a key of a tenant: did you mean partitions? [known-keys]",
        f"{wrong}:6: tenants[0].destinations[0].profile: {profile} [repeats]",
        f"{wrong}:6: tenants[0].destinations[0].url: expected an http or https URL with a host, without spaces [url]",
    ]


@pytest.mark.parametrize("words", [["--json"], ["--json", "--dry-run"]], ids=["apply", "dry run"])
def test_a_wrong_file_is_one_json_document_for_programs(wrong: Path, words: list[str]) -> None:
    result = CliRunner().invoke(apps["apply"], ["-f", str(wrong), *words])

    assert result.exit_code == 2
    assert [(each["line"], each["field"], each["rule"]) for each in json.loads(result.stdout)["problems"]] == [
        (4, "tenants[0].partition", "known-keys"),
        (6, "tenants[0].destinations[0].profile", "repeats"),
        (6, "tenants[0].destinations[0].url", "url"),
    ]


def test_a_schema_is_read_from_beside_the_file_and_another_one_is_told_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "erase.json").write_bytes(b"{}")
    version = "{version: v1.0, schema: {file: schemas/erase.json, digest: x}, example: 1}"
    head = "apiVersion: waybill/v1\ntenants:\n  - name: acme\n    commandTypes:\n"
    entry = f"      - {{name: a.b, owner: o, pii: none, description: d, versions: [{version}]}}\n"
    (tmp_path / "fabric.yaml").write_text(head + entry)

    result = CliRunner().invoke(apps["apply"], ["-f", str(tmp_path / "fabric.yaml")])

    assert result.exit_code == 2
    assert f"write digest: sha256:{hashlib.sha256(b'{}').hexdigest()} [schema-file]" in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(apps["apply"], ["-f", str(tmp_path / "none.yaml")])

    assert isinstance(result.exception, ConfigError)
    assert "none.yaml: No such file" in str(result.exception)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (SecretRef(env="EMPTY"), "set the environment variable EMPTY"),
        (SecretRef(env="NOBODY"), "set the environment variable NOBODY"),
        (SecretRef(file="/nowhere/at/all"), "cannot read the file /nowhere/at/all: No such file"),
    ],
)
def test_a_secret_that_is_not_there_says_where_it_belongs(reference: SecretRef, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"dsn of outbox orders: {expected}"):
        read_secret(reference, "dsn of outbox orders", {"EMPTY": ""})


def test_a_secret_is_read_from_its_place_without_the_final_line_end(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b" a b \r\n")

    assert read_secret(SecretRef(file=str(file)), "it") == " a b "
    assert read_secret(SecretRef(env="HERE"), "it", {"HERE": "x"}) == "x"
