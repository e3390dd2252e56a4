"""A 429 holds back the whole destination and costs the delivery nothing."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from waybill.contracts.fabric import Profile, RetryPolicy
from waybill.delivery.controls.valve import Kept, Valve
from waybill.delivery.core.classify import judge_status
from waybill.delivery.core.controls.ramp import ramp
from waybill.delivery.core.controls.throttle import Throttle
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.retry import Again, History, backoff_s, decide
from waybill.kernel.clock import parse_instant
from waybill.testing.clocks import MovableClock

NOW = parse_instant("2026-01-01T00:00:00Z")
POLICY = RetryPolicy(base_s=2.0, cap_s=60.0, hot_attempts=2)


def after(before: Throttle | None, seconds: float, wait_s: float | None = None, *, good: int = 0) -> Throttle:
    return Throttle.after(before, "crm", POLICY, wait_s, at=NOW + timedelta(seconds=seconds), good=good)


def test_a_time_that_was_named_is_kept_to_the_letter() -> None:
    assert after(None, 0.0, 90.0).until == NOW + timedelta(seconds=90)


def test_without_a_time_the_wait_doubles_from_strike_to_strike() -> None:
    first = after(None, 0.0)
    second = after(first, 100.0)
    third = after(second, 200.0)

    waits = [(throttle.until - NOW).total_seconds() for throttle in (first, second, third)]
    assert [third.strikes, second.strikes, first.strikes] == [3, 2, 1]
    assert waits == pytest.approx([0.0 + backoff_s(POLICY, "crm", 1), 100.0 + backoff_s(POLICY, "crm", 2), 200.0 + backoff_s(POLICY, "crm", 3)])  # fmt: skip


def test_attempts_that_were_under_way_make_one_strike_and_never_shorten_the_wait() -> None:
    first = after(None, 0.0, 30.0)
    again = after(first, 0.5, 5.0)

    assert (again.strikes, again.until) == (1, first.until)


def test_what_was_served_since_forgives_the_strikes() -> None:
    first = after(None, 0.0, 1.0, good=5)

    assert after(first, 2.0, 1.0, good=5).strikes == 2
    assert after(first, 2.0, 1.0, good=6).strikes == 1


@pytest.mark.parametrize(
    ("elapsed_s", "most", "expected"),
    [(0.0, 64, 1), (0.3, 64, 2), (0.5, 64, 4), (1.6, 64, 64), (1.75, 64, None), (0.0, 1, 1), (0.25, 1, None)],
)
def test_attempts_begin_again_slowly(elapsed_s: float, most: int, expected: int | None) -> None:
    assert ramp(elapsed_s, most) == expected


def test_a_429_is_written_down_at_once_so_that_its_time_survives() -> None:
    durable = RepeatRule(profile=Profile.DURABLE_IDEMPOTENT, max_attempts=1, max_age=timedelta(0), not_done=frozenset())

    past = History(
        delivery_id="d",
        attempts=0,
        sent=False,
        may_have_acted=False,
        expires_at=NOW + timedelta(days=1),
        is_row=False,
        fresh_from=NOW,
    )

    step = decide(POLICY, durable, past, judge_status(429), NOW)

    assert isinstance(step, Again)
    assert not step.is_hot


class Queue:
    """A destination with 8 senders."""

    def __init__(self) -> None:
        self.inflight = 0
        self.woken = 0
        self.counts: Counter[str] = Counter()
        self.target: Any = self
        self.config: Any = self
        self.name, self.tenant, self.retry, self.concurrency = "crm", "acme", POLICY, 8
        self.owner = "team-crm"

    def wake(self, most: int) -> None:
        self.woken = most


def test_nothing_starts_until_the_time_is_over_then_one_after_the_other() -> None:
    clock, queue = MovableClock(NOW), Queue()
    valve = Valve(queue, queue, clock)
    assert (valve.is_limited, valve.is_shut) == (False, False)

    valve.told(judge_status(429, retry_after_s=3.0), "subject/1")
    assert (valve.is_shut, valve.why) == (True, Kept.THROTTLED)
    clock.advance(timedelta(seconds=2.9))
    valve.tick()
    assert (valve.is_shut, queue.woken) == (True, 0)
    clock.advance(timedelta(seconds=0.2))
    valve.tick()
    assert (valve.is_shut, valve.why, queue.woken) == (False, None, 1)
    valve.spend()
    assert valve.is_shut, "one at first"
    clock.advance(timedelta(seconds=2))
    valve.tick()
    assert (valve.is_limited, valve.is_shut) == (False, False), "as open as ever"
