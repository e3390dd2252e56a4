"""When a request is due: days in the zone of a regime, its working days, pauses, extensions.

The day of receipt does not count, and the last day counts whole: the instant is its end, the first moment of the day
after in that zone. So a day on which the clocks change counts as one day, and a month from 31 January ends with
February. (Regulation (EEC, Euratom) 1182/71, article 3, counts like this; so do most regimes of privacy law.)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from waybill.kernel.errors import ConfigError

__all__ = ["Calendar", "Deadline", "Extension", "Pause", "Period", "Regime", "Unit", "deadline"]

_DAY: Final = timedelta(days=1)


class Unit(StrEnum):
    """What a period is counted in."""

    DAYS = "days"
    WORKING_DAYS = "working_days"
    MONTHS = "months"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A length of time as law writes it."""

    amount: int
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Whose days are counted."""

    zone: ZoneInfo
    #: Days of the week without work, Monday 0.
    weekend: frozenset[int] = frozenset({5, 6})
    holidays: frozenset[date] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a week without work: nothing that is counted in working days would ever be due.

        Raises:
            ConfigError: every day of the week is a weekend.
        """
        if self.weekend >= frozenset(range(7)):
            raise ConfigError("a calendar needs a working day in its week")

    def works(self, day: date) -> bool:
        """Whether it is a working day."""
        return day.weekday() not in self.weekend and day not in self.holidays

    def day_of(self, instant: datetime) -> date:
        """Return the day that an instant falls on."""
        return instant.astimezone(self.zone).date()

    def end_of(self, day: date) -> datetime:
        """Return the first instant after a day, in UTC."""
        after = day + _DAY
        return datetime(after.year, after.month, after.day, tzinfo=self.zone).astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """How long a request may take under one law."""

    calendar: Calendar
    period: Period
    #: Whether a last day without work moves to the next working day.
    rolls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The clock stands, as while the person who asks is to prove who they are."""

    began_at: datetime
    #: None while it stands.
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """More time, which counts only if the person was told before the time was up."""

    period: Period
    noticed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When a request is due."""

    #: The instant after its last day; None while the clock stands.
    due_at: datetime | None

    def is_overdue(self, at: datetime) -> bool:
        """Whether the time is up at this instant."""
        return self.due_at is not None and at >= self.due_at


def deadline(
    regime: Regime, received_at: datetime, pauses: Collection[Pause] = (), extensions: Collection[Extension] = ()
) -> Deadline:
    """Return when a request is due, from everything that was noted about its clock, in whatever order.

    A pause that begins before the time is up gives back each whole day it covers; one that begins later gives nothing.
    An extension counts from the last day as it was when notice was given; notice that came after it counts for nothing.
    """
    calendar = regime.calendar
    last = _after(calendar, calendar.day_of(received_at), regime.period)
    # one line of time: what happened first counts first, at one instant a pause before an extension
    notes: list[tuple[datetime, int, Pause | Extension]] = [(each.began_at, 0, each) for each in _merged(pauses)]
    notes += [(each.noticed_at, 1, each) for each in sorted(set(extensions), key=_order)]
    notes.sort(key=lambda note: note[:2])
    for at, _, note in notes:
        if at >= calendar.end_of(_rolled(regime, last)):
            break
        if isinstance(note, Extension):
            last = _after(calendar, last, note.period)
        elif note.ended_at is None:
            return Deadline(due_at=None)
        else:
            last = _given_back(regime, calendar.day_of(received_at), last, note.began_at, note.ended_at)
    return Deadline(due_at=calendar.end_of(_rolled(regime, last)))


def _order(extension: Extension) -> tuple[datetime, str, int]:
    return extension.noticed_at, extension.period.unit, extension.period.amount


def _merged(pauses: Collection[Pause]) -> Sequence[Pause]:
    """Return pauses that do not touch, in order."""
    merged: list[Pause] = []
    for pause in sorted(pauses, key=lambda each: each.began_at):
        before = merged[-1] if merged else None
        if before is None or (before.ended_at is not None and before.ended_at < pause.began_at):
            merged.append(pause)
        elif before.ended_at is not None:
            ends = None if pause.ended_at is None else max(before.ended_at, pause.ended_at)
            merged[-1] = Pause(began_at=before.began_at, ended_at=ends)
    return merged


def _given_back(regime: Regime, received: date, last: date, began_at: datetime, ended_at: datetime) -> date:
    """Return the last day when the whole days of a pause are given back."""
    calendar = regime.calendar
    first = calendar.day_of(began_at)
    if calendar.end_of(first - _DAY) < began_at:
        first += _DAY  # it began within that day, which so is no whole one
    until = calendar.day_of(ended_at)
    days = [first + _DAY * number for number in range((until - first).days)]
    days = [day for day in days if day > received]
    if regime.period.unit is Unit.WORKING_DAYS:
        return _working(calendar, last, sum(calendar.works(day) for day in days))
    return last + _DAY * len(days)


def _after(calendar: Calendar, day: date, period: Period) -> date:
    """Return the last day of a period that begins on the day after."""
    if period.unit is Unit.DAYS:
        return day + _DAY * period.amount
    if period.unit is Unit.WORKING_DAYS:
        return _working(calendar, day, period.amount)
    months = day.month - 1 + period.amount
    year, month = day.year + months // 12, months % 12 + 1
    return min(date(year, month, 1) + _DAY * (day.day - 1), _month_end(year, month))


def _month_end(year: int, month: int) -> date:
    return (date(year + 1, 1, 1) if month == 12 else date(year, month + 1, 1)) - _DAY


def _working(calendar: Calendar, day: date, amount: int) -> date:
    left = amount
    while left > 0:
        day += _DAY
        left -= calendar.works(day)
    return day


def _rolled(regime: Regime, day: date) -> date:
    while regime.rolls and not regime.calendar.works(day):
        day += _DAY
    return day
