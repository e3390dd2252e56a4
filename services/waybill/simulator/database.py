"""The control database: the worker's tables, its statements as transactions, the locks they take, and its past.

A fenced statement takes what PostgreSQL takes if, and only if, its text says so: `FOR SHARE` locks the owner's row
until the statement's transaction ends, and a new owner's bump waits for that; `epoch = %(epoch)s` and `beacon =
%(beacon)s` make the checks, `INSERT INTO delivery.beacon` leaves a beacon. So a statement that lost one of them is
simulated without it. Every statement is a transaction of its own.

A database that is set back to a copy of itself ends what is under way and has what the copy had, nothing else.

A new statement of the worker gets its line in `_READS`, `_WRITES` or beside `take`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from waybill.delivery import store as sql
from waybill.delivery.asking import statements as asking
from waybill.delivery.beacons import statements as marks
from waybill.delivery.decisions import statements as decisions
from waybill.delivery.handover import statements as waits
from waybill.delivery.intents import statements as intents
from waybill.delivery.resolutions import statements as resolutions
from waybill.delivery.results import statements as results
from waybill.kernel.errors import TransientError
from waybill.simulator.tables.rows import DecidedTables, Key, Row, Tables, Values, key_of
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["Copy", "Database", "Key", "Row", "Values"]

#: As the worker's sessions ask for.
_LOCK_S: Final = 5.0
_IDLE_S: Final = 3.0
Answer = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class _Owner:
    """One row of `partition_owner` and its lock."""

    epoch: UUID | None = None
    shared: int = 0
    is_bumping: bool = False
    waiting: deque[Callable[[], None]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Everything a database had at an instant."""

    rows: Mapping[str, Row]
    intents: Mapping[tuple[str, str], Row]
    decisions: Mapping[str, Row]
    beacons: Mapping[Key, Mapping[UUID, int]]
    epochs: Mapping[Key, UUID | None]


class Database(DecidedTables):
    """The tables behind their locks."""

    def __init__(self, timeline: Timeline, trace: Trace) -> None:
        super().__init__(trace)
        self._timeline = timeline
        self._owners: dict[Key, _Owner] = {}
        #: Counts how often it was set back: what began before does not end after.
        self._past = 0

    def is_newest(self, key: Key, epoch: UUID, beacon: UUID | None) -> bool:
        """Whether this assignment is the owner, and the database its own."""
        return self._owner(key).epoch == epoch and beacon in self.beacons.get(key, {})

    def copy(self) -> Copy:
        """Return what it has now."""
        return Copy(
            rows={name: dict(row) for name, row in self.rows.items()},
            intents=self.intents.copy(),
            decisions=dict(self.decisions),
            beacons={key: dict(found) for key, found in self.beacons.items()},
            epochs={key: owner.epoch for key, owner in self._owners.items()},
        )

    def set_back(self, copy: Copy) -> None:
        """Have what an earlier copy had, nothing else."""
        self._trace("database", "is set back")
        self._past += 1
        self.rows = {name: dict(row) for name, row in copy.rows.items()}
        self.intents.set_back(copy.intents)
        self.decisions = dict(copy.decisions)
        self.beacons = {key: dict(found) for key, found in copy.beacons.items()}
        self._owners = {key: _Owner(epoch=epoch) for key, epoch in copy.epochs.items()}

    def shut_out(self, key: Key, epoch: UUID) -> None:
        """Give a partition an epoch nobody works under, and leave no beacon."""
        self._owner(key).epoch = epoch
        self._trace("database", f"everybody is shut out of {key[1]}[{key[2]}]")

    def hold_share(self, key: Key) -> None:
        """Let a session take the owner's row FOR SHARE and stand still: it is ended after its idle time-out."""
        owner = self._owner(key)
        owner.shared += 1
        self._trace("database", f"a session holds the owner of {key[1]}[{key[2]}] and stands still")
        self._timeline.after(_IDLE_S, self._let_go, owner)

    def execute(self, query: str, values: Values, lasts_s: float, answer: Answer) -> None:
        """Run a statement that takes so long, and answer with its rows or an error."""
        if query in _READS:
            answer(_READS[query](self, values))
            return
        if query == marks.STILL:
            answer(self._still(query, values))
            return
        key = key_of(values)
        if query == marks.TAKE:
            self._lock(key, lambda: self._take(key, values, lasts_s, answer), answer, exclusive=True)
        elif query in _WRITES:
            locks = "FOR SHARE" in query
            begin = partial(self._write, query, key, values, lasts_s, answer)
            if locks:
                self._lock(key, begin, answer, exclusive=False)
            else:
                begin()
        else:
            raise LookupError(f"the simulated database does not know this statement: {query}")

    # Locks

    def _lock(self, key: Key, begin: Callable[[], None], answer: Answer, *, exclusive: bool) -> None:
        """Begin once the owner's row can be locked; give up after the lock time-out."""
        owner, end = self._owner(key), self._timeline.now + _LOCK_S
        is_over = False

        def attempt() -> None:
            nonlocal is_over
            if is_over:
                return
            if owner.is_bumping or (exclusive and owner.shared):
                owner.waiting.append(attempt)
                return
            is_over = True
            begin()

        def give_up() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                answer(TransientError("the control database does not answer: LockNotAvailable"))

        attempt()
        if not is_over:
            self._timeline.at(end, give_up)

    def _owner(self, key: Key) -> _Owner:
        return self._owners.setdefault(key, _Owner())

    def _let_go(self, owner: _Owner) -> None:
        owner.shared -= 1
        self._wake(owner)

    def _wake(self, owner: _Owner) -> None:
        waiting, owner.waiting = owner.waiting, deque()
        for attempt in waiting:
            attempt()

    # Writes

    def _take(self, key: Key, values: Values, lasts_s: float, answer: Answer) -> None:
        owner, past = self._owner(key), self._past
        if not self.knows(values)[0][0]:
            answer([(0, None)])
            return
        owner.is_bumping = True

        def commit() -> None:
            if past != self._past:
                answer(_gone())
                return
            owner.epoch, owner.is_bumping = values["epoch"], False
            self.beacons.setdefault(key, {})[values["fresh"]] = values["committed"]
            self._trace("database", f"{values['owner']} owns {key[1]}[{key[2]}]")
            if self.observer is not None:
                self.observer.taken(key, values["epoch"], values["owner"])
            answer([(1, None)])
            self._wake(owner)

        self._timeline.after(lasts_s, commit)

    def _write(self, query: str, key: Key, values: Values, lasts_s: float, answer: Answer) -> None:
        """Check epoch and beacon when the statement begins, write when its transaction ends."""
        owner, past = self._owner(key), self._past
        found = owner.epoch is not None and self._is_mine(query, owner, values)
        locks = found and "FOR SHARE" in query
        owner.shared += locks

        def commit() -> None:
            if past != self._past:
                answer(_gone())
                return
            if found and "INSERT INTO delivery.beacon" in query:
                self.beacons.setdefault(key, {})[values["fresh"]] = values["committed"]
            write, tell = _WRITES[query]
            written = write(self, values) if found or query == intents.ANSWER else []
            if written and self.observer is not None:
                self.observer.written(key, values["epoch"], owner.epoch)
            answer(tell(found, written))
            if locks:
                self._let_go(owner)

        self._timeline.after(lasts_s, commit)

    def _still(self, query: str, values: Values) -> list[tuple[Any, ...]]:
        """Tell which of some assignments still are the owners, and drop what they no longer need."""
        names = ("tenant", "destination", "partition", "epoch", "beacon", "named")
        mine = []
        for asked in zip(*(values[f"{name}s"] for name in names), strict=True):
            each = dict(zip(names, asked, strict=True))
            is_newest = "partition, epoch)" not in query or self._owner(key_of(each)).epoch == each["epoch"]
            if is_newest and ("partition, beacon)" not in query or self.has_beacon(each)):
                self.purge(each)
                mine.append(asked[:4])
        return mine

    def _is_mine(self, query: str, owner: _Owner, values: Values) -> bool:
        is_newest = "epoch = %(epoch)s" not in query or owner.epoch == values["epoch"]
        return is_newest and ("beacon = %(beacon)s" not in query or self.has_beacon(values))


def _gone() -> TransientError:
    return TransientError("the control database does not answer: AdminShutdown")


_READS: Final[dict[str, Callable[[DecidedTables, Values], list[tuple[Any, ...]]]]] = {
    marks.KNOWS: Tables.knows,
    sql.FIND: Tables.found,
    sql.KNOWN: Tables.known,
    sql.LANES: Tables.lanes,
    sql.UNPUBLISHED: Tables.unpublished,
    sql.FEED: Tables.feed,
    sql.OVERDUE: Tables.overdue,
    asking.DUE: Tables.due,
    resolutions.TOLD: Tables.told,
    decisions.JUDGED: DecidedTables.judged,
    decisions.EARLY: DecidedTables.early,
    decisions.STANDING: DecidedTables.standing,
    decisions.BEHIND: DecidedTables.behind,
    decisions.BLOCKING: DecidedTables.blocking,
    intents.LOOK: lambda tables, values: tables.sure(
        intents.LOOK, values, tables.intents.look(values), len(intents.Intent._fields)
    ),
    results.WAITING: lambda _tables, _values: [],  # nobody ever says anything
    results.DROP: lambda _tables, _values: [(0,)],
    sql.DROP_CLOSED: lambda _tables, _values: [(0,)],  # nothing in a run is old enough
}


def _ids(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), written or None)]


def _count(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), len(written))]


def _opened(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), *row) for row in written] or [(int(found), None, None, None)]


def _nothing(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found),)]


#: What a statement writes, and how it tells.
_WRITES: Final[
    dict[str, tuple[Callable[[DecidedTables, Values], list[Any]], Callable[[bool, list[Any]], list[tuple[Any, ...]]]]]
] = {
    sql.INSERT: (Tables.insert, _ids),
    sql.MOVE: (Tables.move, _ids),
    sql.PUBLISHED: (Tables.published, _ids),
    asking.NOTE: (Tables.note, _count),
    resolutions.RESOLVE: (Tables.resolve, _ids),
    resolutions.RETELL: (Tables.retell, _ids),
    decisions.RECORD: (DecidedTables.verdict, _ids),
    decisions.CARRY_OUT: (DecidedTables.carry_out, _ids),
    decisions.UNBLOCK: (DecidedTables.unblock, _ids),
    intents.BEGIN: (lambda tables, values: tables.intents.begin(values), _opened),
    intents.AGAIN: (lambda tables, values: tables.intents.again(values), _opened),
    intents.ANSWER: (lambda tables, values: tables.intents.answer(values), _nothing),
    waits.BEGIN: (Tables.begin_waits, _opened),
}
