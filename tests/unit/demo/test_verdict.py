"""The verdict can say no: the books of a good run, doctored one line at a time."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from waybill.contracts.states import State
from waybill.demo.core.verdict import Books, Effect, Issued, Known, Request, judge

AT = datetime(2026, 1, 1, tzinfo=UTC)


def delivery(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


def good_books() -> Books:
    """Two incidents with three updates each; the first delivery is offered a second time."""
    issued = [
        Issued(
            tenant="harbour",
            destination="dispatch",
            command_id=uuid.UUID(int=1000 + number),
            delivery_id=delivery(number),
            aggregate=f"incident/{number % 2}",
            sequence=number // 2 + 1,
        )
        for number in range(6)
    ]
    effects = [
        Effect(
            destination=each.destination,
            delivery_id=each.delivery_id,
            aggregate=each.aggregate,
            sequence=each.sequence,
            position=number,
            executed_at=AT + timedelta(seconds=number),
        )
        for number, each in enumerate(issued)
    ]
    requests = [
        Request(
            delivery_id=each.delivery_id,
            body_sha256=f"body {each.delivery_id}",
            signature=f"signature {number}",
            signed_at=AT + timedelta(seconds=number - 1),
            arrived_at=AT + timedelta(seconds=number - 0.1),
        )
        for number, each in enumerate(issued)
    ]
    requests.append(
        replace(
            requests[0],
            signature="another",
            signed_at=AT + timedelta(seconds=29),
            arrived_at=AT + timedelta(seconds=30),
        )
    )
    return Books(
        commands=6,
        business_rows=6,
        issued=issued,
        effects=effects,
        requests=requests,
        known={
            each.delivery_id: Known(state=State.ACKNOWLEDGED, attempts=1 if number else 2)
            for number, each in enumerate(issued)
        },
        dead_letters=0,
        anomalies=0,
    )


def swapped(books: Books) -> Books:
    first, second = books.effects[0], books.effects[2]  # numbers 1 and 2 of incident/0
    return replace(
        books,
        effects=[
            replace(first, position=second.position),
            books.effects[1],
            replace(second, position=first.position),
            *books.effects[3:],
        ],
    )


def with_state(state: State) -> Callable[[Books], Books]:
    return lambda books: replace(books, known={**books.known, delivery(3): Known(state=state, attempts=4)})


def without(books: Books, number: int) -> list[Request]:
    return [request for request in books.requests if request.delivery_id != delivery(number)]


DOCTORED: dict[str, tuple[Callable[[Books], Books], str]] = {
    "an effect is missing": (lambda b: replace(b, effects=b.effects[:-1]), "nothing is lost"),
    "an effect is there twice": (
        lambda b: replace(b, effects=[*b.effects, replace(b.effects[-1], position=99)]),
        "every effect happens once",
    ),
    "an effect nobody committed": (
        lambda b: replace(b, effects=[*b.effects, replace(b.effects[0], delivery_id=delivery(77), sequence=9, position=99)]),
        "nothing happens that was not committed",
    ),
    "two effects changed places": (swapped, "effects follow the order of each aggregate"),
    "a business row without a command": (lambda b: replace(b, business_rows=7), "business row and command commit together"),
    "a number is missing": (
        lambda b: replace(b, issued=[*b.issued[:-1], replace(b.issued[-1], sequence=4)]),
        "numbers are 1..n per aggregate and destination",
    ),
    "a hole in the topic": (lambda b: replace(b, anomalies=1), "numbers are 1..n per aggregate and destination"),
    "one is still retrying": (with_state(State.RETRYING), "every delivery ends acknowledged"),
    "one failed": (with_state(State.FAILED), "every delivery ends acknowledged"),
    "one is unknown": (
        lambda b: replace(b, known={k: v for k, v in b.known.items() if k != delivery(3)}, requests=without(b, 3)),
        "every delivery ends acknowledged",
    ),
    "a request left no trace": (
        lambda b: replace(b, known={**b.known, delivery(0): Known(state=State.ACKNOWLEDGED, attempts=1)}),
        "every request is audited",
    ),
    "one is a dead letter": (lambda b: replace(b, dead_letters=1), "every delivery ends acknowledged"),
    "no repeat came": (lambda b: replace(b, requests=b.requests[:-1]), "a repeat arrived and did nothing"),
    "the body changed": (
        lambda b: replace(b, requests=[*b.requests[:-1], replace(b.requests[-1], body_sha256="other")]),
        "every attempt sends the same bytes",
    ),
    "an old timestamp was used again": (
        lambda b: replace(b, requests=[*b.requests[:-1], replace(b.requests[-1], signed_at=AT - timedelta(minutes=5))]),
        "every attempt is signed anew",
    ),
    "the signature was used again": (
        lambda b: replace(b, requests=[*b.requests[:-1], replace(b.requests[-1], signature="signature 0")]),
        "every attempt is signed anew",
    ),
}  # fmt: skip


def test_good_books_keep_every_promise() -> None:
    verdict = judge(good_books())

    assert verdict.ok
    assert (verdict.commands, verdict.deliveries, verdict.acknowledged, verdict.attempts) == (6, 6, 6, 7)
    assert (verdict.duplicates_suppressed, verdict.lost, verdict.doubled, verdict.order_violations) == (1, 0, 0, 0)


@pytest.mark.parametrize("doctored", list(DOCTORED))
def test_doctored_books_break_exactly_the_promise_they_lie_about(doctored: str) -> None:
    lie, broken = DOCTORED[doctored]

    verdict = judge(lie(good_books()))

    assert [promise.name for promise in verdict.promises if not promise.is_kept] == [broken]
    assert not verdict.ok


def test_every_promise_can_be_broken() -> None:
    names = {promise.name for promise in judge(good_books()).promises}

    assert names == {broken for _, broken in DOCTORED.values()}


def test_repeat_that_the_worker_settled_by_itself_is_suppressed_too() -> None:
    books = good_books()
    known = {**books.known, delivery(5): Known(state=State.ACKNOWLEDGED, attempts=2, unsent_repeats=1)}

    assert judge(replace(books, known=known)).duplicates_suppressed == 2


def test_repeat_that_took_effect_again_was_not_suppressed() -> None:
    books = good_books()
    again = replace(books.effects[0], position=99, executed_at=AT + timedelta(seconds=31))

    verdict = judge(replace(books, effects=[*books.effects, again]))

    assert (verdict.duplicates_suppressed, verdict.doubled) == (0, 1)


def test_broken_promise_names_a_few_of_the_deliveries_concerned() -> None:
    verdict = judge(replace(good_books(), effects=[]))

    (lost,) = [promise for promise in verdict.promises if promise.name == "nothing is lost"]
    assert lost.seen.startswith("6 of 6 had no effect: ")
    assert lost.seen.count(",") == 4
