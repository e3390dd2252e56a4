"""The verdict can say no: the books of a good campaign, doctored one line at a time, one row for each key."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from waybill.chaos.core.verdict import Arrival, Books, Demands, Destination, Exchange, Fault, Promised, judge

DURABLE, NON_IDEMPOTENT, CONTINUING = "durable", "fragile", "lenient"
DESTINATIONS = {
    DURABLE: Destination(profile="durable_idempotent"),
    NON_IDEMPOTENT: Destination(profile="non_idempotent"),
    CONTINUING: Destination(profile="bounded_deduplication", on_unsettled="continue"),
}
WORKER_PORT = 50_000
KILLED_AT, FROZEN_AT, THAWED_AT = 103.0, 200.0, 215.0


def good_books() -> Books:
    """Three deliveries of one aggregate at each destination, one of them in flight when its worker was killed."""
    promised = [
        Promised(delivery_id=f"{name}-{number}", destination=name, aggregate="thing/1", sequence=number)
        for name in DESTINATIONS
        for number in (1, 2, 3)
    ]
    arrivals = [arrival(each.delivery_id, 10 * place) for place, each in enumerate(promised)]
    return Books(
        destinations=DESTINATIONS,
        promised=promised,
        arrivals=arrivals,
        exchanges=[
            Exchange(at=each.at, until=each.at + 0.5, port=WORKER_PORT, destination=each.destination,
                     delivery_id=each.delivery_id)
            for each in arrivals
        ],
        faults=[
            Fault(kind="worker_kill", target="worker-0", at=KILLED_AT + 0.2, ports=frozenset({WORKER_PORT})),
            Fault(kind="worker_freeze", target="worker-1", at=FROZEN_AT, until=THAWED_AT),
        ],
        states={each.delivery_id: "acknowledged" for each in promised},
        unread=dict.fromkeys(DESTINATIONS, 0),
        demands=Demands(faults={"worker_kill": 1, "worker_freeze": 1}, hit_in_flight=1, deliveries=9, aggregates=1),
    )  # fmt: skip


def arrival(delivery: str, place: int, **more: Any) -> Arrival:
    """A request at `place` that is done one line later, signed and sent in the same second."""
    name, _, number = delivery.partition("-")
    found = Arrival(
        place=place, at=100.0 + place / 10, destination=name, delivery_id=delivery, aggregate="thing/1",
        sequence=int(number), body=f"body of {delivery}", signed_at=100 + place // 10, done_place=place + 1,
    )  # fmt: skip
    return replace(found, **more)


def without(delivery: str) -> Callable[[Books], Books]:
    return lambda books: replace(books, arrivals=[a for a in books.arrivals if a.delivery_id != delivery])


def with_more(*more: Arrival) -> Callable[[Books], Books]:
    return lambda books: replace(books, arrivals=[*books.arrivals, *more])


def with_state(delivery: str, state: str | None, lie: Callable[[Books], Books] = lambda books: books):
    def doctored(books: Books) -> Books:
        states = {key: value for key, value in books.states.items() if key != delivery}
        return replace(lie(books), states=states if state is None else {**states, delivery: state})

    return doctored


def swapped(first: str, second: str) -> Callable[[Books], Books]:
    def doctored(books: Books) -> Books:
        places = {a.delivery_id: a.place for a in books.arrivals}
        places[first], places[second] = places[second], places[first]
        return replace(books, arrivals=[arrival(a.delivery_id, places[a.delivery_id]) for a in books.arrivals])

    return doctored


def no_kill(books: Books) -> Books:
    return replace(books, faults=[fault for fault in books.faults if fault.kind != "worker_kill"])


#: what was doctored → (how, the figures that differ from a good campaign's)
DOCTORED: Mapping[str, tuple[Callable[[Books], Books], Mapping[str, object]]] = {
    "acknowledged without an effect": (without("durable-3"), {"lost": 1}),
    "known to nobody": (with_state("durable-3", None, without("durable-3")), {"lost": 1}),
    "not read yet": (
        lambda b: replace(with_state("durable-3", None, without("durable-3"))(b), unread={DURABLE: 1}),
        {"open": 1},
    ),
    "done and never published": (with_state("durable-3", None), {"open": 1}),
    "still retrying": (with_state("durable-3", "retrying"), {"open": 1}),
    "an effect nobody promised": (with_more(arrival("durable-4", 900)), {"foreign": 1}),
    "two effects changed places": (swapped("durable-2", "durable-3"), {"order_violations": 2}),
    "begun before its predecessor was done": (
        lambda b: replace(
            b,
            arrivals=[
                replace(a, done_place=25, place=19) if a.delivery_id == "durable-2" else
                replace(a, place=20, done_place=26) if a.delivery_id == "durable-3" else a for a in b.arrivals
            ],
        ),
        {"order_violations": 1},
    ),
    "a second effect at a durable destination": (
        with_more(arrival("durable-3", 900, at=300.0, signed_at=300)), {"double_effects": 1},
    ),
    "one place in the order done under two ids": (
        lambda b: with_more(arrival("durable-3", 900, delivery_id="durable-3b"))(
            replace(b, promised=[*b.promised, replace(b.promised[2], delivery_id="durable-3b")],
                    states={**b.states, "durable-3b": "acknowledged"})
        ),
        {"double_effects": 1, "changed_bodies": 0},
    ),
    "a second effect where none may be": (
        with_more(arrival("fragile-3", 900, at=300.0, signed_at=300)), {"non_idempotent_repeats": 1},
    ),
    "a second effect where none may be, out of order": (
        with_more(arrival("fragile-1", 900, at=300.0, signed_at=300)),
        {"non_idempotent_repeats": 1, "order_violations": 1},
    ),
    "a late original of a frozen worker": (
        with_more(arrival("fragile-1", 900, at=THAWED_AT + 0.5, signed_at=int(FROZEN_AT))),
        {"non_idempotent_repeats": 1, "frozen_reorders": 1},
    ),
    "signed while all possible senders were frozen": (
        with_more(arrival("fragile-1", 900, at=THAWED_AT + 0.5, signed_at=int(FROZEN_AT) + 8)),
        {"non_idempotent_repeats": 1, "order_violations": 1},
    ),
    "other bytes at the second try": (
        with_more(arrival("durable-3", 900, done_place=None, body="other")), {"changed_bodies": 1},
    ),
    "parked": (with_state("durable-3", "failed"), {"parked": 1}),
    "more unknown than could be": (
        lambda b: replace(b, states={**b.states, "durable-2": "ambiguous", "durable-3": "ambiguous"}),
        {"ambiguous": 2},
    ),
    "a worker that ended by itself": (
        lambda b: replace(b, faults=[*b.faults, Fault(kind="worker_crash", target="worker-0", at=150.0)]),
        {"crashes": 1, "faults": {"worker_crash": 1, "worker_freeze": 1, "worker_kill": 1}},
    ),
    "a worker that was never killed": (
        no_kill, {"faults": {"worker_freeze": 1}, "hit_in_flight": 0, "ambiguous_allowed": 0},
    ),
    "a kill that hit nothing": (
        lambda b: replace(b, exchanges=[replace(e, port=1) for e in b.exchanges]),
        {"hit_in_flight": 0, "ambiguous_allowed": 0},
    ),
    "too few deliveries": (lambda b: replace(b, demands=replace(b.demands, deliveries=10)), {}),
    "too few aggregates": (lambda b: replace(b, demands=replace(b.demands, aggregates=2)), {}),
}  # fmt: skip

GOOD = asdict(judge(good_books()))
#: Counted of the books themselves, not of what is wrong in them.
VOLUME = {"promised", "aggregates", "arrivals", "effects", "reasons"}


def test_the_books_of_a_good_campaign_are_ok() -> None:
    verdict = judge(good_books())

    assert verdict.ok, verdict.reasons
    assert (verdict.promised, verdict.aggregates, verdict.arrivals, verdict.effects) == (9, 1, 9, 9)
    assert (verdict.hit_in_flight, verdict.ambiguous_allowed) == (1, 1)
    assert verdict.faults == {"worker_freeze": 1, "worker_kill": 1}


@pytest.mark.parametrize("doctored", list(DOCTORED))
def test_doctored_books_are_not_ok_and_show_what_is_wrong(doctored: str) -> None:
    lie, differs = DOCTORED[doctored]

    verdict = judge(lie(good_books()))

    expected = {key: value for key, value in GOOD.items() if key not in VOLUME} | differs
    assert {key: value for key, value in asdict(verdict).items() if key not in VOLUME} == expected
    assert not verdict.ok


def test_every_figure_that_must_be_zero_can_be_other_than_zero() -> None:
    zeros = {key for key, value in GOOD.items() if value == 0}

    assert zeros - {"waiting"} == {
        key for _, differs in DOCTORED.values() for key, value in differs.items() if value
    } - {"faults"}


def test_reasons_name_a_few_of_the_deliveries_concerned() -> None:
    (reason,) = judge(replace(good_books(), arrivals=[])).reasons

    assert reason.startswith("9 lost: ")
    assert reason.count(",") == 4


def test_a_reordering_that_only_a_frozen_worker_explains_is_no_violation_where_the_effect_may_repeat() -> None:
    """Bounded deduplication forgets: the second effect counts, its order does not."""
    late = arrival("lenient-1", 900, at=THAWED_AT + 0.5, signed_at=int(FROZEN_AT))

    verdict = judge(with_more(late)(good_books()))

    assert (verdict.frozen_reorders, verdict.order_violations, verdict.double_effects) == (1, 0, 1)


@pytest.mark.parametrize(
    ("destination", "figures"),
    [
        (NON_IDEMPOTENT, {"ambiguous": 1, "waiting": 2, "open": 0, "lost": 0}),  # its lane halts: the others wait
        (CONTINUING, {"ambiguous": 1, "waiting": 0, "open": 0, "lost": 2}),  # nothing waits: they should be done
    ],
)
def test_what_stands_behind_an_unknown_one_waits_only_where_the_lane_halts(
    destination: str, figures: Mapping[str, int]
) -> None:
    mine = [f"{destination}-{number}" for number in (1, 2, 3)]
    books = good_books()
    doctored = replace(
        books,
        arrivals=[a for a in books.arrivals if a.delivery_id not in mine],
        states={**{k: v for k, v in books.states.items() if k not in mine}, mine[0]: "ambiguous"},
    )

    verdict = asdict(judge(doctored))

    assert {key: verdict[key] for key in figures} == figures


def test_a_lane_that_continues_may_begin_behind_a_parked_one() -> None:
    books = without("lenient-2")(with_state("lenient-2", "failed")(good_books()))

    verdict = judge(books)

    assert (verdict.parked, verdict.order_violations) == (1, 0)


@pytest.mark.parametrize(
    ("destination", "mischief", "allowed"),
    [
        (NON_IDEMPOTENT, "proxy_reset_after", 2),  # nobody can know, and nothing asks again
        (NON_IDEMPOTENT, "listener_unavailable", 1),  # a definite answer
        (DURABLE, "proxy_reset_after", 1),  # asked again until it is known
    ],
)
def test_a_lost_answer_may_stay_unknown_only_where_nothing_is_repeated_blindly(
    destination: str, mischief: str, allowed: int
) -> None:
    books = good_books()
    exchanges = [
        replace(each, mischief=mischief) if each.delivery_id == f"{destination}-3" else each for each in books.exchanges
    ]

    assert judge(replace(books, exchanges=exchanges)).ambiguous_allowed == allowed


@pytest.mark.parametrize(
    ("begin", "end", "port", "is_hit"),
    [
        (KILLED_AT - 1, KILLED_AT + 1, WORKER_PORT, True),
        (KILLED_AT - 1, None, WORKER_PORT, True),  # the answer never got out
        (KILLED_AT - 1, KILLED_AT + 1, WORKER_PORT + 1, False),  # another worker's
        (KILLED_AT - 2, KILLED_AT - 1, WORKER_PORT, False),  # over before
        (KILLED_AT + 1, KILLED_AT + 2, WORKER_PORT, False),  # begun after, by a stranger with its port
    ],
)
def test_an_attempt_is_in_flight_from_its_first_byte_to_the_last_of_its_answer(
    begin: float, end: float | None, port: int, is_hit: bool
) -> None:
    exchange = Exchange(at=begin, until=end, port=port, destination=DURABLE, delivery_id="durable-1")

    assert judge(replace(good_books(), exchanges=[exchange])).hit_in_flight == is_hit
