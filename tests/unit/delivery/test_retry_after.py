"""What a destination's `Retry-After` asks for: read in every form, never obeyed beyond expiry."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.fabric import Profile, RetryPolicy
from waybill.delivery.core.answer import retry_after_s
from waybill.delivery.core.classify import judge_status
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.retry import Again, History, decide
from waybill.kernel.clock import parse_instant

NOW = parse_instant("2026-01-01T00:00:00Z")
DURABLE = RepeatRule(profile=Profile.DURABLE_IDEMPOTENT, max_attempts=1, max_age=timedelta(0), not_done=frozenset())


@pytest.mark.requirement("GW-10")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Seconds.
        ("7", 7.0),
        ("0", 0.0),
        (" 120\t", 120.0),
        ("007", 7.0),
        ("99999999999", 86_400.0),  # huge: cut, expiry decides anyway
        ("9" * 400, 86_400.0),
        # The three forms of a date.
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),  # IMF-fixdate
        ("Thursday, 01-Jan-26 00:00:30 GMT", 30.0),  # RFC 850
        ("Thu Jan  1 00:00:30 2026", 30.0),  # asctime
        ("Sat Jan 31 00:00:00 2026", 86_400.0),
        ("Thu, 01 Jan 2026 00:00:60 GMT", 60.0),  # a leap second
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        # Past: no wait.
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),  # two digits more than fifty years ahead are of the past century
        ("Sun Nov  6 08:49:37 1994", 0.0),
        # Nonsense: as if there were none.
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),  # negative
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("0x10", None),
        ("5s", None),
        ("120, 60", None),
        ("\u0661\u0662", None),  # digits, not ASCII
        ("Thu, 32 Jan 2026 00:00:30 GMT", None),
        ("Thu, 30 Feb 2026 00:00:30 GMT", None),
        ("Thu, 01 Jan 2026 24:00:30 GMT", None),
        ("Thu, 01 Jan 2026 00:00:61 GMT", None),
        ("Thu, 01 Jan 0000 00:00:30 GMT", None),
        ("Thu, 01 Jan 2026 00:00:30 CET", None),
        ("Thu, 01 Jan 2026 00:00:30 +0100", None),
        ("2026-01-01T00:00:30Z", None),
        ("01 Jan 2026 00:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(text: str | None, expected: float | None) -> None:
    assert retry_after_s(text, NOW) == expected


@pytest.mark.requirement("GW-10")
@given(text=st.text(max_size=60))
def test_no_text_breaks_the_reading(text: str) -> None:
    wait = retry_after_s(text, NOW)

    assert wait is None or 0.0 <= wait <= 86_400.0


@pytest.mark.requirement("GW-10", "DC-19", "DC-8")
@given(
    status=st.sampled_from([429, 503]),
    wait_s=st.none() | st.floats(0, 86_400),
    left_s=st.floats(0.001, 200_000),
    attempts=st.integers(0, 30),
    delivery=st.uuids().map(str),
)
def test_a_retry_is_never_due_before_retry_after_and_never_after_expiry(
    status: int, wait_s: float | None, left_s: float, attempts: int, delivery: str
) -> None:
    expires_at = NOW + timedelta(seconds=left_s)

    step = decide(
        RetryPolicy(),
        DURABLE,
        _history(delivery, attempts, expires_at),
        judge_status(status, retry_after_s=wait_s),
        NOW,
    )

    assert isinstance(step, Again)
    assert step.due <= expires_at
    assert step.due == expires_at or step.due >= NOW + timedelta(seconds=wait_s or 0.0)


@pytest.mark.requirement("DC-19")
def test_two_hundred_that_were_told_to_wait_do_not_come_back_in_one_instant() -> None:
    told = judge_status(429, retry_after_s=30.0)
    steps = [
        decide(RetryPolicy(), DURABLE, _history(f"d{n}", 0, NOW + timedelta(days=1)), told, NOW) for n in range(200)
    ]

    dues = [step.due for step in steps if isinstance(step, Again)]
    assert len(set(dues)) > 190
    assert min(dues) >= NOW + timedelta(seconds=30)


def _history(delivery: str, attempts: int, expires_at: datetime) -> History:
    return History(
        delivery_id=delivery,
        attempts=attempts,
        sent=True,
        may_have_acted=False,
        expires_at=expires_at,
        is_row=False,
        fresh_from=NOW,
    )
