"""Lanes: what one owner holds of one partition, and in which order it may act on it.

A lane is one live aggregate. It works on one delivery at a time, its *head*; the others wait behind it, in memory
while the lane is on the happy path, in rows once anything of the aggregate became one. The shell asks what is
ready, reports what happened, and learns which offset may be committed.

Invariants (properties of `tests/unit/delivery`):

- I1: `base()` never passes a record that is not settled, stored as a row, or another destination's;
- I2: an aggregate has at most one head;
- I3: heads follow the order of the records, or of the sequences once they come from rows;
- I5: `memory` counts everything held, and says when to stop reading and when to stop loading rows;
- I10: a lane that works from memory has no blocking row, counted from the moment its write starts.

Nothing here infers anything from holes between offsets: control records make holes.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import Command
from waybill.contracts.states import State
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import DestinationName

__all__ = ["HALTING", "Held", "Item", "Lane", "Limits", "Memory", "PartitionLanes", "put_back", "revive"]

#: A lane that waits with this part of what may be held crowds the others out.
_SHARE: Final = 8
#: Rows loaded at a time fill at most this part.
_FED: Final = 4

#: A blocking row in one of these is moved by people only.
HALTING: Final = frozenset({State.AMBIGUOUS, State.FAILED, State.EXCEPTION, State.DEAD_LETTER})


class Held(StrEnum):
    """Where a delivery is remembered."""

    #: In this process only; its offset is not done.
    MEMORY = "memory"
    #: A row is being written; from here on it settles only through the row.
    WRITING = "writing"
    #: A row holds it; its offset is done.
    ROW = "row"
    #: The row of an earlier record of the same delivery holds it: what is left of this one is one audited try.
    REPEAT = "repeat"


class Limits:
    """How much one partition may hold in memory before it stops reading; reading resumes at half."""

    __slots__ = ("is_closed", "max_bytes", "max_records", "rest_s")

    def __init__(self, max_records: int = 4000, max_bytes: int = 32 * 1024 * 1024, rest_s: float = 5.0) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        #: A head whose row is not due for longer is let go meanwhile: thousands may wait for hours.
        self.rest_s = rest_s
        #: Nothing is read at all, whatever there is room for.
        self.is_closed = False

    def copy(self) -> "Limits":
        """Return limits of its own for one destination."""
        return Limits(self.max_records, self.max_bytes, self.rest_s)


class Memory:
    """What a partition holds in memory, against its limits."""

    __slots__ = ("_limits", "fed", "records", "size")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.records = 0
        self.size = 0
        #: How many of the records came out of rows.
        self.fed = 0

    @property
    def is_over(self) -> bool:
        """Whether reading must stop."""
        limits = self._limits
        return limits.is_closed or self.records >= limits.max_records or self.size >= limits.max_bytes

    @property
    def has_room(self) -> bool:
        """Whether reading may resume."""
        limits = self._limits
        return not limits.is_closed and self.records * 2 <= limits.max_records and self.size * 2 <= limits.max_bytes

    @property
    def may_feed(self) -> bool:
        """Whether more may come out of rows: however many are due, most of the room is for what is read."""
        return self.fed * _FED < self._limits.max_records and self.size * 2 < self._limits.max_bytes

    def is_share(self, items: "Collection[Item]") -> bool:
        """Whether items of one lane take so much of the room that the others are crowded out."""
        size = sum(item.size for item in items)
        return len(items) * _SHARE >= self._limits.max_records or size * _SHARE >= self._limits.max_bytes

    def hold(self, item: "Item", *, is_fed: bool = False) -> None:
        """Count an item."""
        item.is_fed = is_fed
        self.records += 1
        self.size += item.size
        self.fed += is_fed

    def release(self, item: "Item") -> None:
        """Count it no more."""
        self.records -= 1
        self.size -= item.size
        self.fed -= item.is_fed


class Item:
    """One delivery this owner holds: read from the topic, or loaded from its row."""

    __slots__ = (
        "aggregate",
        "attempts",
        "code",
        "command",
        "command_id",
        "delivery_id",
        "detail",
        "envelope",
        "expected",
        "expires_at",
        "first_sent_at",
        "handed_to",
        "headers",
        "held",
        "is_fed",
        "is_resolution",
        "key",
        "may_have_acted",
        "next_due",
        "offset",
        "pending",
        "poison",
        "sends",
        "sent",
        "sequence",
        "sequences",
        "size",
        "started",
        "state",
        "throttled",
        "value",
        "version",
    )

    def __init__(
        self,
        offset: int,
        aggregate: str,
        sequence: int,
        record: tuple[bytes | None, list[tuple[str, bytes | None]], bytes | None],
    ) -> None:
        self.offset = offset
        self.aggregate = aggregate
        self.sequence = sequence
        self.key, self.headers, self.value = record
        #: Bytes it is counted with: the value and a flat allowance for headers and what they are read into.
        self.size = len(self.value or b"") + 3500
        self.held = Held.MEMORY
        self.is_fed = False
        self.state = State.QUEUED
        self.version = 0
        self.attempts = 0
        #: Those of them that were refused unseen by 429: they count for nothing but the audit.
        self.throttled = 0
        self.sent = False
        self.may_have_acted = False
        #: Attempts of which a byte may have left and the first of them, where intents are kept.
        self.sends = 0
        self.first_sent_at: datetime | None = None
        #: Not before this instant; None is at once.
        self.next_due: datetime | None = None
        #: Boot-time seconds at which the attempt in flight began; None when none is.
        self.started: float | None = None
        #: A gap resolution: `value` is its body, and it names no command of its own.
        self.is_resolution = False
        #: As `peek` read them; None for a loaded row.
        self.sequences: Mapping[DestinationName, int] | None = None
        # Filled when the record is first looked into.
        self.command: Command | None = None
        self.delivery_id: str | None = None
        self.command_id: str | None = None
        self.expires_at: datetime | None = None
        #: Why the record can never be sent; None when it can.
        self.poison: str | None = None
        # Why the last move happened, and what Kafka does not have of it yet.
        self.code: ErrorCode | None = None
        self.detail: str | None = None
        #: The sequence its listener waits for, when it last refused this one for that.
        self.expected: int | None = None
        self.pending: tuple[bytes, bytes, bytes | None] | None = None
        #: The record by which it is handed over, packed; goes with `pending`.
        self.envelope: bytes | None = None
        #: Where that record lies, until its listeners are seen to have read past it: then the wait begins.
        self.handed_to: int | None = None

    @property
    def is_readable(self) -> bool:
        """Whether it can be sent, once it was looked into."""
        return self.poison is None and (self.command is not None or self.is_resolution)


#: Stands for an empty queue and is never filled: a queue of its own costs a lane that rests more than all the rest.
_NOTHING: Final[deque[Item]] = deque(maxlen=0)


class Lane:
    """One live aggregate."""

    __slots__ = (
        "aggregate",
        "asleep",
        "feed",
        "halted",
        "halted_at",
        "head",
        "held",
        "in_doubt",
        "loading",
        "rows",
        "unsaid",
        "waiting",
        "writing",
    )

    def __init__(self, aggregate: str) -> None:
        self.aggregate = aggregate
        #: What the lane works on: ready, waiting for its time, in flight, or being recorded.
        self.head: Item | None = None
        #: In memory, in the order of the records.
        self.waiting: deque[Item] = _NOTHING
        #: Loaded rows, in the order of sequences.
        self.feed: deque[Item] = _NOTHING
        #: Blocking rows, counted from the moment their write starts.
        self.rows = 0
        #: Rows whose write has not ended.
        self.writing = 0
        self.loading = False
        #: Its first row is not due for long; nothing of it is held until somebody rouses it.
        self.asleep = False
        self.halted = False
        #: Sequence of the row that halts it: what comes before it goes on.
        self.halted_at = 0
        #: A former owner may have been attempting its first row.
        self.in_doubt = False
        #: Its head's row was moved and Kafka has not heard of it: another move would take the place of that one.
        self.unsaid = False
        #: Stands still while people's decision about one of its deliveries is carried out (`core.holding`).
        self.held = False


class PartitionLanes:
    """All lanes of one partition. Single-threaded: its owner's loop is the only caller."""

    __slots__ = ("lanes", "loads", "memory", "outstanding", "position", "ready")

    def __init__(self, position: int, limits: Limits) -> None:
        #: The offset after the last record seen, ours or not.
        self.position = position
        self.memory = Memory(limits)
        #: What was read here and is neither settled nor stored, by offset and in that order; others only look.
        self.outstanding: dict[int, Item] = {}
        self.lanes: dict[str, Lane] = {}
        #: Lanes whose head may be dispatched; the shell empties it.
        self.ready: deque[Lane] = deque()
        #: Lanes that need their next rows; the shell empties it.
        self.loads: list[Lane] = []

    # What may be committed, what may be read

    def base(self) -> int:
        """Return the offset to commit: every record below it is settled, stored or not ours."""
        return next(iter(self.outstanding), self.position)

    def first_unsettled(self, most: int) -> tuple[tuple[int, ...], int]:
        """Return the lowest offsets that are neither settled nor stored, and the offset below which these are all."""
        found = tuple(islice(self.outstanding, most + 1))
        return found[:most], found[most] if len(found) > most else self.position

    @property
    def unsettled(self) -> int:
        """How many records read here are neither settled nor stored."""
        return len(self.outstanding)

    def crowding(self) -> list[Lane]:
        """Return the lanes that fill the memory others need, once reading must stop: rows hold a hot key as well."""
        memory = self.memory
        return (
            [lane for lane in self.lanes.values() if memory.is_share(lane.waiting) and not lane.held]
            if memory.is_over
            else []
        )

    # Records

    def admit(self, item: Item, *, is_known: bool = False) -> Sequence[Item]:
        """Take one of our records, in offset order; return what must become rows now, oldest first.

        Args:
            item: read from the topic.
            is_known: a row of this delivery may exist already: it goes the way of the rows, where a conflict
                says that it is a repeat.
        """
        self.outstanding[item.offset] = item
        self.memory.hold(item)
        lane = self.lanes.get(item.aggregate)
        if lane is None:
            lane = self.lanes[item.aggregate] = Lane(item.aggregate)
            if not is_known:
                lane.head = item
                self.ready.append(lane)
                return ()
        elif lane.rows and not lane.held:
            self._begin_write(lane, item)
            return (item,)
        if lane.waiting is _NOTHING:
            lane.waiting = deque()
        lane.waiting.append(item)
        if is_known and not lane.held:
            return self.to_rows(lane)
        if lane.head is None:
            self.wake(lane)
        return ()

    def wake(self, lane: Lane) -> None:
        """Give an idle lane its next head, ask for its next rows, or forget it."""
        if lane.head is not None or lane.halted or lane.loading or lane.asleep or lane.held:
            return
        if lane.rows:
            if lane.feed:
                lane.head = lane.feed.popleft()
                self.ready.append(lane)
            elif not lane.writing:
                lane.loading = True
                self.loads.append(lane)
        elif lane.waiting:
            lane.head = lane.waiting.popleft()
            self.ready.append(lane)
        else:
            self.lanes.pop(lane.aggregate, None)

    def settle(self, lane: Lane, item: Item) -> None:
        """Finish the head of a lane that works from memory: nothing is left to remember of it."""
        if lane.head is not item or item.held is not Held.MEMORY:
            raise InvariantBroken("settled a delivery that is not the head in memory")
        lane.head = None
        del self.outstanding[item.offset]
        self.memory.release(item)
        self.wake(lane)

    # Rows

    def to_rows(self, lane: Lane) -> Sequence[Item]:
        """Turn everything a lane holds in memory into rows to be written, oldest first; it then feeds from rows."""
        items = [lane.head] if lane.head is not None and lane.head.held is Held.MEMORY else []
        items.extend(lane.waiting)
        lane.waiting = _NOTHING
        for item in items:
            self._begin_write(lane, item)
        return items

    def stored(self, lane: Lane, item: Item, *, is_repeat: bool) -> None:
        """Learn that a row's write ended: its offset is done. A repeat made no row: another record's holds it."""
        if item.held is not Held.WRITING:
            raise InvariantBroken("stored a delivery whose write had not begun")
        item.held = Held.REPEAT if is_repeat else Held.ROW
        lane.writing -= 1
        lane.rows -= is_repeat
        del self.outstanding[item.offset]
        if lane.head is not item:
            self.memory.release(item)
        if lane.halted and item.sequence < lane.halted_at:
            # Read again after a crash: it is not behind what halts the lane.
            lane.halted = False
        self.wake(lane)

    def fed(self, lane: Lane, items: Iterable[Item], *, halted_at: int | None) -> None:
        """Learn a lane's next rows in the order of sequences, up to one that waits for people; none: none is left."""
        lane.loading = False
        lane.feed = deque(items)
        for item in lane.feed:
            item.held = Held.ROW
            if lane.in_doubt:
                item.sent = item.may_have_acted = True
                lane.in_doubt = False
            self.memory.hold(item, is_fed=True)
        if not lane.feed:
            if halted_at is not None:
                lane.halted, lane.halted_at = True, halted_at
            else:
                # Whatever was appended while the rows were read is counted in `writing`.
                lane.rows = lane.writing
        self.wake(lane)

    def adopt(self, aggregate: str, rows: int, *, in_doubt: bool = False, asleep: bool = False) -> Lane:
        """Take over an aggregate that has blocking rows; `in_doubt`: its first one may have been under way."""
        lane = self.lanes[aggregate] = Lane(aggregate)
        lane.in_doubt, lane.asleep = in_doubt, asleep
        lane.rows = rows
        self.wake(lane)
        return lane

    def rest(self, lane: Lane, item: Item) -> None:
        """Let go of a head whose row is not due for long; `rouse` reads it again."""
        self.drop_head(lane, item)
        self.drop_feed(lane)
        lane.asleep = True

    def rouse(self, lane: Lane) -> None:
        """Go on with a lane that rests."""
        lane.asleep = False
        self.wake(lane)

    def row_closed(self, lane: Lane, item: Item) -> None:
        """Learn that the head's row blocks no longer."""
        self.drop_head(lane, item)
        lane.rows -= 1
        self.wake(lane)

    def repeat_done(self, lane: Lane, item: Item) -> None:
        """Finish a head that turned out to be a repeat while it was worked on."""
        if lane.head is not item or item.held is not Held.REPEAT:
            raise InvariantBroken("finished a repeat that is not the head")
        lane.head = None
        self.memory.release(item)
        self.wake(lane)

    def row_halted(self, lane: Lane, item: Item) -> None:
        """Learn that the head's row waits for people: so does the lane, once nothing is left that comes before it."""
        self.drop_head(lane, item)
        self.drop_feed(lane)
        if lane.rows == 1:
            lane.halted, lane.halted_at = True, item.sequence
        self.wake(lane)

    def drop_head(self, lane: Lane, item: Item) -> None:
        """Forget a head that is a row."""
        if lane.head is not item or item.held is not Held.ROW:
            raise InvariantBroken("moved a row that is not the head")
        lane.head = None
        self.memory.release(item)

    def drop_feed(self, lane: Lane) -> None:
        """Forget loaded rows that have not begun; they are loaded again."""
        for item in lane.feed:
            self.memory.release(item)
        lane.feed = _NOTHING

    # Private

    def _begin_write(self, lane: Lane, item: Item) -> None:
        item.held = Held.WRITING
        lane.rows += 1
        lane.writing += 1


def revive(lanes: PartitionLanes, lane: Lane, item: Item) -> bool:
    """Make the row that halts a lane its head again, to be decided about; False when it is not what halts it."""
    if not lane.halted or lane.held or lane.head is not None or lane.halted_at != item.sequence:
        return False
    lane.halted, lane.head = False, item
    lanes.memory.hold(item, is_fed=True)
    return True


def put_back(lanes: PartitionLanes, lane: Lane, item: Item) -> None:
    """Let a lane look anew what its first row is: nothing came of the one that was revived."""
    lanes.drop_head(lane, item)
    lanes.wake(lane)
