"""Asks for all partitions of a process at once whether they are still their owners'.

On the happy path nobody else asks the database, so each owner does every few seconds. One statement answers for as many
as ask while the one before is under way: what thousands of idle partitions cost does not grow with them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from waybill.delivery.beacons.statements import STILL
from waybill.delivery.rows import surface
from waybill.delivery.store import Owned

__all__ = ["Lookout"]

#: Partitions in one statement.
_MOST: Final = 500

Run: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[list[tuple[Any, ...]]]]


class Lookout:
    """Looks for all owners of a process; lives on the loop."""

    def __init__(self, run: Run) -> None:
        """Take what runs one statement and returns its rows."""
        self._run = run
        self._asked: list[tuple[Owned, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def still(self, owned: Owned) -> None:
        """Make sure that this owner may still write, and drop the beacons nobody will look for.

        Raises:
            FencedError: the partition has another owner, or its database was set back.
            TransientError: not now.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._asked.append((owned, answer))
        if self._task is None:
            self._task = loop.create_task(self._look())
            self._task.add_done_callback(surface)
        if not await answer:
            raise owned.fenced()

    async def _look(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked[:_MOST], self._asked[_MOST:]
                await self._answer(asked)
        finally:
            self._task = None

    async def _answer(self, asked: Sequence[tuple[Owned, asyncio.Future[bool]]]) -> None:
        try:
            found = await self._run(STILL, _columns([owned for owned, _ in asked]))
        except Exception as error:  # whoever asked knows what it means
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        mine = set(found)
        for owned, answer in asked:
            if not answer.done():
                answer.set_result((owned.tenant, owned.destination, owned.partition, owned.epoch) in mine)


def _columns(many: Sequence[Owned]) -> dict[str, list[Any]]:
    """Return one array for each parameter of an owner, named as several of it."""
    each = [owned.parameters() for owned in many]
    return {
        f"{name}s": [values[name] for values in each]
        for name in ("tenant", "destination", "partition", "epoch", "beacon", "named")
    }
