"""The pages about `fabric.yaml` say what the code does."""

from pathlib import Path

import pytest

from waybill.catalog import load_topics
from waybill.contracts.fabric import HORIZON_MARGIN_S, MAX_TTL_S, FabricConfig
from waybill.fabric import Step, parse
from waybill.fabric.core.rules import RULES


@pytest.mark.parametrize("rule", RULES)
def test_the_reference_lists_every_rule(checkout: Path, rule: str) -> None:
    page = (checkout / "docs" / "reference" / "fabric-yaml.md").read_text()

    assert f"| `{rule}` | {RULES[rule]} |" in page


def test_the_guide_lists_the_steps_of_an_apply_in_their_order(checkout: Path) -> None:
    page = (checkout / "docs" / "configuration.md").read_text()

    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(Step)


def test_the_example_is_accepted(checkout: Path) -> None:
    assert isinstance(parse((checkout / "docs" / "examples" / "fabric.yaml").read_bytes()), FabricConfig)


def test_the_longest_ttl_ends_before_the_commands_topic_forgets() -> None:
    (commands,) = [topic for topic in load_topics() if topic.name == "commands"]

    assert commands.retention_ms is not None
    assert commands.retention_ms / 1000 >= MAX_TTL_S + HORIZON_MARGIN_S
