"""The control database: the worker's tables, its statements as transactions, the locks they take.

A fenced statement takes what PostgreSQL takes if, and only if, its text says so: `FOR SHARE` locks the owner's row
until the statement's transaction ends, and a new owner's bump waits for that; `epoch = %(epoch)s` makes the check. So
a statement that lost either is simulated without it. Every statement is a transaction of its own.

A new statement of the worker gets its line in `_READS`, `_WRITES` or beside `take`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from waybill.delivery import store as sql
from waybill.delivery.asking import statements as asking
from waybill.delivery.decisions import statements as decisions
from waybill.delivery.intents import statements as intents
from waybill.delivery.resolutions import statements as resolutions
from waybill.kernel.errors import TransientError
from waybill.simulator.tables.rows import DecidedTables, Key, Row, Tables, Values
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["Database", "Key", "Row", "Values"]

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


class Database(DecidedTables):
    """The tables behind their locks."""

    def __init__(self, timeline: Timeline, trace: Trace) -> None:
        super().__init__(trace)
        self._timeline = timeline
        self._owners: dict[Key, _Owner] = {}

    def is_newest(self, key: Key, epoch: UUID) -> bool:
        """Whether this assignment is the owner."""
        return self._owner(key).epoch == epoch

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
        key = (values["tenant"], values["destination"], values["partition"])
        if query == sql.TAKE:
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
        owner = self._owner(key)
        owner.is_bumping = True

        def commit() -> None:
            owner.epoch, owner.is_bumping = values["epoch"], False
            self._trace("database", f"{values['owner']} owns {key[1]}[{key[2]}]")
            if self.observer is not None:
                self.observer.taken(key, values["epoch"], values["owner"])
            answer([])
            self._wake(owner)

        self._timeline.after(lasts_s, commit)

    def _write(self, query: str, key: Key, values: Values, lasts_s: float, answer: Answer) -> None:
        """Check the epoch when the statement begins, write when its transaction ends."""
        owner = self._owner(key)
        found = owner.epoch is not None and ("epoch = %(epoch)s" not in query or owner.epoch == values["epoch"])
        locks = found and "FOR SHARE" in query
        owner.shared += locks

        def commit() -> None:
            write, tell = _WRITES[query]
            written = write(self, values) if found else []
            if written and self.observer is not None:
                self.observer.written(key, values["epoch"], owner.epoch)
            answer(tell(found, written))
            if locks:
                self._let_go(owner)

        self._timeline.after(lasts_s, commit)


_READS: Final[dict[str, Callable[[DecidedTables, Values], list[tuple[Any, ...]]]]] = {
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
    intents.LOOK: lambda tables, values: tables.intents.look(values),
    sql.DROP_CLOSED: lambda _tables, _values: [(0,)],  # nothing in a run is old enough
}


def _ids(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), written or None)]


def _count(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), len(written))]


def _opened(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return [(int(found), *row) for row in written] or [(int(found), None, None, None)]


def _nothing(found: bool, written: list[Any]) -> list[tuple[Any, ...]]:
    return []


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
}
