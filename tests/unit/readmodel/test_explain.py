"""The four answers, for every state."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from waybill.contracts.states import State
from waybill.readmodel.core.explain import Answers, Standing, explain, explain_unseen

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def standing(**changes: Any) -> Standing:
    facts: dict[str, Any] = {
        "tenant": "acme",
        "destination": "crm",
        "state": State.QUEUED,
        "attempts": 0,
        "error_code": None,
        "detail": None,
        "next_due": None,
        "expires_at": LATER,
        "updated_at": None,
        "owner": "privacy-team",
    }
    return Standing(**{**facts, **changes})


@pytest.mark.requirement("OB-2")
@pytest.mark.parametrize("state", list(State))
def test_every_state_has_all_four_answers(state: State) -> None:
    answers = explain(standing(state=state, attempts=2, next_due=LATER), NOW)

    assert answers.happened
    assert answers.next
    assert answers.owner
    assert (answers.by is not None) == (state not in {State.ACKNOWLEDGED, State.FAILED, State.DEAD_LETTER})


@pytest.mark.parametrize(
    ("facts", "owner", "by", "words"),
    [
        # the worker acts until it has given up, then the team that answers for the destination
        ({"state": State.QUEUED}, "worker of acme/crm", LATER, "the worker sends it"),
        ({"state": State.QUEUED, "waits_for": 3}, "worker of acme/crm", LATER, "number 3"),
        ({"state": State.QUEUED, "expires_at": EARLIER}, "worker of acme/crm", EARLIER, "ends it without sending"),
        ({"state": State.QUEUED, "dead_letter": "unknown_destination"}, "privacy-team", LATER, "people decide"),
        ({"state": State.RETRYING, "next_due": LATER}, "worker of acme/crm", LATER, "waits for its time"),
        ({"state": State.RETRYING, "next_due": EARLIER}, "worker of acme/crm", EARLIER, "due now"),
        ({"state": State.AMBIGUOUS}, "privacy-team", LATER, "not sent again blindly"),
        ({"state": State.DELIVERED, "next_due": LATER}, "privacy-team", LATER, "result"),
        ({"state": State.DELIVERED, "detail": "handed_over"}, "privacy-team", LATER, "once they have read past it"),
        ({"state": State.FAILED, "owner": None}, "the destination's owner", None, "people decide"),
        ({"state": State.ACKNOWLEDGED}, "nobody", None, "nothing"),
    ],
)
def test_next_step_has_the_one_who_takes_it(facts: dict[str, Any], owner: str, by: datetime | None, words: str) -> None:
    answers = explain(standing(**facts), NOW)

    assert (answers.owner, answers.by) == (owner, by)
    assert words in answers.next


def test_failure_names_its_code_and_detail() -> None:
    answers = explain(standing(state=State.FAILED, attempts=1, error_code="POLICY_BLOCK", detail="expired"), NOW)

    assert answers.happened == "ended without effect after 1 attempt: POLICY_BLOCK: expired"


@pytest.mark.parametrize(
    ("detail", "next_step"),
    [
        (
            "egress_metadata",
            "metadata services are never a destination; correct the url or its DNS record; then people",
        ),
        (
            "egress_private",
            "if this private network is meant, add it to the tenant's allowNetworks; then people decide",
        ),
        ("egress_of_a_later_version", "people decide"),
        ("redirect_refused", "people decide"),
    ],
)
def test_where_waybill_does_not_go_the_next_step_says_what_to_correct(detail: str, next_step: str) -> None:
    answers = explain(standing(state=State.FAILED, attempts=1, error_code="POLICY_BLOCK", detail=detail), NOW)

    assert answers.next.startswith(next_step)


@pytest.mark.requirement("OB-2")
@pytest.mark.parametrize(
    ("committed_at", "in_topic", "happened", "owner"),
    [
        (NOW - timedelta(seconds=3), None, "committed, relay lag 3 s", "relay"),
        (NOW + timedelta(seconds=3), None, "committed, relay lag 0 s", "relay"),  # their clock is ahead of ours
        (NOW, "partition 2 offset 17", "in topic, partition 2 offset 17; the read model has not reached it", None),
    ],
)
def test_command_is_explained_before_any_worker_saw_it(
    committed_at: datetime, in_topic: str | None, happened: str, owner: str | None
) -> None:
    answers = explain_unseen(committed_at=committed_at, in_topic=in_topic, expires_at=LATER, now=NOW)

    assert answers.happened == happened
    assert answers.by == LATER
    if owner is not None:
        assert answers == Answers(happened=happened, next="the relay publishes it", owner=owner, by=LATER)
