"""One reader for all owners of a process: each gets every record from where it stands, once and in order."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from inspect import isawaitable
from typing import Any, cast

from waybill.infra.topic_feed import TopicFeed
from waybill.infra.topic_reader import PlacedRecord, TopicReader
from waybill.kernel.errors import ContractError, UnavailableError
from waybill.testing.waiting import eventually_async

PLACE = ("waybill.acme.decisions", 0)


class LoopStrand:
    """A strand whose work is a task."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    def give(self, parcel: None) -> None:
        raise NotImplementedError

    async def take(self) -> None:
        raise NotImplementedError

    async def call(self, blocking: Callable[..., Any], *arguments: object) -> Any:
        result = blocking(*arguments)
        return await result if isawaitable(result) else result

    async def wait(self, flag: threading.Event, timeout_s: float) -> bool:
        await asyncio.sleep(0)
        return flag.is_set()

    async def result(self, future: "Future[Any]", timeout_s: float) -> Any:
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError


class Reader:
    """A partition with records 0 to 9, given two at a time."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.is_closed = False

    def watch(self, topic: str, partition: int, offset: int) -> None:
        self.position = offset

    def forget(self, topic: str, partition: int) -> None:
        self.position = None

    async def poll(self, timeout_s: float) -> list[PlacedRecord]:
        await asyncio.sleep(0)
        if self.position is None:
            return []
        found = [PlacedRecord(*PLACE, offset, b"%d" % offset) for offset in range(self.position, 10)][:2]
        self.position += len(found)
        return found

    def close(self) -> None:
        self.is_closed = True


class Owner:
    def __init__(self, read_to: int) -> None:
        self.read_to = read_to
        self.taken: list[tuple[int, object]] = []

    def take(self, offset: int, said: object) -> None:
        self.taken.append((offset, said))


def feed_of(reader: Reader, decode: Callable[[bytes], object] = lambda value: value) -> TopicFeed[object]:
    broken: list[BaseException] = []
    made = cast("TopicReader", reader)
    return TopicFeed(lambda: made, lambda record: decode(record.value or b""), LoopStrand(), broken.append)


async def test_owners_at_different_offsets_get_each_record_once_and_in_order() -> None:
    reader, ahead, behind = Reader(), Owner(4), Owner(1)
    feed = feed_of(reader)
    feed.watch(PLACE, ahead)
    await eventually_async(lambda: len(ahead.taken) >= 2)
    feed.watch(PLACE, behind)
    await eventually_async(lambda: ahead.read_to == behind.read_to == 10)
    await feed.close()

    assert [offset for offset, _ in ahead.taken] == list(range(4, 10))
    assert [offset for offset, _ in behind.taken] == list(range(1, 10))
    assert reader.is_closed


async def test_who_let_go_gets_nothing_more() -> None:
    reader, gone, here = Reader(), Owner(0), Owner(0)
    feed = feed_of(reader)
    feed.watch(PLACE, gone)
    feed.forget(PLACE, gone)
    feed.watch(PLACE, here)
    await eventually_async(lambda: here.read_to == 10)
    await feed.close()

    assert gone.taken == []


async def test_what_cannot_be_read_is_passed_over_and_a_silent_registry_is_waited_for() -> None:
    asked = {"n": 0}

    def decode(value: bytes) -> object:
        asked["n"] += 1
        if asked["n"] <= 3:
            raise UnavailableError("the registry does not answer")
        if value == b"5":
            raise ContractError("no decision")
        return value

    reader, owner = Reader(), Owner(4)
    feed = feed_of(reader, decode)
    feed.watch(PLACE, owner)
    await eventually_async(lambda: owner.read_to == 10)
    await feed.close()

    assert owner.taken == [(4, b"4"), (5, None), *((n, b"%d" % n) for n in range(6, 10))]
