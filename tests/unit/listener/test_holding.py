"""What waits of an aggregate whose turn has not come: bounded by count and age, released in order."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.listener.core.holding import Bounds, Hold, hold, release

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOUNDS = Bounds(max_count=3, max_age=timedelta(minutes=5))


def holding(*sequences: int) -> Hold:
    held = Hold()
    for sequence in sequences:
        found = hold(held, sequence, BOUNDS, NOW)
        assert found is not None
        held = found
    return held


@pytest.mark.parametrize(("count", "fits"), [(2, True), (3, False)])
def test_no_more_wait_than_may(count: int, fits: bool) -> None:
    held = holding(*range(5, 5 + count))

    assert (hold(held, 99, BOUNDS, NOW) is not None) is fits


def test_a_copy_keeps_its_place_and_its_age() -> None:
    held = holding(5, 6, 7)

    assert hold(held, 6, BOUNDS, NOW + timedelta(minutes=4)) == held


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize(
    ("waiting", "last", "freed"),
    [((3, 4, 5), 2, (3, 4, 5)), ((4, 5), 2, ()), ((5, 3), 2, (3,)), ((1, 4), 2, (1,)), ((7, 8), 6, (7, 8))],
)
def test_what_is_in_a_row_behind_the_last_one_is_released(
    waiting: tuple[int, ...], last: int, freed: tuple[int, ...]
) -> None:
    assert release(holding(*waiting), last) == freed


def test_what_waits_too_long_is_overdue_and_not_a_moment_before() -> None:
    held = holding(5, 6)

    assert held.overdue(BOUNDS, NOW + BOUNDS.max_age) == ()
    assert held.overdue(BOUNDS, NOW + BOUNDS.max_age + timedelta(microseconds=1)) == (5, 6)
    assert held.without(5).overdue(BOUNDS, NOW + timedelta(hours=1)) == (6,)
