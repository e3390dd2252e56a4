"""What an attempt at a destination that remembers little costs: one that was refused unseen costs nothing."""

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from waybill.contracts.fabric import Profile
from waybill.delivery.core.classify import Failure, Verdict, judge_failure, judge_status
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.records import Try
from waybill.delivery.core.repeats import RepeatRule, Tried
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.intents.attempts import Intents
from waybill.delivery.intents.statements import ANSWER
from waybill.delivery.store import Owned
from waybill.kernel.clock import parse_instant
from waybill.testing.clocks import MovableClock

NOW = parse_instant("2026-01-01T00:00:00Z")
DELIVERY = "3f0c1d0e-aaaa-5000-8000-000000000001"
BOUNDED = RepeatRule(
    profile=Profile.BOUNDED_DEDUPLICATION, max_attempts=9, max_age=timedelta(days=1), not_done=frozenset()
)
OWNED = Owned(tenant="acme", destination="crm", partition=0, epoch=UUID(int=1))


@pytest.mark.requirement("GW-11", "GW-12")
@pytest.mark.parametrize(
    ("verdict", "sends"),
    [
        (judge_status(503), 3),
        (judge_failure(Failure.TIMEOUT), 3),
        (judge_status(422), 3),
        (judge_status(429), 2),  # refused unseen
        (judge_failure(Failure.CONNECT), 2),  # nothing left
    ],
    ids=lambda value: getattr(value, "detail", value),
)
async def test_what_counts_as_a_send(verdict: Verdict, sends: int) -> None:
    told: dict[str, Any] = {}

    async def write(query: str, owned: object, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if query == ANSWER:
            told.update(values)
            return [(1, DELIVERY)]
        return [(1, DELIVERY, 3, NOW)]  # open, with two sends before it

    async def sure(query: str, owned: object, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return []

    async def attempt(item: Item, body: bytes) -> tuple[Verdict, Try]:
        return verdict, Try(3, 0, 1, "")

    tools = SimpleNamespace(
        store=SimpleNamespace(write=write, sure=sure), clock=MovableClock(NOW), failpoints=Failpoints()
    )
    target = SimpleNamespace(body_of=lambda _: b"{}", attempt=attempt, rule=BOUNDED, rule_for=lambda _: BOUNDED)
    desk = SimpleNamespace(tools=tools, target=target)
    owner = SimpleNamespace(owned=OWNED, gone=False, partition=0)
    intents = Intents(
        cast("Any", desk), cast("Any", owner), cast("Any", None), cast("Any", SimpleNamespace(is_open=True))
    )
    item = Item(7, "subject/1", 1, (b"subject/1", [], b"{}"))
    item.delivery_id, item.attempts, item.expires_at = DELIVERY, 2, NOW + timedelta(days=1)

    outcome = await intents.attempt(item)

    assert isinstance(outcome, Tried)
    assert item.sends == sends
    assert told["unsent"] == [3 - sends]
