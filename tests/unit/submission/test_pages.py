"""Where a page begins, and what stands for one."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.submission.core.pages import MAX_LIMIT, Place, Wanted, cursor, etag, read_wanted

times = st.none() | st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds it


@settings(max_examples=50, deadline=None)
@given(at=times, identity=st.uuids())
def test_a_cursor_is_the_place_it_was_made_of(at: datetime | None, identity: uuid.UUID):
    place = Place(issued_at=at, delivery_id=identity)

    assert read_wanted([("cursor", cursor(place))]) == Wanted(after=place)


def test_a_cursor_of_another_time_zone_is_the_same_instant():
    at = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))

    found = read_wanted([("cursor", cursor(Place(issued_at=at, delivery_id=uuid.uuid4())))])

    assert isinstance(found, Wanted)
    assert found.after is not None
    assert found.after.issued_at == at


@settings(max_examples=50, deadline=None)
@given(name=st.sampled_from(["cursor", "limit", "commandId", "state", "destination", "aggregate"]), value=st.text())
def test_whatever_is_asked_is_read_or_refused_without_being_repeated(name: str, value: str):
    found = read_wanted([(name, value)])

    assert isinstance(found, Wanted) or len(value) < 12 or value not in found


@pytest.mark.parametrize("limit", [1, MAX_LIMIT])
def test_a_page_is_bounded(limit: int):
    assert read_wanted([("limit", str(limit))]) == Wanted(limit=limit)
    assert isinstance(read_wanted([("limit", str(MAX_LIMIT + 1))]), str)


def test_equal_documents_have_equal_tags():
    assert etag({"a": 1, "b": 2}) == etag({"b": 2, "a": 1}) != etag({"a": 1, "b": 3})
