"""A closed row outlives every copy of its command."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.catalog import load_topics
from waybill.delivery.core.keeping import COMMANDS_KEPT, drop_before, is_old

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.requirement("AT-2")
def test_a_row_outlives_a_copy_written_when_the_first_was_about_to_go() -> None:
    closed = NOW
    written_again = closed + COMMANDS_KEPT
    last_read = written_again + COMMANDS_KEPT

    assert drop_before(last_read) <= closed
    assert drop_before(last_read + timedelta(milliseconds=1)) > closed


def test_what_the_topic_keeps_is_what_its_file_says() -> None:
    (commands,) = [topic for topic in load_topics() if topic.name == "commands"]

    assert commands.retention_ms == COMMANDS_KEPT / timedelta(milliseconds=1)


@pytest.mark.requirement("DC-1")
@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (timedelta(), False),
        (timedelta(days=15) - timedelta(milliseconds=1), False),
        (timedelta(days=15), True),
        (timedelta(days=29), True),  # a day is left
        (timedelta(days=-1), False),  # its producer's clock is ahead
    ],
)
def test_a_record_is_old_when_half_of_its_time_is_over(age: timedelta, expected: bool) -> None:
    assert is_old(NOW - age, NOW) is expected
