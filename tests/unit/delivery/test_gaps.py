"""Behind what a lane goes on by itself, and what its listener is told of it."""

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest

from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import Command
from waybill.contracts.envelope import Resolution
from waybill.contracts.fabric import OnUnsettled, Proof
from waybill.contracts.problem import Problem, render_problem
from waybill.contracts.states import State
from waybill.delivery.core.answer import judge_answer
from waybill.delivery.core.gaps import CANCELLED, SUPERSEDED, entry_of, goes_on, resolution_id
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.retry import EXPIRED

DELIVERY = "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
HALT, CONTINUE = OnUnsettled.HALT, OnUnsettled.CONTINUE


def ended(command: Command, detail: str | None) -> Item:
    item = Item(40, command.aggregate, 7, (b"subject/1", [], b"{}"))
    item.command, item.delivery_id, item.detail, item.expires_at = command, DELIVERY, detail, command.expires_at
    return item


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize(
    ("detail", "on_unsettled", "on_expiry", "goes"),
    [
        ("conflict", HALT, CONTINUE, False),  # a refusal waits for people
        ("conflict", CONTINUE, HALT, True),
        ("timeout", HALT, CONTINUE, False),  # so does what may have happened
        (EXPIRED, HALT, CONTINUE, True),  # expiry has a setting of its own
        (EXPIRED, CONTINUE, HALT, False),
        (CANCELLED, HALT, HALT, True),  # somebody decided already
        (SUPERSEDED, HALT, HALT, True),
        ("unreadable", HALT, CONTINUE, False),
        ("unreadable", CONTINUE, HALT, True),
    ],
)
def test_behind_which_end_a_lane_goes_on(
    make_command: Callable[..., Command],
    detail: str,
    on_unsettled: OnUnsettled,
    on_expiry: OnUnsettled,
    goes: bool,
) -> None:
    command = make_command()
    halting = frozenset({command.command_type}) if on_expiry is HALT else frozenset()

    assert goes_on(ended(command, detail), on_unsettled, halting) is goes


def test_a_resolution_that_is_refused_for_good_halts_its_lane(make_command: Callable[..., Command]) -> None:
    item = ended(make_command(), "bad_request")
    item.is_resolution = True

    assert not goes_on(item, CONTINUE, frozenset())


@pytest.mark.requirement("DC-13", "DC-21")
@pytest.mark.parametrize(
    ("detail", "before_expiry", "told"),
    [
        ("conflict", True, Resolution.DEFERRED),  # people may redrive it
        ("conflict", False, Resolution.FINAL),
        ("timeout", True, Resolution.DEFERRED),  # a proof of no effect brings it back
        ("timeout", False, Resolution.FINAL),
        (CANCELLED, True, Resolution.FINAL),
        (SUPERSEDED, True, Resolution.FINAL),
        (EXPIRED, True, Resolution.FINAL),  # by the clock that ended it
        ("unreadable", True, Resolution.FINAL),
    ],
)
def test_what_a_listener_is_told_of_an_end(
    make_command: Callable[..., Command], detail: str, before_expiry: bool, told: Resolution
) -> None:
    command = make_command()
    now = command.expires_at + (-timedelta(seconds=1) if before_expiry else timedelta(0))

    entry = entry_of(ended(command, detail), now)

    assert (entry.sequence, entry.delivery_id, entry.resolution) == (7, uuid.UUID(DELIVERY), told)


def test_each_end_of_a_delivery_has_a_resolution_of_its_own() -> None:
    ids = {resolution_id(DELIVERY, version) for version in range(1, 5)}

    assert len(ids) == 4
    assert resolution_id(DELIVERY, 1) in ids, "the same end is told under the same identity"


@pytest.mark.requirement("DC-13")
def test_a_refusal_for_a_gap_is_tried_again_and_says_what_is_missing() -> None:
    refusal = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="gap", status=425, expected_sequence=4)

    verdict = judge_answer(425, render_problem(refusal), delivery_id=DELIVERY, proof=Proof.RECEIPT, wait_s=None)

    assert (verdict.is_retried, verdict.detail, verdict.expected_sequence) == (True, "gap", 4)
    assert not verdict.may_have_acted


@pytest.mark.requirement("AM-2")
def test_a_lane_waits_behind_an_unknown_end_that_can_be_asked_about(make_command: Callable[..., Command]) -> None:
    item = ended(make_command(), "timeout")
    item.state = State.AMBIGUOUS

    assert goes_on(item, CONTINUE, frozenset())
    assert not goes_on(item, CONTINUE, frozenset(), is_asked=True)
