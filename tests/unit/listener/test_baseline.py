"""Which parts of a baseline a listener takes, as one table, and that nothing counts before the statement is whole."""

import itertools
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.baseline import BaselinePart, LaneStart, part_id, render_lanes, statement_digest
from waybill.contracts.problem import Problem
from waybill.kernel.ids import Aggregate, DestinationName, Tenant
from waybill.listener.core.baseline import Asked, Step, judge_part

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BASELINE = uuid.UUID(int=7)


def statement(count: int, baseline: uuid.UUID = BASELINE, **changes: Any) -> list[BaselinePart]:
    """A statement of so many parts, one aggregate in each."""
    lanes = [(LaneStart(aggregate=Aggregate(f"subject/{number}"), next=number + 2),) for number in range(count)]
    digests = [sha256(render_lanes(each)).hexdigest() for each in lanes]
    return [
        replace(
            BaselinePart(
                part_id=part_id(baseline, number),
                baseline_id=baseline,
                tenant=Tenant("acme"),
                destination=DestinationName("crm"),
                source="urn:waybill:control:acme:crm",
                issued_at=NOW,
                expires_at=NOW + timedelta(hours=1),
                config_version=1,
                nonce="n1",
                part=number,
                parts=count,
                digest=statement_digest(digests),
                lanes=lanes[number - 1],
                data_sha256=digests[number - 1],
            ),
            **changes,
        )
        for number in range(1, count + 1)
    ]


def after(taken: list[BaselinePart], nonce: str = "n1", applied_at: datetime | None = None) -> Asked:
    """What a listener that asked with a nonce knows when it has taken parts."""
    if not taken:
        return Asked(nonce=nonce)
    first = taken[0]
    return Asked(
        nonce=nonce,
        baseline_id=first.baseline_id,
        digest=first.digest,
        parts=first.parts,
        applied_at=applied_at,
        staged={part.part: part.data_sha256 for part in taken},
    )


ONE, (FIRST, SECOND, THIRD) = statement(1)[0], statement(3)
OTHER = statement(3, uuid.UUID(int=8))
LATE = {"expires_at": NOW}
LIE = "f" * 64
TABLE: list[tuple[BaselinePart, Asked | None, str]] = [
    (ONE, None, "409 baseline_not_asked"),
    (ONE, Asked(nonce="n1"), "apply"),
    (FIRST, Asked(nonce="n1"), "stage"),
    (SECOND, Asked(nonce="n1"), "stage"),
    (SECOND, after([FIRST]), "stage"),
    (THIRD, after([FIRST, SECOND]), "apply"),
    (FIRST, after([SECOND, THIRD]), "apply"),
    # A repeat is known, before the end and after it.
    (FIRST, after([FIRST, SECOND]), "staged"),
    (FIRST, after([FIRST, SECOND, THIRD], applied_at=NOW), "applied"),
    (replace(FIRST, **LATE), after([FIRST, SECOND, THIRD], applied_at=NOW), "applied"),
    # Made for another time it was asked.
    (ONE, Asked(nonce="n2"), "409 baseline_nonce"),
    (FIRST, after([FIRST, SECOND, THIRD], nonce="n2", applied_at=NOW), "409 baseline_nonce"),
    (replace(ONE, nonce=""), Asked(nonce="n1"), "409 baseline_nonce"),
    # Another statement for the same time, before the end and after it.
    (OTHER[1], after([FIRST]), "409 baseline_differs"),
    (OTHER[0], after([FIRST, SECOND, THIRD], applied_at=NOW), "409 baseline_differs"),
    (replace(SECOND, digest=LIE), after([FIRST]), "409 baseline_differs"),
    (replace(SECOND, parts=2), after([FIRST]), "409 baseline_differs"),
    (replace(FIRST, data_sha256=LIE), after([FIRST]), "409 baseline_differs"),
    (replace(FIRST, data_sha256=LIE), after([FIRST, SECOND, THIRD], applied_at=NOW), "409 baseline_differs"),
    # Whole, and not what was approved.
    (replace(THIRD, data_sha256=LIE), after([FIRST, SECOND]), "409 baseline_digest"),
    (replace(ONE, digest=LIE), Asked(nonce="n1"), "409 baseline_digest"),
    # The instant of expiry itself is too late.
    (replace(ONE, **LATE), Asked(nonce="n1"), "422 expired"),
    (replace(FIRST, **LATE), after([FIRST]), "422 expired"),
]  # fmt: skip


def said(found: Step | Problem) -> str:
    return f"{found.status} {found.reason}" if isinstance(found, Problem) else found.value


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize(("part", "asked", "answer"), TABLE)
def test_a_part_is_taken_only_where_it_belongs(part: BaselinePart, asked: Asked | None, answer: str) -> None:
    assert said(judge_part(part, asked, NOW)) == answer


@given(st.integers(1, 4).flatmap(lambda count: st.permutations(range(count))), st.data())
def test_in_any_order_with_any_repeats_the_last_that_was_missing_lets_it_count(
    order: list[int], data: st.DataObject
) -> None:
    parts = statement(len(order))
    taken: list[BaselinePart] = []
    for position, number in enumerate(order):
        for again in data.draw(st.lists(st.sampled_from(taken), max_size=2)) if taken else []:
            assert judge_part(again, after(taken), NOW) is Step.STAGED
        expected = Step.APPLY if position == len(order) - 1 else Step.STAGE
        assert judge_part(parts[number], after(taken), NOW) is expected
        taken.append(parts[number])


def test_parts_of_two_statements_never_make_one() -> None:
    """Whatever mixture comes, with whatever it says of itself: only the parts that were approved together count."""
    ours, theirs = statement(2), statement(2, uuid.UUID(int=9))
    changed = [replace(part, data_sha256=LIE) for part in ours]
    for first, second in itertools.product([ours[0], theirs[0], changed[0]], [ours[1], theirs[1], changed[1]]):
        found = judge_part(second, after([first]), NOW)

        assert (found is Step.APPLY) == ((first, second) in {(ours[0], ours[1]), (theirs[0], theirs[1])})
