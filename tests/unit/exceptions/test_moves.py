"""Who may move an exception, when, and where it leads."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from waybill.exceptions.core.moves import (
    CLOCK,
    MOVES,
    Draft,
    ExceptionRecord,
    ExceptionState,
    Move,
    check_draft,
    judge,
)
from waybill.kernel.errors import RefusedError
from waybill.kernel.lifecycle import unreachable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
END = NOW + timedelta(days=30)


def record(**changes: Any) -> ExceptionRecord:
    values: dict[str, Any] = {
        "exception_id": UUID(int=1),
        "tenant": "acme",
        "destination": "crm",
        "delivery_id": UUID(int=2),
        "source": "https://law.example/17",
        "reason": "kept for the tax office",
        "permits_closure": True,
        "opened_by": "ann",
        "opened_at": NOW,
        "reviewer": "bob",
        "expires_at": END,
        "state": ExceptionState.OPENED,
        "moved_by": None,
        "moved_at": None,
        "moved_why": None,
    }
    return ExceptionRecord(**{**values, **changes})


def draft(**changes: Any) -> Draft:
    return Draft(**{field.name: getattr(record(**changes), field.name) for field in fields(Draft)})


def refused(move: Move, by: str, now: datetime, **changes: Any) -> str | None:
    try:
        judge(record(**changes), move, by, now)
    except RefusedError as error:
        return error.rule
    return None


def test_the_moves_are_these_and_an_end_is_final() -> None:
    assert {f"{state}+{move}={end}" for (state, move), end in MOVES.items()} == {
        "opened+approve=approved",
        "opened+reject=rejected",
        "opened+expire=expired",
        "approved+reject=rejected",
        "approved+expire=expired",
    }
    assert unreachable(MOVES, ExceptionState, ExceptionState.OPENED) == set()


@pytest.mark.parametrize("state", ExceptionState)
@pytest.mark.parametrize("move", Move)
def test_a_move_leads_where_the_table_says_or_is_refused(state: ExceptionState, move: Move) -> None:
    standing = record(state=state)
    by, now = (CLOCK, END) if move is Move.EXPIRE else ("bob", NOW)

    if (state, move) in MOVES:
        assert judge(standing, move, by, now) is MOVES[state, move]
    else:
        with pytest.raises(RefusedError, match="leads nowhere"):
            judge(standing, move, by, now)


@pytest.mark.requirement("RS-14")
@pytest.mark.parametrize("maker", ["ann", "Ann", " ANN "])
@pytest.mark.parametrize("move", [Move.APPROVE, Move.REJECT])
def test_who_opened_it_does_not_judge_it(maker: str, move: Move) -> None:
    assert refused(move, maker, NOW) == "maker-checker"
    assert refused(move, maker, NOW, reviewer=maker) == "maker-checker", "whoever is said to review it"


def test_only_its_reviewer_judges_it() -> None:
    assert (refused(Move.APPROVE, "cid", NOW), refused(Move.APPROVE, "bob", NOW)) == ("reviewer", None)


def test_what_is_over_is_not_approved_and_what_is_not_does_not_expire() -> None:
    before = END - timedelta(microseconds=1)

    assert (refused(Move.APPROVE, "bob", before), refused(Move.APPROVE, "bob", END)) == (None, "expiry")
    assert (refused(Move.EXPIRE, CLOCK, before), refused(Move.EXPIRE, CLOCK, END)) == ("expiry", None)
    assert refused(Move.REJECT, "bob", END) is None


@pytest.mark.requirement("RS-9")
@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"source": ""}, "source"),
        ({"source": "see the ticket"}, "source"),
        ({"source": "https:"}, "source"),
        ({"source": "https://a b"}, "source"),
        ({"reason": " "}, "reason"),
        ({"reviewer": " "}, "reviewer"),
        ({"expires_at": NOW}, "expiry"),
        ({"reviewer": " ANN"}, "maker-checker"),
    ],
)
def test_nobody_is_asked_to_approve_what_lacks_something(changes: dict[str, Any], rule: str) -> None:
    check_draft(draft(), NOW)
    with pytest.raises(RefusedError) as refusal:
        check_draft(draft(**changes), NOW)

    assert refusal.value.rule == rule


def test_it_is_in_force_while_it_is_approved_and_not_over() -> None:
    approved = record(state=ExceptionState.APPROVED)

    assert [approved.is_in_force(at) for at in (NOW, END - timedelta(seconds=1), END)] == [True, True, False]
    assert not any(replace(approved, state=state).is_in_force(NOW) for state in set(ExceptionState) - {"approved"})
