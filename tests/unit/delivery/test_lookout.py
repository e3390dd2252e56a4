"""Owners that ask whether they still are share statements, and each hears what concerns it."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from waybill.delivery.beacons.lookout import Lookout
from waybill.delivery.store import Owned
from waybill.kernel.errors import FencedError, TransientError

pytestmark = pytest.mark.requirement("RS-3")


def owned(partition: int) -> Owned:
    return Owned(tenant="acme", destination="pay", partition=partition, epoch=uuid.UUID(int=1))


class Tables:
    """A database that knows some owners, and answers when it is let."""

    def __init__(self, *mine: int) -> None:
        self.mine, self.may_answer = mine, asyncio.Event()
        self.asked: list[list[int]] = []
        self.fails = False

    async def run(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        self.asked.append(values["partitions"])
        await self.may_answer.wait()
        if self.fails:
            raise TransientError("the control database does not answer")
        return [("acme", "pay", number, uuid.UUID(int=1)) for number in values["partitions"] if number in self.mine]


async def test_who_asks_while_a_statement_is_under_way_shares_the_next() -> None:
    tables = Tables(*range(2_000))
    lookout = Lookout(tables.run)
    first = asyncio.create_task(lookout.still(owned(0)))
    while not tables.asked:  # noqa: ASYNC110 - the statement has begun
        await asyncio.sleep(0)
    others = [asyncio.create_task(lookout.still(owned(number))) for number in range(1, 601)]
    await asyncio.sleep(0)
    tables.may_answer.set()
    await asyncio.gather(first, *others)

    assert tables.asked == [[0], list(range(1, 501)), list(range(501, 601))]


async def test_each_hears_its_own_answer() -> None:
    tables = Tables(1)
    tables.may_answer.set()
    lookout = Lookout(tables.run)

    one, other = await asyncio.gather(lookout.still(owned(1)), lookout.still(owned(2)), return_exceptions=True)

    assert one is None
    assert isinstance(other, FencedError)
    assert "acme/pay[2]" in str(other)


async def test_a_database_that_does_not_answer_is_told_to_all_and_asked_again() -> None:
    tables = Tables(1, 2)
    tables.may_answer.set()
    tables.fails = True
    lookout = Lookout(tables.run)

    found = await asyncio.gather(lookout.still(owned(1)), lookout.still(owned(2)), return_exceptions=True)
    tables.fails = False
    await lookout.still(owned(1))

    assert [type(each) for each in found] == [TransientError, TransientError]


async def test_who_no_longer_waits_is_passed_over() -> None:
    tables = Tables(1, 2)
    lookout = Lookout(tables.run)
    gone, waiting = asyncio.create_task(lookout.still(owned(1))), asyncio.create_task(lookout.still(owned(2)))
    while not tables.asked:  # noqa: ASYNC110 - the statement has begun
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    tables.may_answer.set()

    await waiting
