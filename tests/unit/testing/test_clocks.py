"""The movable clock moves only as told."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.testing import MovableClock


def test_clock_advance_moves_wall_and_monotonic_time_together(clock: MovableClock):
    wall, count = clock.now(), clock.monotonic()

    clock.advance(90)

    assert clock.now() - wall == timedelta(seconds=90)
    assert clock.monotonic() - count == 90


def test_clock_jump_moves_the_wall_alone(clock: MovableClock):
    count = clock.monotonic()

    clock.jump(datetime(2020, 1, 1, tzinfo=UTC))

    assert clock.now().year == 2020
    assert clock.monotonic() == count


def test_clock_refuses_to_go_back_by_advance(clock: MovableClock):
    with pytest.raises(ValueError, match="jump"):
        clock.advance(-1)


def test_clock_refuses_a_naive_start():
    with pytest.raises(ValueError, match="time zone"):
        MovableClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the naive value is the case
