"""FULL_TRANSITIVE is enforced by the real registry, and only because it was set first."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from waybill.catalog import apply_schemas, check_schemas, load_schemas
from waybill.devstack import Stack
from waybill.infra.registry import FULL_TRANSITIVE, Registry
from waybill.kernel.errors import ConfigError, ContractError, RefusedError

pytestmark = pytest.mark.stack

TEXT = {"name": "text", "type": "string", "doc": "What was said there. [pii: none]"}
LATER = {
    "name": "later",
    "type": ["null", "string"],
    "default": None,
    "doc": "What was said afterwards. [pii: none]",
}
#: no default: an old reader cannot fill it, a new reader cannot read old records
BARE = {"name": "bare", "type": "string", "doc": "What cannot be left out. [pii: none]"}


@pytest.fixture
def registry(stack: Stack) -> Registry:
    return Registry(stack.registry_url)


@pytest.fixture
def record() -> str:
    """A record name nobody used before."""
    return f"T{secrets.token_hex(6)}"


def write(folder: Path, name: str, *fields: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    document = {
        "type": "record",
        "name": name,
        "namespace": "waybill",
        "doc": "Made for a test. [pii: none]",
        "fields": list(fields),
    }
    (folder / f"{name}.avsc").write_text(json.dumps(document, indent=2))
    return folder


def test_a_schema_is_registered_once_and_then_in_step(registry: Registry, tmp_path: Path, record: str) -> None:
    files = load_schemas(write(tmp_path, record, TEXT))

    before = check_schemas(registry, files)
    made = apply_schemas(registry, files)
    again = apply_schemas(registry, files)

    assert [result.state for result in (*before, *made, *again)] == ["new", "registered", "in step"]
    assert made[0].schema_id == again[0].schema_id == registry.schema_id(f"waybill.{record}", files[0].text)
    assert registry.compatibility(f"waybill.{record}") == FULL_TRANSITIVE


def test_keys_in_another_order_are_the_same_schema(registry: Registry, tmp_path: Path, record: str) -> None:
    (file,) = load_schemas(write(tmp_path, record, TEXT))
    first = registry.register(file.subject, file.text)
    document = json.loads(file.text)

    turned = json.dumps({key: document[key] for key in reversed(list(document))}, indent=7)

    assert registry.register(file.subject, turned) == first
    assert json.loads(registry.schema(first)) == document


def test_a_compatible_change_is_taken(registry: Registry, tmp_path: Path, record: str) -> None:
    first = apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT)))

    second = apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT, LATER)))

    assert second[0].state == "registered"
    assert second[0].schema_id != first[0].schema_id


@pytest.mark.parametrize("fields", [(TEXT, BARE), (LATER,)], ids=["field without default", "field taken away"])
def test_an_incompatible_change_is_refused_and_nothing_is_registered(
    registry: Registry, tmp_path: Path, record: str, fields: tuple[dict[str, Any], ...]
) -> None:
    apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT)))
    write(tmp_path, record, *fields)
    neighbour = f"{record}Neighbour"
    files = load_schemas(write(tmp_path, neighbour, TEXT))

    with pytest.raises(RefusedError, match=rf"{record}.avsc: not compatible") as refused:
        apply_schemas(registry, files)

    assert refused.value.rule == "schema_compatibility"
    # not even by another road
    with pytest.raises(RefusedError):
        registry.register(f"waybill.{record}", (tmp_path / f"{record}.avsc").read_text())
    assert registry.find(f"waybill.{neighbour}", (tmp_path / f"{neighbour}.avsc").read_text()) is None


def test_a_change_that_fits_the_last_version_only_is_refused(registry: Registry, tmp_path: Path, record: str) -> None:
    number = {"name": "number", "type": ["null", "long"], "default": None, "doc": "A count of it. [pii: none]"}
    words = {"name": "number", "type": ["null", "string"], "default": None, "doc": "Words for it. [pii: none]"}
    apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT, number)))
    apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT)))

    with pytest.raises(RefusedError):
        apply_schemas(registry, load_schemas(write(tmp_path, record, TEXT, words)))


def test_what_is_not_there_says_so(registry: Registry, record: str, tmp_path: Path) -> None:
    (file,) = load_schemas(write(tmp_path, record, TEXT))

    with pytest.raises(ConfigError, match="waybill schemas apply"):
        registry.schema_id(file.subject, file.text)
    with pytest.raises(ContractError, match="schema id 999999999 is not in the registry"):
        registry.schema(999_999_999)
