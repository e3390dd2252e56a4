"""The control database: the worker's two tables, its statements as transactions, the locks they take.

A fenced statement takes what PostgreSQL takes if, and only if, its text says so: `FOR SHARE` locks the owner's row
until the statement's transaction ends, and a new owner's bump waits for that; `epoch = %(epoch)s` makes the check. So
a statement that lost either is simulated without it. Every statement is a transaction of its own.

A new statement of the worker gets its line in `_READS`, `_WRITES` or beside `take`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

from waybill.contracts.states import TRANSITIONS, State
from waybill.delivery import store as sql
from waybill.delivery.asking import statements as asking
from waybill.delivery.core.lanes import HALTING
from waybill.delivery.decisions import statements as decisions
from waybill.delivery.resolutions import statements as resolutions
from waybill.kernel.errors import TransientError
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["Database", "Key", "Row", "Values"]

#: As the worker's sessions ask for.
_LOCK_S: Final = 5.0
_IDLE_S: Final = 3.0

Key = tuple[str, str, int]
Row = dict[str, Any]
Values = Mapping[str, Any]
Answer = Callable[[Any], None]
_IMAGE: Final = tuple(column.name for column in fields(sql.RowImage))
_TELLING: Final = tuple(column.name for column in fields(resolutions.ResolutionRow))
#: A gap resolution that nobody heard yet.
_NEW: Final[Row] = {
    **dict.fromkeys((*(column.name for column in fields(sql.RowImage)), "created_at")),
    "state": State.QUEUED.value,
    "version": 0,
    "attempt": 0,
    "throttled": 0,
    "blocks": True,
    "sent": False,
    "may_have_acted": False,
    "kind": "resolution",
}
_MOVE: Final = tuple(column.name for column in fields(sql.RowMove))
_ALLOWED: Final = frozenset((before, after) for (before, _), after in TRANSITIONS.items())


class Observer(Protocol):
    """Who sees what is written."""

    def taken(self, key: Key, epoch: UUID, owner: str) -> None:
        """A partition got a new owner."""
        ...

    def written(self, key: Key, epoch: UUID, newest: UUID | None) -> None:
        """Rows were written under an epoch."""
        ...

    def broken(self, law: str, what: str) -> None:
        """Something happened that must not."""
        ...


@dataclass(slots=True, eq=False)
class _Owner:
    """One row of `partition_owner` and its lock."""

    epoch: UUID | None = None
    shared: int = 0
    is_bumping: bool = False
    waiting: deque[Callable[[], None]] = field(default_factory=deque)


class Tables:
    """The rows, and what statements do to them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.rows: dict[str, Row] = {}
        self.observer: Observer | None = None

    def rows_of(self, destination: str) -> list[Row]:
        """Return a destination's rows, oldest first."""
        return [row for row in self.rows.values() if row["destination"] == destination]

    def find(self, destination: str, delivery_id: str) -> Row | None:
        """Return the row of a delivery."""
        return self.rows.get(f"{destination}/{delivery_id}")

    def insert(self, values: Values) -> list[str]:
        """Write rows that are not there."""
        written = []
        for row in _rows(values, _IMAGE):
            row["partition"], row["destination"] = values["partition"], values["destination"]
            row["updated_at"], row["kind"] = values["now"], "delivery"
            name = f"{row['destination']}/{row['delivery_id']}"
            if name not in self.rows:
                self.rows[name] = row
                written.append(row["delivery_id"])
                self._trace("database", f"row {_told(row)}")
        return written

    def move(self, values: Values) -> list[str]:
        """Move rows, each from the version before."""
        written = []
        for move in _rows(values, _MOVE):
            row = self.find(values["destination"], move["delivery_id"])
            if row is None or row["version"] != move["version"] - 1:
                continue
            if (State(row["state"]), State(move["state"])) not in _ALLOWED and self.observer is not None:
                self.observer.broken("I8", f"no move from {row['state']} to {move['state']}")
            row.update(move, updated_at=values["now"])
            written.append(move["delivery_id"])
            self._trace("database", f"moved {_told(row)}")
        return written

    def resolve(self, values: Values) -> list[str]:
        """Put gap resolutions in the places of rows that ended and block."""
        ended = [self.find(values["destination"], ended_id) for ended_id in values["ended_id"]]
        blocking = {row["delivery_id"] for row in ended if row and row["blocks"] and row["state"] in HALTING}
        for row in ended:
            if row is not None and row["delivery_id"] in blocking:
                row.update(blocks=False, updated_at=values["now"])
        return self._tell(values, blocking)

    def retell(self, values: Values) -> list[str]:
        """Write one more gap resolution."""
        return self._tell(values, set(values["ended_id"]))

    def _tell(self, values: Values, about: set[str]) -> list[str]:
        written = []
        for told in _rows(values, _TELLING):
            name = f"{values['destination']}/{told['resolution_id']}"
            if told.pop("ended_id") in about and name not in self.rows:
                told["delivery_id"] = told.pop("resolution_id")
                place = {"destination": values["destination"], "partition": values["partition"]}
                self.rows[name] = {**_NEW, **told, **place, "updated_at": values["now"]}
                written.append(told["delivery_id"])
                self._trace("database", f"resolution {_told(self.rows[name])}")
        return written

    def told(self, values: Values) -> list[tuple[Any, ...]]:
        """Return what ended in a range of sequences and blocks no longer."""
        rows = [
            row
            for row in self._own(values)
            if row["aggregate"] == values["aggregate"]
            and values["first"] <= row["sequence"] < values["before"]
            and row["kind"] == "delivery"
            and not row["blocks"]
            and row["state"] in HALTING
        ]
        rows.sort(key=lambda row: row["sequence"])
        return [_pick(row, sql.Feed) for row in rows[: values["limit"]]]

    def published(self, values: Values) -> list[str]:
        """Note what is published."""
        written = []
        for delivery_id, version in zip(values["delivery_id"], values["version"], strict=True):
            row = self.find(values["destination"], delivery_id)
            if row is not None and row["version"] == version:
                row.update(pending_outcome=None, pending_state=None, pending_dead_letter=None)
                written.append(delivery_id)
        return written

    # Reads

    def _own(self, values: Values) -> list[Row]:
        return [row for row in self.rows_of(values["destination"]) if row["partition"] == values["partition"]]

    def found(self, values: Values) -> list[tuple[Any, ...]]:
        """Return rows by id."""
        wanted = set(values["delivery_id"])
        return [_pick(row, sql.Found) for row in self.rows_of(values["destination"]) if row["delivery_id"] in wanted]

    def known(self, values: Values) -> list[tuple[Any, ...]]:
        """Return the ids of a partition's rows."""
        return [(UUID(row["delivery_id"]),) for row in self._own(values)]

    def lanes(self, values: Values) -> list[tuple[Any, ...]]:
        """Return aggregates with blocking rows, how many, and when the first is due."""
        lanes: dict[str, list[Row]] = {}
        for row in self._own(values):
            if row["blocks"]:
                lanes.setdefault(row["aggregate"], []).append(row)
        firsts = {
            name: min(rows, key=lambda row: (row["sequence"], row["record_offset"])) for name, rows in lanes.items()
        }
        return [(name, len(rows), firsts[name]["next_due"]) for name, rows in lanes.items()]

    def unpublished(self, values: Values) -> list[tuple[Any, ...]]:
        """Return what is decided and perhaps not said."""
        left = [row for row in self._own(values) if row["pending_outcome"] is not None]
        left.sort(key=lambda row: (row["updated_at"], row["sequence"]))
        names = ("delivery_id", "version", "aggregate", "pending_outcome", "pending_state", "pending_dead_letter")
        return [tuple(row[name] for name in names) for row in left[: values["limit"]]]

    def feed(self, values: Values) -> list[tuple[Any, ...]]:
        """Return the next blocking rows of some aggregates."""
        found: list[tuple[Any, ...]] = []
        for aggregate in sorted(values["aggregates"]):
            rows = [row for row in self._own(values) if row["blocks"] and row["aggregate"] == aggregate]
            rows.sort(key=lambda row: (row["sequence"], row["record_offset"]))
            found.extend(_pick(row, sql.Feed) for row in rows[: values["limit"]])
        return found

    def due(self, values: Values) -> list[tuple[Any, ...]]:
        """Return ambiguous heads that are to be asked about."""
        heads: dict[str, Row] = {}
        for row in sorted(self._own(values), key=lambda row: (row["sequence"], row["record_offset"])):
            if row["blocks"]:
                heads.setdefault(row["aggregate"], row)
        rows = [
            row
            for row in heads.values()
            if row["state"] == State.AMBIGUOUS
            and row["pending_outcome"] is None
            and row["updated_at"] <= values["since"]
            and (row["next_due"] is None or row["next_due"] <= values["now"])
        ]
        rows.sort(key=lambda row: (row["next_due"] is not None, row["next_due"] or values["now"]))
        return [(*_pick(row, sql.Feed), row["updated_at"]) for row in rows[: values["limit"]]]

    def note(self, values: Values) -> list[str]:
        """Keep what was answered about an ambiguous row, and when to ask again."""
        row = self.find(values["destination"], values["delivery_id"])
        if row is None or row["version"] != values["version"] or row["state"] != State.AMBIGUOUS:
            return []
        row.update(next_due=values["due"], asked=values["asked"].obj)
        self._trace("database", f"asked {_told(row)}: {row['asked']['said']}")
        return [row["delivery_id"]]

    def overdue(self, values: Values) -> list[tuple[Any, ...]]:
        """Return what expired where it stands."""
        rows = [
            row
            for row in self._own(values)
            if row["blocks"]
            and row["state"] in {State.QUEUED, State.RETRYING}
            and row["expires_at"] <= values["now"]
            and row["aggregate"] in values["aggregates"]
        ]
        rows.sort(key=lambda row: row["expires_at"])
        return [_pick(row, sql.Feed) for row in rows[: values["limit"]]]


class DecidedTables(Tables):
    """The rows and what people decided about them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.decisions: dict[str, Row] = {}

    def verdict(self, values: Values) -> list[str]:
        """Write what became of a decision, unless that is written."""
        name = f"{values['destination']}/{values['decision_id']}"
        known = self.decisions.get(name)
        if known is not None and known["verdict"] not in {"open", "early"}:
            return []
        self.decisions[name] = {**values, "delivery_id": values["about"], "version": values["made_on"]}
        self._trace("database", f"decision {values['kind']} is {values['verdict']} {values['why'] or ''}")
        return [values["decision_id"]]

    def carry_out(self, values: Values) -> list[str]:
        """Move a row as it was decided, and write the verdict."""
        row = self.find(values["destination"], values["delivery_id"])
        if row is None or row["version"] != values["version"] - 1 or row["pending_outcome"] is not None:
            return []
        if (State(row["state"]), State(values["state"])) not in _ALLOWED and self.observer is not None:
            self.observer.broken("I8", f"no move from {row['state']} to {values['state']}")
        names = ("state", "version", "error_code", "detail", "pending_outcome", "pending_state")
        row.update({name: values[name] for name in names}, next_due=None, blocks=True, updated_at=values["now"])
        self._trace("database", f"decided {_told(row)}")
        return self.verdict(values)

    def unblock(self, values: Values) -> list[str]:
        """Let a lane go on behind a resolution, and write the verdict."""
        row = self.find(values["destination"], values["delivery_id"])
        if row is None or row["kind"] != "resolution" or not row["blocks"]:
            return []
        row.update(blocks=False, updated_at=values["now"])
        return self.verdict(values)

    def judged(self, values: Values) -> list[tuple[Any, ...]]:
        """Return what became of a decision."""
        known = self.decisions.get(f"{values['destination']}/{values['decision_id']}")
        return [] if known is None else [(known["verdict"],)]

    def early(self, values: Values) -> list[tuple[Any, ...]]:
        """Return decisions about what has not come."""
        names = ("aggregate", "kind", "delivery_id", "sequence", "version", "states", "decided_by", "reason")
        return [
            (UUID(known["decision_id"]), *(_identity(name, known[name]) for name in names), known["decided_at"])
            for known in self.decisions.values()
            if known["destination"] == values["destination"]
            and known["partition"] == values["partition"]
            and known["verdict"] == "early"
        ]

    def standing(self, values: Values) -> list[tuple[Any, ...]]:
        """Return the row a decision is about."""
        rows = [
            row
            for row in self._own(values)
            if row["aggregate"] == values["aggregate"]
            and (
                row["delivery_id"] == values["about"]
                or (values["about"] is None and row["sequence"] == values["sequence"] and row["kind"] == "delivery")
            )
        ]
        return [(*_pick(row, sql.Feed), row["blocks"], row["pending_outcome"] is not None) for row in rows]

    def behind(self, values: Values) -> list[tuple[Any, ...]]:
        """Count what waits behind a number."""
        rows = [row for row in self._own(values) if row["aggregate"] == values["aggregate"] and row["blocks"]]
        return [(sum(row["sequence"] > values["sequence"] and row["kind"] == "delivery" for row in rows),)]

    def blocking(self, values: Values) -> list[tuple[Any, ...]]:
        """Count the rows that hold a lane."""
        return [(sum(row["blocks"] and row["aggregate"] == values["aggregate"] for row in self._own(values)),)]


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
            written = _WRITES[query](self, values) if found else []
            if written and self.observer is not None:
                self.observer.written(key, values["epoch"], owner.epoch)
            answer([(int(found), _ANSWERS.get(query, _ids)(written))])
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
    sql.DROP_CLOSED: lambda _tables, _values: [(0,)],  # nothing in a run is old enough
}
_WRITES: Final[dict[str, Callable[[DecidedTables, Values], list[str]]]] = {
    sql.INSERT: Tables.insert,
    sql.MOVE: Tables.move,
    sql.PUBLISHED: Tables.published,
    asking.NOTE: Tables.note,
    resolutions.RESOLVE: Tables.resolve,
    resolutions.RETELL: Tables.retell,
    decisions.RECORD: DecidedTables.verdict,
    decisions.CARRY_OUT: DecidedTables.carry_out,
    decisions.UNBLOCK: DecidedTables.unblock,
}


def _ids(written: list[str]) -> list[str] | None:
    return written or None


#: How a statement tells what it wrote, where that is not by ids.
_ANSWERS: Final[dict[str, Callable[[list[str]], object]]] = {asking.NOTE: len}


def _rows(values: Values, names: tuple[str, ...]) -> list[Row]:
    """Turn columns into rows."""
    return [dict(zip(names, row, strict=True)) for row in zip(*(values[name] for name in names), strict=True)]


def _pick(row: Row, kind: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in kind._fields)


def _identity(name: str, value: Any) -> Any:
    return UUID(value) if name == "delivery_id" and value is not None else value


def _told(row: Row) -> str:
    return f"{row['destination']} {row['aggregate']}#{row['sequence']} {row['state']} v{row['version']}"
