"""Everything drawn follows from the seed, and every round holds every kind."""

from collections import Counter
from itertools import islice

import pytest

from waybill.chaos.core.draws import draw, pick
from waybill.chaos.core.mischief import LASTS_S, TRIES, Mischief, lasts_s, mischief_for
from waybill.chaos.core.schedule import FREEZE_S, SERVICES, SERVICES_ALONE, WORKERS, StrikeKind, services, strikes
from waybill.chaos.town import TOWN
from waybill.delivery.gate import LEASE_S

SHARES = {Mischief.PROXY_DELAY.value: 0.3, Mischief.PROXY_HALF.value: 0.2}


def test_a_draw_is_the_same_for_the_same_words_and_spread_over_the_unit_interval():
    drawn = [draw(7, "word", number) for number in range(2000)]

    assert drawn == [draw(7, "word", number) for number in range(2000)]
    assert drawn != [draw(8, "word", number) for number in range(2000)]
    assert all(0 <= each < 1 for each in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.03)


def test_a_name_is_picked_by_its_share():
    picked = Counter(pick(1, {"a": 0.5, "b": 0.25}, number) for number in range(4000))

    assert picked["a"] == pytest.approx(2000, rel=0.1)
    assert picked["b"] == pytest.approx(1000, rel=0.15)
    assert picked[None] == pytest.approx(1000, rel=0.15)


@pytest.mark.parametrize("row", [WORKERS, SERVICES, SERVICES_ALONE])
def test_each_round_of_a_row_holds_each_of_its_strikes(row: tuple[StrikeKind, ...]):
    found = list(islice(strikes(3, row), 4 * len(row)))

    for number in range(4):
        assert Counter(each.kind for each in found if each.round == number) == Counter(row)
    assert found == list(islice(strikes(3, row), 4 * len(row)))
    assert found != list(islice(strikes(4, row), 4 * len(row)))


def test_every_kind_of_strike_is_in_a_row():
    assert set(StrikeKind) == {*WORKERS, *SERVICES, *SERVICES_ALONE}


def test_a_broker_is_killed_only_where_others_hold_what_it_held():
    assert StrikeKind.BROKER_KILL in services(3)
    assert StrikeKind.BROKER_KILL not in services(1)


def test_the_only_broker_wakes_before_it_is_put_out():
    session_s = 9.0  # broker.session.timeout.ms, Kafka's default

    assert all(each.lasts_s < session_s for each in islice(strikes(1, services(1)), 90) if each.kind == "broker_freeze")


def test_a_freeze_outlasts_the_lease_and_the_session_of_the_group():
    session_s = 10.0  # group.consumer.session.timeout.ms of the local stack's brokers

    assert FREEZE_S[0] > session_s + LEASE_S


def test_rounds_differ_in_their_order():
    found = list(islice(strikes(1, SERVICES), 12 * len(SERVICES)))
    orders = {tuple(each.kind for each in found if each.round == number) for number in range(12)}

    assert len(orders) > 2


def test_a_request_that_comes_for_the_fourth_time_meets_nothing():
    places = [("register", "thing/1", number) for number in range(300)]

    first = [mischief_for(1, "proxy", SHARES, place, 1) for place in places]
    last = {mischief_for(1, "proxy", SHARES, place, TRIES + 1) for place in places}

    assert set(first) == {None, Mischief.PROXY_DELAY, Mischief.PROXY_HALF}
    assert last == {None}


def test_listener_and_proxy_draw_apart():
    places = [("register", "thing/1", number) for number in range(300)]

    assert [mischief_for(1, "proxy", SHARES, place, 1) for place in places] != [
        mischief_for(1, "listener", SHARES, place, 1) for place in places
    ]


@pytest.mark.parametrize("mischief", list(LASTS_S))
def test_what_lasts_lasts_within_its_bounds(mischief: Mischief):
    low, high = LASTS_S[mischief]

    assert all(low <= lasts_s(1, mischief, ("register", "thing/1", number), 1) < high for number in range(50))


def test_every_mischief_happens_somewhere():
    assert {*Mischief} == {Mischief(kind) for place in TOWN for kind in (*place.listener, *place.proxy)}
