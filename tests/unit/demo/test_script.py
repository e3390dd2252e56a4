"""What the producers do: so many commands, in an order a subject or incident can have, and nothing personal."""

from collections import defaultdict

import pytest

from waybill.demo.core.script import INCIDENT_STEPS, ROLLED_BACK_EVERY, SUBJECT_STEPS, plan_steps


@pytest.mark.parametrize("commands", [2, 20, 21, 400])
def test_plan_has_the_commands_that_were_asked_for(commands: int) -> None:
    steps = plan_steps(commands, "run", privacy="p", dispatch="d")

    assert len(steps) == commands
    assert {step.tenant for step in steps} == {"p", "d"}


def test_each_aggregate_takes_its_steps_in_order() -> None:
    lives = defaultdict(list)
    for step in plan_steps(400, "run", privacy="p", dispatch="d"):
        lives[step.aggregate_type, step.aggregate_id].append(step.command_type)

    stories = {"subject": [name for name, _ in SUBJECT_STEPS], "incident": [name for name, _ in INCIDENT_STEPS]}
    assert all(story == stories[kind][: len(story)] for (kind, _), story in lives.items())


def test_some_transactions_are_rolled_back_first() -> None:
    steps = plan_steps(100, "run", privacy="p", dispatch="d")

    assert sum(step.is_rolled_back_first for step in steps) == 100 // ROLLED_BACK_EVERY


def test_two_runs_share_no_aggregate() -> None:
    first, second = (
        {step.aggregate_id for step in plan_steps(50, run, privacy="p", dispatch="d")} for run in ("a", "b")
    )

    assert not first & second
