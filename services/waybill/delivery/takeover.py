"""What a new owner finds and finishes before it reads a record, and what it looks after while it owns.

In this order: the committed offset (it waits for open transactions), whether the database has the beacon its note
names, the epoch (from here on no former owner writes a row), the rows, what a former owner decided and perhaps did
not say. Only then is anything dispatched.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from waybill.delivery.asking.asker import Asker
from waybill.delivery.core.keeping import drop_before
from waybill.delivery.core.position import Position
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.rows import item_of, surface
from waybill.delivery.settler import Settler
from waybill.delivery.store import Owned
from waybill.kernel.errors import FencedError, TransientError, UnavailableError

__all__ = ["LeftOver", "NotTakenError", "Sweeper", "find_position", "publish_left_over", "read_rows"]

_CHUNK: Final = 500
_PUBLISH_S: Final = 10.0
_SWEEP_S: Final = 5.0
_DROP_S: Final = 60.0


class NotTakenError(UnavailableError):
    """The partition cannot be taken until people act; the message says how."""

    code = "not_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """The rows of a partition as a new owner finds them."""

    #: Every delivery that has a row, closed ones too.
    known: Sequence[uuid.UUID]
    #: Aggregates with blocking rows, how many, and when the first of them is due; None is at once, or people's.
    blocked: Sequence[tuple[str, int, datetime | None]]


async def find_position(desk: Desk, topic: str, owned: Owned) -> tuple[int, Position]:
    """Return where to begin and what the last owner left beside it.

    Raises:
        NotTakenError: nobody ever set a start.
        RewoundError: the database is not the one the last owner wrote to.
        ContractError: the note is of an unknown form.
        TransientError: not now.
    """
    found = await desk.committed(owned.partition)
    if found is None:
        raise NotTakenError(f"no committed offset on {topic}[{owned.partition}]: run `waybill apply` to set its start")
    offset, note = found[0], Position.decode(found[1])
    owned.beacons.begin(note.beacon, offset)
    await desk.tools.store.knows(owned)
    return offset, note


async def read_rows(desk: Desk, owned: Owned) -> LeftOver:
    """Shut former owners out, then read what they left; nothing of it counts if the database was set back meanwhile.

    Raises:
        RewoundError: the database is not the one the last owner wrote to.
        FencedError: somebody else took it meanwhile, or the database was set back.
    """
    store = desk.tools.store
    await store.take(owned, owner=desk.worker, now=desk.tools.clock.now())
    left = LeftOver(known=await store.known(owned), blocked=await store.lanes(owned))
    await desk.tools.still(owned)
    return left


async def publish_left_over(desk: Desk, owner: Owner, settler: Settler) -> None:
    """Say what a former owner decided and perhaps did not say."""
    store = desk.tools.store
    while left := await store.unpublished(owner.owned, _CHUNK):
        places: list[list[int]] = [[] for _ in left]
        for item, place in zip(left, places, strict=True):
            desk.committer.add(owner, settler.topics.of_row(owner.partition, item.aggregate, item, place.append))
        if not await desk.committer.carried(owner, _PUBLISH_S):
            raise TransientError("what a former owner decided cannot be published now")
        said = [(item.delivery_id, item.version, max(at, default=None)) for item, at in zip(left, places, strict=True)]
        await store.published(owner.owned, said)


class Sweeper:
    """Ends what expired behind a halted head, so that its owner sees it at once; drops what nobody needs any more.

    Before that it makes sure that the database still is the owner's: on the happy path nobody else asks.
    """

    def __init__(self, desk: Desk, owner: Owner, settler: Settler) -> None:
        self._desk, self._owner, self._settler = desk, owner, settler
        self._swept_at = 0.0
        self._dropped_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._asker = Asker(desk, owner, settler)

    def tick(self, mono: float) -> None:
        """Look every few seconds."""
        self._asker.tick(mono)
        if mono - self._swept_at < _SWEEP_S or self._task is not None:
            return
        self._swept_at = mono
        if self._dropped_at is None:  # a takeover has enough to do
            self._dropped_at = mono
        self._task = asyncio.get_running_loop().create_task(self._round(mono))
        self._task.add_done_callback(surface)

    async def _round(self, mono: float) -> None:
        try:
            await self._desk.tools.still(self._owner.owned)
            halted = [lane.aggregate for lane in self._owner.lanes.lanes.values() if lane.halted]
            if self._owner.gone or not self._settler.rows.is_idle:
                return
            if mono - (self._dropped_at or 0.0) >= _DROP_S:
                self._dropped_at = mono
                await self._drop_closed()
            elif halted:
                await self._sweep(halted)
        except TransientError:
            return
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None

    async def _drop_closed(self) -> None:
        before = drop_before(self._desk.tools.clock.now())
        while await self._desk.tools.store.drop_closed(self._owner.owned, before, _CHUNK) == _CHUNK:
            if self._owner.gone:
                return

    async def _sweep(self, aggregates: Sequence[str]) -> None:
        now = self._desk.tools.clock.now()
        overdue = await self._desk.tools.store.overdue(self._owner.owned, aggregates, now, _CHUNK)
        for feed in overdue:
            lane = self._owner.lanes.lanes.get(feed.aggregate)
            if self._owner.gone or lane is None or not lane.halted or lane.held:
                continue
            item = item_of(feed)
            self._settler.identify(item)
            self._settler.expire(None, item, now)
