"""Writing rows for one partition: in offset order, in batches, one statement at a time, again until it worked.

A row is written before its offset counts as done, and moved before Kafka learns of the move. While the database
is down everything here waits in memory; the lanes that need a row wait with it, the others go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from waybill.contracts.states import BLOCKING, State
from waybill.delivery.core.lanes import HALTING, Held, Item, Lane, PartitionLanes
from waybill.delivery.core.stored import pack_record, unpack_record
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.ports import Standing
from waybill.delivery.store import Feed, Found, Owned, Published, RowImage, RowMove, TaskStore
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FencedError, TransientError

__all__ = ["Rows", "RowsOwner", "blocks", "surface"]

_MAX_ROWS: Final = 500
_MAX_BYTES: Final = 8 * 1024 * 1024
#: Rows of one aggregate loaded at a time, at most.
_FEED: Final = 16
#: The kind of a row that tells a gap (`waybill.delivery.resolutions`).
RESOLUTION: Final = "resolution"


def blocks(state: State) -> bool:
    """Whether a row in this state keeps its lane: it is to be worked on, or waits for people (`halt`)."""
    return state in BLOCKING or state in HALTING


class RowsOwner(Protocol):
    """Who is told what became of its rows."""

    @property
    def gone(self) -> bool:
        """Whether the partition is somebody else's."""
        ...

    @property
    def owned(self) -> Owned:
        """The assignment under which rows are written."""
        ...

    def row_written(self, lane: Lane, item: Item, image: RowImage, found: Found | None) -> None:
        """An insert ended; `found` is the row that was there already."""
        ...

    def row_moved(self, lane: Lane | None, item: Item, move: RowMove) -> None:
        """A move ended; without a lane the row was moved where it stands."""
        ...

    def rows_fed(self, lane: Lane, items: Sequence[Item], *, ended: Item | None) -> None:
        """A lane's next rows are here, up to one that ended without acknowledgement and still blocks."""
        ...

    def refused(self) -> None:
        """The partition has another owner."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTools:
    """What all partitions of a destination share for their rows."""

    store: TaskStore
    clock: Clock
    failpoints: Failpoints
    #: Makes sure that an owner may still write (`beacons.lookout`).
    still: Callable[[Owned], Awaitable[None]]
    #: Who knows what was acknowledged without a row; None: nobody is asked.
    standing: Standing | None = None


class Rows:
    """The row work of one partition, done by one task at a time."""

    def __init__(self, owner: RowsOwner, tools: RowTools) -> None:
        self._owner, self._tools, self._store = owner, tools, tools.store
        self._inserts: list[tuple[Lane, Item, RowImage]] = []
        self._moves: list[tuple[Lane | None, Item, RowMove]] = []
        self._published: list[Published] = []
        self._task: asyncio.Task[None] | None = None
        self._lanes: PartitionLanes | None = None
        self._patience = Patience()
        self._log = get_logger("delivery")

    def begin(self, lanes: PartitionLanes) -> None:
        """Start to serve a partition that was taken."""
        self._lanes = lanes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be written or read."""
        return self._task is None

    @property
    def is_failing(self) -> bool:
        """Whether the database did not answer the last time."""
        return self._patience.failures > 0

    @property
    def waiting(self) -> int:
        """How many rows are to be written or moved."""
        return len(self._inserts) + len(self._moves)

    def is_touching(self, aggregate: str) -> bool:
        """Whether a row of an aggregate is to be written or moved."""
        return any(item.aggregate == aggregate for _, item, _ in (*self._inserts, *self._moves))

    def insert(self, lane: Lane, items: Sequence[Item], now: datetime) -> None:
        """Write rows for items as they stand now, oldest first."""
        self._inserts.extend((lane, item, image_of(item, now)) for item in items)
        self.kick()

    def move(self, lane: Lane | None, item: Item) -> None:
        """Move an item's row to where the item stands now, from the version before."""
        self._moves.append((lane, item, move_of(item)))
        self.kick()

    def published(self, delivery_id: str, version: int, handed_to: int | None = None) -> None:
        """Note that Kafka has what was pending, and at which offset what was handed over."""
        self._published.append((delivery_id, version, handed_to))
        self.kick()

    def kick(self) -> None:
        """See to it that what is to be done is done."""
        if self._task is None and not self._owner.gone:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)

    async def _run(self) -> None:
        try:
            while not self._owner.gone and self._has_work():
                try:
                    await self._round()
                    self._patience.worked()
                except TransientError as error:
                    if not self.is_failing:
                        self._log.warning("rows.waiting", partition=self._owner.owned.partition, reason=str(error))
                    await self._patience.wait()
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None
        # Work that arrived between the last look and now.
        if not self._owner.gone and self._has_work():
            self.kick()

    def _has_work(self) -> bool:
        return bool(self._inserts or self._moves or self._published or self._may_feed())

    def _may_feed(self) -> bool:
        lanes = self._lanes
        return lanes is not None and bool(lanes.loads) and lanes.memory.may_feed

    async def _round(self) -> None:
        if self._inserts:
            await self._insert_some()
        elif self._moves:
            await self._move_some()
        if self._published:
            done = self._published[:_MAX_ROWS]
            await self._store.published(self._owner.owned, done)
            del self._published[: len(done)]
        if self._lanes is not None and self._may_feed() and not self._inserts:
            await self._feed_some(self._lanes)

    async def _insert_some(self) -> None:
        batch: list[tuple[Lane, Item, RowImage]] = []
        size = 0
        for entry in self._inserts[:_MAX_ROWS]:
            size += entry[1].size
            if batch and size > _MAX_BYTES and entry[0] is not batch[-1][0]:
                break
            batch.append(entry)
        self._tools.failpoints("before_row")
        owned, now = self._owner.owned, self._tools.clock.now()
        found = await self._store.insert(owned, [image for _, _, image in batch], now)
        self._tools.failpoints("after_row")
        del self._inserts[: len(batch)]
        for lane, item, image in batch:
            self._owner.row_written(lane, item, image, found.get(image.delivery_id))

    async def _move_some(self) -> None:
        batch = self._moves[:_MAX_ROWS]
        real = [move for _, item, move in batch if item.held is not Held.REPEAT]
        if real:
            self._tools.failpoints("before_row")
            await self._store.move(self._owner.owned, real, self._tools.clock.now())
            self._tools.failpoints("after_row")
        del self._moves[: len(batch)]
        for lane, item, move in batch:
            self._owner.row_moved(lane, item, move)

    async def _feed_some(self, lanes: PartitionLanes) -> None:
        loads = lanes.loads[:_MAX_ROWS]
        of_each = max(1, min(_FEED, _MAX_ROWS // len(loads)))
        feeds = await self._store.feed(self._owner.owned, [lane.aggregate for lane in loads], of_each)
        del lanes.loads[: len(loads)]
        by_lane: dict[str, list[Feed]] = {}
        for feed in feeds:
            by_lane.setdefault(feed.aggregate, []).append(feed)
        for lane in loads:
            items: list[Item] = []
            ended = None
            for feed in by_lane.get(lane.aggregate, ()):
                if State(feed.state) in HALTING:
                    ended = item_of(feed)
                    break
                items.append(item_of(feed))
            self._owner.rows_fed(lane, items, ended=ended)


def surface(task: "asyncio.Task[Any]") -> None:
    """Let an error of ours end the process: the loop's exception handler decides."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "work of a partition ended", "exception": error, "task": task}
        )


def image_of(item: Item, now: datetime) -> RowImage:
    """Return the row an item becomes as it stands now."""
    outcome, state, dead_letter = item.pending or (None, None, None)
    return RowImage(
        delivery_id=item.delivery_id or "",
        command_id=item.command_id or "",
        aggregate=item.aggregate,
        sequence=item.sequence,
        record_offset=item.offset,
        state=item.state.value,
        version=item.version,
        attempt=item.attempts,
        throttled=item.throttled,
        next_due=item.next_due,
        expires_at=item.expires_at or now,
        blocks=blocks(item.state),
        error_code=item.code.value if item.code else None,
        detail=item.detail,
        sent=item.sent,
        may_have_acted=item.may_have_acted,
        record=pack_record(item.key, item.headers, item.value),
        pending_outcome=outcome,
        pending_state=state,
        pending_dead_letter=dead_letter,
        pending_envelope=item.envelope,
    )


def move_of(item: Item) -> RowMove:
    """Return the move that leads an item's row to where the item stands now."""
    outcome, state, dead_letter = item.pending or (b"", b"", None)
    return RowMove(
        delivery_id=item.delivery_id or "",
        state=item.state.value,
        version=item.version,
        attempt=item.attempts,
        throttled=item.throttled,
        next_due=item.next_due,
        blocks=blocks(item.state),
        error_code=item.code.value if item.code else None,
        detail=item.detail,
        sent=item.sent,
        may_have_acted=item.may_have_acted,
        pending_outcome=outcome,
        pending_state=state,
        pending_dead_letter=dead_letter,
        pending_envelope=item.envelope,
    )


def item_of(feed: Feed) -> Item:
    """Return the item a row holds."""
    item = Item(feed.record_offset, feed.aggregate, feed.sequence, unpack_record(feed.record))
    item.held = Held.ROW
    item.state = State(feed.state)
    item.version = feed.version
    item.attempts = feed.attempt
    item.throttled = feed.throttled
    item.next_due = feed.next_due
    item.expires_at = feed.expires_at
    item.sent = feed.sent
    item.may_have_acted = feed.may_have_acted
    item.detail = feed.detail
    item.handed_to = feed.handed_to
    item.is_resolution = feed.kind == RESOLUTION
    if item.is_resolution:
        item.delivery_id = feed.delivery_id
        item.command_id = (dict(item.headers)["ce_id"] or b"").decode()
    return item
