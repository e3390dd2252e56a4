"""When a request is due: changes of clocks, ends of months, working days, pauses, extensions."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.kernel.errors import ConfigError
from waybill.requests.core.deadline import (
    Calendar,
    Extension,
    Pause,
    Period,
    Regime,
    Unit,
    deadline,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOLIDAYS = frozenset({date(2026, 12, 25), date(2026, 12, 26), date(2027, 1, 1)})


def regime(amount: int, unit: Unit, *, zone: str = "Europe/Berlin", rolls: bool = False) -> Regime:
    calendar = Calendar(zone=ZoneInfo(zone), holidays=HOLIDAYS)
    return Regime(calendar=calendar, period=Period(amount=amount, unit=unit), rolls=rolls)


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


MONTH = regime(1, Unit.MONTHS)


@pytest.mark.parametrize(
    ("rule", "received", "due"),
    [
        pytest.param(MONTH, "2026-01-31T12:00", "2026-03-01T00:00", id="a month from the 31st ends with February"),
        pytest.param(MONTH, "2028-01-31T12:00", "2028-03-01T00:00", id="and in a leap year a day later"),
        pytest.param(MONTH, "2026-12-15T12:00", "2027-01-16T00:00", id="over the end of the year"),
        pytest.param(MONTH, "2026-03-10T12:00", "2026-04-11T00:00", id="over the night the clocks go forward"),
        pytest.param(regime(1, Unit.DAYS), "2026-03-28T00:30", "2026-03-30T00:00", id="a day of 23 hours is one day"),
        pytest.param(regime(1, Unit.DAYS), "2026-10-24T23:30", "2026-10-26T00:00", id="a day of 25 hours is one day"),
        pytest.param(regime(45, Unit.DAYS), "2026-10-01T08:00", "2026-11-16T00:00", id="calendar days"),
        pytest.param(
            regime(1, Unit.MONTHS, rolls=True), "2026-11-25T09:00", "2026-12-29T00:00", id="a holiday, then a weekend"
        ),
        pytest.param(
            regime(10, Unit.WORKING_DAYS), "2026-12-18T09:00", "2027-01-06T00:00", id="working days over two holidays"
        ),
    ],
)
def test_due_at_the_end_of_the_last_day_there(rule: Regime, received: str, due: str):
    assert deadline(rule, berlin(received)).due_at == berlin(due)


def test_the_day_of_receipt_is_the_day_it_was_in_the_zone():
    at = datetime(2026, 6, 30, 23, 30, tzinfo=UTC)  # already 1 July in Berlin, still the afternoon in Los Angeles

    assert deadline(MONTH, at).due_at == berlin("2026-08-02T00:00")
    there = deadline(regime(1, Unit.MONTHS, zone="America/Los_Angeles"), at).due_at
    assert there == datetime(2026, 7, 31, tzinfo=ZoneInfo("America/Los_Angeles"))


def test_a_pause_gives_back_the_whole_days_it_covers():
    pause = Pause(began_at=berlin("2026-06-10T15:00"), ended_at=berlin("2026-06-15T09:00"))

    assert deadline(MONTH, berlin("2026-06-01T09:00"), [pause]).due_at == berlin("2026-07-06T00:00")


def test_working_days_are_given_back_as_working_days():
    pause = Pause(began_at=berlin("2026-06-05T00:00"), ended_at=berlin("2026-06-09T00:00"))  # Friday to Monday
    rule = regime(5, Unit.WORKING_DAYS)

    assert deadline(rule, berlin("2026-06-01T09:00")).due_at == berlin("2026-06-09T00:00")
    assert deadline(rule, berlin("2026-06-01T09:00"), [pause]).due_at == berlin("2026-06-11T00:00")


def test_nothing_is_due_while_the_clock_stands():
    found = deadline(MONTH, berlin("2026-06-01T09:00"), [Pause(began_at=berlin("2026-06-10T15:00"))])

    assert found.due_at is None
    assert not found.is_overdue(berlin("2030-01-01T00:00"))


def test_a_pause_that_begins_when_the_time_is_up_changes_nothing():
    late = Pause(began_at=berlin("2026-07-02T00:00"))

    assert deadline(MONTH, berlin("2026-06-01T09:00"), [late]).due_at == berlin("2026-07-02T00:00")


@pytest.mark.parametrize(
    ("noticed", "due"),
    [
        ("2026-07-01T23:59", "2026-09-02T00:00"),
        ("2026-07-02T00:00", "2026-07-02T00:00"),
    ],
)
def test_an_extension_counts_only_with_notice_before_the_time_is_up(noticed: str, due: str):
    extension = Extension(period=Period(amount=2, unit=Unit.MONTHS), noticed_at=berlin(noticed))

    assert deadline(MONTH, berlin("2026-06-01T09:00"), (), [extension]).due_at == berlin(due)


def test_the_time_is_up_at_the_first_instant_of_the_day_after():
    found = deadline(MONTH, berlin("2026-06-01T09:00"))

    assert not found.is_overdue(berlin("2026-07-02T00:00") - timedelta(microseconds=1))
    assert found.is_overdue(berlin("2026-07-02T00:00"))


def test_a_week_without_work_is_refused():
    with pytest.raises(ConfigError, match="working day"):
        Calendar(zone=BERLIN, weekend=frozenset(range(7)))


instants = st.integers(0, 183 * 24 * 60).map(
    lambda minutes: datetime(2026, 6, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)
pauses = st.lists(
    st.builds(
        lambda at, hours: Pause(began_at=at, ended_at=at + timedelta(hours=hours)), instants, st.integers(0, 900)
    ),
    max_size=4,
)
extensions = st.lists(
    st.builds(
        lambda at, amount, unit: Extension(period=Period(amount=amount, unit=unit), noticed_at=at),
        instants,
        st.integers(1, 3),
        st.sampled_from(Unit),
    ),
    max_size=3,
)
regimes = st.builds(regime, st.integers(1, 40), st.sampled_from([Unit.DAYS, Unit.WORKING_DAYS]), rolls=st.booleans())


@given(regimes, instants, pauses, extensions, st.data())
def test_notes_in_any_order_and_noted_twice_give_the_same(
    rule: Regime, received: datetime, stood: list[Pause], more: list[Extension], data: st.DataObject
):
    shuffled = data.draw(st.permutations([*stood, *stood])), data.draw(st.permutations([*more, *more]))

    assert deadline(rule, received, *shuffled) == deadline(rule, received, stood, more)


@given(regimes, instants, pauses, extensions)
def test_no_note_brings_a_deadline_forward(rule: Regime, received: datetime, stood: list[Pause], more: list[Extension]):
    plain, noted = deadline(rule, received).due_at, deadline(rule, received, stood, more).due_at

    assert plain is not None
    assert noted is not None
    assert received < plain <= noted
    local = noted.astimezone(BERLIN)
    assert (local.hour, local.minute) == (0, 0)
