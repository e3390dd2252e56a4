"""What the command line refuses before it asks anybody."""

import pytest
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.kernel.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("deliveries", "skip", "--why", "x"), "a delivery id, or --hole"),
        (("deliveries", "skip", "abcd", "--hole", "t", "d", "a/1", "2", "--why", "x"), "a delivery id, or --hole"),
    ],
)
def test_what_is_to_be_skipped_is_said_once(words: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(root, list(words))

    assert isinstance(result.exception, ConfigError)
    assert says in str(result.exception)


@pytest.mark.parametrize("command", [("cancel",), ("deliveries", "redrive"), ("deliveries", "skip")])
def test_a_decision_needs_a_reason(command: tuple[str, ...]) -> None:
    assert CliRunner().invoke(root, [*command, "abcd"]).exit_code == 2
