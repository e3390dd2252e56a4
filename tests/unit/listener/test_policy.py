"""What a policy blocks, and how its file is read."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.policy import app
from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import Envelope, render
from waybill.contracts.envelope_reader import parse
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName
from waybill.listener.core.policy import Rules
from waybill.listener.policy_file import PolicyFile, read_policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MakeCommand = Callable[..., Command]

HOLD = "legalHolds: [{aggregates: [subject/8f14e45f], reference: case-1%s}]"
PURPOSE = "purposes: [{member: why.purpose, allowed: [erasure], commands: [subject.erase]}]"
REGION = "regions: [{member: region, allowed: [eu-1, eu-2]}]"
BUDGET = "piiBudgets: [{members: [subject, address.city, tags]}]"


def policy(text: str) -> bytes:
    return b"apiVersion: waybill/policy/v1\n" + text.encode()


def rules(*texts: str) -> Rules:
    found = read_policy(policy("\n".join(texts)))
    assert isinstance(found, Rules), found
    return found


def envelope(make_command: MakeCommand, data: str = '{"subject":"8f14e45f"}', **changes: object) -> Envelope:
    found = parse(render(make_command(data=data.encode(), **changes), DestinationName("crm")))
    assert isinstance(found, Envelope)
    return found


@pytest.mark.requirement("DC-14")
@pytest.mark.parametrize(
    ("text", "data", "rule"),
    [
        ("", "{}", None),
        (HOLD % "", "{}", "legal_hold"),
        (HOLD % ", commands: [subject.erase]", "{}", "legal_hold"),
        (HOLD % ", commands: ['*']", "{}", "legal_hold"),
        (HOLD % ", commands: [subject.export]", "{}", None),
        (HOLD % ', until: "2026-01-01T00:00:00.001Z"', "{}", "legal_hold"),
        # The instant itself: it holds no more.
        (HOLD % ', until: "2026-01-01T00:00:00.000Z"', "{}", None),
        ('legalHolds: [{aggregates: ["subject/*"], reference: x}]', "{}", "legal_hold"),
        ('legalHolds: [{aggregates: ["household/*", subject/8f14], reference: x}]', "{}", None),
        (PURPOSE, '{"why":{"purpose":"erasure"}}', None),
        (PURPOSE, '{"why":{"purpose":"marketing"}}', "purpose"),
        # A rule that applies and cannot be judged blocks.
        (PURPOSE, '{"why":{"purpose":1}}', "purpose"),
        (PURPOSE, '{"why":{"purpose":"erasure","purpose":"marketing"}}', "purpose"),
        (PURPOSE, "[]", "purpose"),
        (PURPOSE, "{}", "purpose"),
        (PURPOSE.replace("subject.erase", "subject.export"), "{}", None),
        (REGION, '{"region":"eu-2"}', None),
        (REGION, '{"region":"us-1"}', "region"),
        (BUDGET, '{"subject":"x","address":{"city":"y"},"tags":["a",{"b":1}]}', None),
        (BUDGET, '{"subject":{"name":{"first":"x"}}}', None),
        (BUDGET, '{"subject":"x","email":"y"}', "pii_budget"),
        (BUDGET, '{"address":{"city":"y","street":"z"}}', "pii_budget"),
        (BUDGET, '{"address":[{"city":"y"},{"street":"z"}]}', "pii_budget"),
        (BUDGET, '{"address":"everything in one line"}', "pii_budget"),
        (BUDGET, '"8f14e45f"', "pii_budget"),
        # Several: legal hold, purpose, region, budget.
        (f"{BUDGET}\n{REGION}\n{PURPOSE}\n{HOLD % ''}", '{"email":"y"}', "legal_hold"),
        (f"{BUDGET}\n{REGION}\n{PURPOSE}", '{"email":"y"}', "purpose"),
        (f"{BUDGET}\n{REGION}", '{"email":"y"}', "region"),
    ],
)
def test_what_a_policy_blocks(text: str, data: str, rule: str | None, make_command: MakeCommand) -> None:
    block = rules(text).judge(envelope(make_command, data), NOW)

    assert (block.rule.value if block else None) == rule


@pytest.mark.requirement("DC-14")
@pytest.mark.parametrize("text", [PURPOSE, REGION, BUDGET])
def test_data_that_cannot_be_read_are_blocked(text: str, make_command: MakeCommand) -> None:
    sealed = envelope(make_command, "sealed", data_form=DataForm.SEALED, data_key_id="k")

    assert rules(text).judge(sealed, NOW) is not None


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("apiVersion: waybill/policy/v2\n", 1, "apiVersion"),
        ("legalHolds: []\n", 1, "apiVersion"),
        ("", 1, ""),
        ("{", 1, ""),
        ("apiVersion: waybill/policy/v1\nlegalHold: []\n", 2, "legalHold"),
        ("apiVersion: waybill/policy/v1\nlegalHolds: {}\n", 2, "legalHolds"),
        ("apiVersion: waybill/policy/v1\nlegalHolds:\n  - aggregates: [subject/1]\n", 3, "legalHolds[0].reference"),
        (
            "apiVersion: waybill/policy/v1\nlegalHolds:\n  - reference: x\n    aggregates: [subject]\n",
            4,
            "legalHolds[0].aggregates",
        ),
        (
            "apiVersion: waybill/policy/v1\nlegalHolds:\n  - aggregates: [a/1]\n    reference: x\n    until: tomorrow\n",
            5,
            "legalHolds[0].until",
        ),
        ("apiVersion: waybill/policy/v1\nregions:\n- member: a\n  allowed: [eu, 1]\n", 4, "regions[0].allowed[1]"),
        ("apiVersion: waybill/policy/v1\nregions:\n- member: a\n  member: b\n  allowed: [c]\n", 4, "regions[0].member"),
        ("apiVersion: waybill/policy/v1\npiiBudgets:\n- members: []\n", 3, "piiBudgets[0].members"),
        ("apiVersion: waybill/policy/v1\npiiBudgets: &x []\npurposes: *x\n", 1, ""),
    ],
)
def test_what_is_wrong_is_told_with_line_and_field(text: str, line: int, field: str) -> None:
    found = read_policy(text.encode())

    assert not isinstance(found, Rules)
    assert (found[0].line, found[0].field) == (line, field)


def test_every_wrong_entry_is_told_at_once() -> None:
    found = read_policy(policy("piiBudgets:\n- members: []\n- members: [a]\n- {}\n"))

    assert not isinstance(found, Rules)
    assert [problem.line for problem in found] == [3, 5]


def test_a_file_is_followed_and_one_that_went_bad_does_not_lift_a_hold(
    tmp_path: Path, make_command: MakeCommand
) -> None:
    path, command = tmp_path / "policy.yaml", envelope(make_command)
    path.write_bytes(policy(""))
    file = PolicyFile(path)
    before = file.current().judge(command, NOW)

    path.write_bytes(policy(HOLD % ""))
    held = file.current().judge(command, NOW)
    path.write_bytes(b"apiVersion: [")
    still_held = file.current().judge(command, NOW)
    path.unlink()

    assert before is None
    assert held is not None
    assert still_held == held == file.current().judge(command, NOW)


def test_a_file_that_was_never_good_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(policy("regions: [{}]"))

    for _ in range(2):
        with pytest.raises(ConfigError):
            PolicyFile(path).current()


def test_the_command_says_what_is_there_and_what_is_wrong(tmp_path: Path) -> None:
    path, run = tmp_path / "policy.yaml", CliRunner()
    path.write_bytes(policy(REGION))
    good = run.invoke(app, ["check", str(path), "--json"])
    path.write_bytes(policy("regions: [{}]"))
    bad = run.invoke(app, ["check", str(path), "--json"])
    shown = run.invoke(app, ["check", str(path)])

    assert (good.exit_code, json.loads(good.stdout)["rules"]["regions"]) == (0, 1)
    assert (bad.exit_code, shown.exit_code) == (2, 2)
    assert [problem["field"] for problem in json.loads(bad.stdout)["problems"]] == ["regions[0].allowed"]
