"""A closed row outlives every copy of its command."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.catalog import load_topics
from waybill.delivery.core.keeping import COMMANDS_KEPT, drop_before

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
