"""A client of a former configuration is closed when the last attempt that began with it has ended."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from waybill.delivery.core.lanes import Item, Lane
from waybill.delivery.sender import Posting
from waybill.delivery.senders import Senders
from waybill.delivery.worker import _retire
from waybill.infra.clock import SystemClock
from waybill.infra.http_client import HttpClient


class Client:
    """Notes whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Destination:
    """A target whose attempts end when the test says so."""

    def __init__(self) -> None:
        self.target: Any = self
        self.config: Any = self
        self.rule: Any = self
        self.needs_intent = False
        self.concurrency = 4
        self.gates: list[asyncio.Event] = []

    def rule_for(self, item: Item) -> Any:
        return self

    def body_of(self, item: Item) -> bytes:
        return b"{}"

    def begin(self, item: Item, body: bytes) -> Posting:
        return Posting((), body, datetime.fromtimestamp(0, UTC))

    async def post(self, posting: Posting) -> None:
        self.gates.append(asyncio.Event())
        await self.gates[-1].wait()
        posting.has_ended = True

    def judge(self, item: Item, posting: Posting) -> tuple[None, None]:
        return None, None


class Owner:
    """Hands out one head per lane."""

    gone = False
    inflight = 0

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)
        self.settler = self
        self.ended = 0

    def next(self, lane: Lane) -> Item | None:
        return self._items.pop(0) if self._items else None

    def finished(self, *_: object) -> None:
        self.ended += 1


def item(number: int) -> Item:
    found = Item(number, "subject/1", number, (b"subject/1", [], b"{}"))
    found.delivery_id = f"d-{number}"
    return found


async def _until(fact: Any) -> None:
    async with asyncio.timeout(5):
        while not fact():  # noqa: ASYNC110 - facts of a test
            await asyncio.sleep(0.005)


async def test_only_attempts_of_before_keep_a_former_client_open() -> None:
    destination, client = Destination(), Client()
    senders = Senders(cast("Any", destination), SystemClock())
    owner: Any = Owner([item(1), item(2)])
    senders.offer(owner, Lane("subject/1"))
    await _until(lambda: len(destination.gates) == 1)

    is_used = senders.under_way()
    senders.offer(owner, Lane("subject/2"))
    await _until(lambda: len(destination.gates) == 2)
    assert is_used()
    destination.gates[0].set()
    await _until(lambda: owner.ended == 1)

    assert senders.inflight == 1
    assert not is_used(), "the one under way began after the change"
    await _retire(cast("HttpClient", client), is_used)
    assert client.is_closed
    await senders.stop()


async def test_lanes_of_an_owner_that_is_gone_are_let_go_while_nothing_starts() -> None:
    destination = Destination()
    senders = Senders(cast("Any", destination), SystemClock())
    senders.valve.is_shut = True
    gone: Any = Owner([item(1)])
    here: Any = Owner([item(2)])
    senders.offer(gone, Lane("subject/1"))
    senders.offer(here, Lane("subject/2"))

    senders.forget([gone])

    assert senders.ready == 1


async def test_senders_are_quiet_while_nothing_is_under_way_due_at_a_time_or_restricted() -> None:
    destination = Destination()
    senders = Senders(cast("Any", destination), SystemClock())
    owner: Any = Owner([item(1)])
    assert senders.is_quiet

    senders.later(SystemClock().now(), owner, Lane("subject/1"))
    assert not senders.is_quiet, "a time is waited for"
    senders.forget([owner])
    assert senders.is_quiet

    senders.offer(owner, Lane("subject/1"))
    await _until(lambda: len(destination.gates) == 1)
    assert not senders.is_quiet, "an attempt is under way"
    destination.gates[0].set()
    await _until(lambda: owner.ended == 1)
    assert senders.is_quiet

    senders.valve.is_limited = True
    assert not senders.is_quiet, "something restricts the destination"
    await senders.stop()
