"""`docs/reference/fabric-yaml.md` says what the code does: keys, rules, and an example that is accepted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from waybill.catalog import load_topics
from waybill.contracts.fabric import FabricConfig
from waybill.fabric import parse
from waybill.fabric.core.rules import HORIZON_MARGIN_S, MAX_TTL_S, RULES
from waybill.fabric.core.shape import (
    DESTINATION,
    OUTBOX,
    RETRY,
    ROUTE,
    SECRET,
    TENANT,
    TIMEOUTS,
    Field,
    Kind,
    Many,
    Set,
    Shape,
)

SHAPES = [TENANT, OUTBOX, DESTINATION, RETRY, TIMEOUTS, ROUTE, SECRET]


def expected(kind: object) -> str:
    if isinstance(kind, Set):
        return f"list, each {kind.item.expected}"
    if isinstance(kind, Many):
        return f"list of {kind.item.noun} objects"
    if isinstance(kind, Shape):
        return kind.expected if kind is SECRET else f"{kind.noun} object"
    assert isinstance(kind, Kind)
    return kind.expected


def default(shape: Shape, field: Field) -> str:
    if field.required:
        return "required"
    value = shape.default(field.attr)
    if isinstance(field.kind, Kind):
        return f"`{field.kind.write(value)}`" if value not in (None, "") else ""
    if isinstance(field.kind, Set):
        return ", ".join(f"`{each}`" for each in sorted(field.kind.item.write(item) for item in value))
    return ""


def key_lines(shape: Shape) -> Iterator[str]:
    for field in shape.fields:
        yield f"| `{field.key}` | {expected(field.kind)} | {default(shape, field)} | {field.meaning} |"


def rule_lines() -> Iterator[str]:
    for rule, sentence in RULES.items():
        yield f"| `{rule}` | {sentence} |"


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "reference" / "fabric-yaml.md").read_text()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.noun)
def test_the_page_lists_the_keys_of_each_object_in_their_order(page: str, shape: Shape) -> None:
    assert "| --- |\n" + "\n".join(key_lines(shape)) + "\n\n" in page


def test_the_page_lists_every_rule_in_its_order(page: str) -> None:
    assert "| --- |\n" + "\n".join(rule_lines()) + "\n\n" in page


def test_the_example_is_accepted(checkout: Path) -> None:
    assert isinstance(parse((checkout / "docs" / "examples" / "fabric.yaml").read_bytes()), FabricConfig)


def test_the_longest_ttl_ends_before_the_commands_topic_forgets() -> None:
    (commands,) = [topic for topic in load_topics() if topic.name == "commands"]

    assert commands.retention_ms is not None
    assert commands.retention_ms / 1000 >= MAX_TTL_S + HORIZON_MARGIN_S
