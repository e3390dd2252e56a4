"""Whose turn it is at a listener that takes deliveries in order only."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.envelope import Resolution
from waybill.listener.core.sequencing import Told, advance, check_turn

ME, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
FINAL = Told(delivery_id=ME, resolution=Resolution.FINAL)
DEFERRED = Told(delivery_id=ME, resolution=Resolution.DEFERRED)
NEXT, EARLY, OLD = None, (425, "gap", 5), (409, "older_sequence", None)


@pytest.mark.requirement("DC-12", "DC-13")
@pytest.mark.parametrize(
    ("sequence", "told", "answer"),
    [
        (5, {}, NEXT),
        (6, {}, EARLY),
        (7, {6: FINAL}, EARLY),  # 5 is still missing
        (4, {}, OLD),
        (4, {4: DEFERRED}, NEXT),  # said to come later
        (4, {4: FINAL}, OLD),  # said never to come
        (4, {4: Told(delivery_id=OTHER, resolution=Resolution.DEFERRED)}, OLD),  # another delivery was
        (4, {3: DEFERRED}, OLD),
        (1, {}, OLD),
    ],
)
def test_whose_turn_it_is_after_the_fourth(
    sequence: int, told: dict[int, Told], answer: tuple[int, str, int | None] | None
) -> None:
    refused = check_turn(sequence, ME, 4, told)

    assert (refused and (refused.status, refused.reason, refused.expected_sequence)) == answer


@given(last=st.integers(0, 50), told=st.sets(st.integers(1, 60)))
def test_only_what_was_told_without_a_hole_is_passed_over(last: int, told: set[int]) -> None:
    reached = advance(last, told)

    assert set(range(last + 1, reached + 1)) <= told
    assert reached + 1 not in told
