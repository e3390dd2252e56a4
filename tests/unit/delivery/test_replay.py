"""Which deliveries are sent once more, by where they stand; and when it is stopped."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from waybill.contracts.states import BY_PEOPLE, State
from waybill.delivery.core.gaps import CANCELLED, SUPERSEDED
from waybill.delivery.core.replay.sorting import Ended, Refusal, batches, is_too_much, refusal_of, reissue_refusal_of
from waybill.delivery.core.retry import EXPIRED

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


@pytest.mark.requirement("DC-21")
@pytest.mark.parametrize(
    ("state", "detail", "expires_at", "is_replaced", "rule"),
    [
        (State.FAILED, "conflict", LATER, False, None),
        (State.DEAD_LETTER, "used_up", LATER, False, None),
        (State.FAILED, None, LATER, False, None),
        (State.FAILED, "conflict", EARLIER, False, Refusal.EXPIRED),
        (State.FAILED, "conflict", NOW, False, Refusal.EXPIRED),
        (State.DEAD_LETTER, "used_up", None, False, Refusal.EXPIRED),
        (State.FAILED, EXPIRED, LATER, False, Refusal.EXPIRED),
        (State.FAILED, CANCELLED, LATER, False, Refusal.CANCELLED),
        (State.FAILED, SUPERSEDED, LATER, False, Refusal.SUPERSEDED),
        (State.FAILED, "conflict", LATER, True, Refusal.SUPERSEDED),
        (State.DEAD_LETTER, "used_up", EARLIER, True, Refusal.SUPERSEDED),
        (State.FAILED, "unreadable", LATER, False, Refusal.UNREADABLE),
        (State.AMBIGUOUS, "timeout", LATER, False, Refusal.AMBIGUOUS),
        (State.AMBIGUOUS, EXPIRED, EARLIER, True, Refusal.AMBIGUOUS),
        (State.ACKNOWLEDGED, None, LATER, False, Refusal.ACKNOWLEDGED),
        (State.ACKNOWLEDGED, BY_PEOPLE, EARLIER, True, Refusal.ACKNOWLEDGED),
        (State.QUEUED, None, LATER, False, Refusal.UNDER_WAY),
        (State.RETRYING, "busy", LATER, False, Refusal.UNDER_WAY),
        (State.DELIVERED, None, LATER, False, Refusal.UNDER_WAY),
        (State.EXCEPTION, None, LATER, False, Refusal.EXCEPTION),
    ],
)
def test_sent_once_more_in_each_state(
    state: State, detail: str | None, expires_at: datetime | None, is_replaced: bool, rule: Refusal | None
) -> None:
    assert refusal_of(Ended(state, detail, expires_at, is_replaced), NOW) == rule


@pytest.mark.requirement("AM-1")
def test_what_may_have_happened_is_never_sent_once_more() -> None:
    for detail, expires_at, is_replaced in product(
        (None, "timeout", EXPIRED, CANCELLED), (EARLIER, LATER), (True, False)
    ):
        assert refusal_of(Ended(State.AMBIGUOUS, detail, expires_at, is_replaced), NOW) is Refusal.AMBIGUOUS


@pytest.mark.requirement("DC-21", "AM-1")
@pytest.mark.parametrize(
    ("state", "detail", "expires_at", "is_replaced", "rule"),
    [
        (State.FAILED, EXPIRED, EARLIER, False, None),
        (State.FAILED, "conflict", EARLIER, False, None),
        (State.DEAD_LETTER, "used_up", EARLIER, False, None),
        (State.FAILED, CANCELLED, LATER, False, None),
        (State.FAILED, "conflict", LATER, False, Refusal.REDRIVABLE),
        (State.FAILED, EXPIRED, EARLIER, True, Refusal.SUPERSEDED),
        (State.FAILED, SUPERSEDED, EARLIER, False, Refusal.SUPERSEDED),
        (State.FAILED, "unreadable", EARLIER, False, Refusal.UNREADABLE),
        (State.AMBIGUOUS, EXPIRED, EARLIER, False, Refusal.AMBIGUOUS),
        (State.ACKNOWLEDGED, BY_PEOPLE, EARLIER, False, Refusal.ACKNOWLEDGED),
        (State.QUEUED, None, EARLIER, False, Refusal.UNDER_WAY),
        (State.EXCEPTION, None, EARLIER, False, Refusal.EXCEPTION),
    ],
)
def test_issued_again_in_each_state(
    state: State, detail: str | None, expires_at: datetime | None, is_replaced: bool, rule: Refusal | None
) -> None:
    assert reissue_refusal_of(Ended(state, detail, expires_at, is_replaced), NOW) == rule


def test_a_mistake_is_seen_while_it_is_small() -> None:
    sizes = [len(batch) for batch in batches(range(500))]

    assert sizes == [10, 20, 40, 80, 100, 100, 100, 50]
    assert [one for batch in batches(range(500)) for one in batch] == list(range(500))


@pytest.mark.parametrize(
    ("judged", "setbacks", "share", "stops"),
    [
        (0, 0, 0.2, False),
        (9, 9, 0.2, False),
        (10, 2, 0.2, False),
        (10, 3, 0.2, True),
        (10, 1, 0.0, True),
        (90, 90, 1.0, False),
    ],
)
def test_it_stops_where_too_much_leads_nowhere(judged: int, setbacks: int, share: float, stops: bool) -> None:
    assert is_too_much(judged, setbacks, share) is stops
