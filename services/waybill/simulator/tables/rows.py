"""The rows of open tasks and of what people decided, and what the worker's statements do to them."""

from dataclasses import fields
from typing import Any, Final, Protocol
from uuid import UUID

from waybill.contracts.states import BY_PEOPLE, TRANSITIONS, State
from waybill.delivery import store as sql
from waybill.delivery.core.lanes import HALTING
from waybill.delivery.resolutions import statements as resolutions
from waybill.simulator.tables.intents import IntentTables
from waybill.simulator.tables.marks import Key, Marked, Values, key_of
from waybill.simulator.trace import Trace

__all__ = ["DecidedTables", "Key", "Observer", "Row", "Tables", "Values", "key_of"]

Row = dict[str, Any]
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
    "handed_to": None,
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


class Tables(Marked):
    """The rows, and what statements do to them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self.rows: dict[str, Row] = {}
        #: Names of all rows there ever were, whatever was set back since.
        self.stored: set[str] = set()
        self.observer: Observer | None = None
        self.intents = IntentTables(trace, self._broken)

    def _broken(self, law: str, what: str) -> None:
        if self.observer is not None:
            self.observer.broken(law, what)

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
            row["updated_at"], row["kind"], row["handed_to"] = values["now"], "delivery", None
            name = f"{row['destination']}/{row['delivery_id']}"
            if name not in self.rows:
                self.rows[name] = row
                self.stored.add(name)
                written.append(row["delivery_id"])
                self._trace("database", f"row {_told(row)}")
        return written

    def replace(self, row: Row) -> None:
        """Put a row in the place of an older one, or where there was none."""
        name = f"{row['destination']}/{row['delivery_id']}"
        self.rows[name] = {"kind": "delivery", "handed_to": None, **row}
        self.stored.add(name)
        self._trace("database", f"row again {_told(row)}")

    def move(self, values: Values) -> list[str]:
        """Move rows, each from the version before."""
        written = []
        for move in _rows(values, _MOVE):
            row = self.find(values["destination"], move["delivery_id"])
            if row is None or row["version"] != move["version"] - 1:
                continue
            if (State(row["state"]), State(move["state"])) not in _ALLOWED:
                self._broken("I8", f"no move from {row['state']} to {move['state']}")
            row.update(move, updated_at=values["now"], handed_to=None)
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
            and (row["state"] in HALTING or row["detail"] == BY_PEOPLE)
        ]
        rows.sort(key=lambda row: row["sequence"])
        return [_pick(row, sql.Feed) for row in rows[: values["limit"]]]

    def published(self, values: Values) -> list[str]:
        """Note what is published."""
        written = []
        for done in _rows(values, ("delivery_id", "version", "handed_to")):
            delivery_id = done["delivery_id"]
            row = self.find(values["destination"], delivery_id)
            if row is not None and row["version"] == done["version"]:
                row.update(pending_outcome=None, pending_state=None, pending_dead_letter=None, pending_envelope=None)
                row["handed_to"] = done["handed_to"] if row["state"] == State.DELIVERED else None
                written.append(delivery_id)
        return written

    def begin_waits(self, values: Values) -> list[tuple[Any, ...]]:
        """Give a time to what was read past, and to what expired unread."""
        begun = []
        for row in self._own(values):
            if row["handed_to"] is None:
                continue
            is_read = row["handed_to"] < values["passed"]
            if is_read or row["expires_at"] <= values["now"]:
                row.update(handed_to=None, next_due=values["until"] if is_read else values["now"])
                begun.append((row["delivery_id"], row["aggregate"], row["next_due"]))
        return begun

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
        return [_pick(row, sql.Unpublished) for row in left[: values["limit"]]]

    def feed(self, values: Values) -> list[tuple[Any, ...]]:
        """Return the next blocking rows of some aggregates."""
        found: list[tuple[Any, ...]] = []
        for aggregate in sorted(values["aggregates"]):
            rows = [row for row in self._own(values) if row["blocks"] and row["aggregate"] == aggregate]
            rows.sort(key=lambda row: (row["sequence"], row["record_offset"]))
            found.extend(_pick(row, sql.Feed) for row in rows[: values["limit"]])
        return self.sure(sql.FEED, values, found, len(sql.Feed._fields))

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
        names = ("state", "version", "blocks", "error_code", "detail", "pending_outcome", "pending_state")
        row.update({name: values[name] for name in names}, next_due=None, updated_at=values["now"])
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
            (
                UUID(known["decision_id"]),
                *(_identity(name, known[name]) for name in names),
                *(known[name] for name in ("decided_at", "evidence", "evidence_digest")),
            )
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


def _rows(values: Values, names: tuple[str, ...]) -> list[Row]:
    """Turn columns into rows."""
    return [dict(zip(names, row, strict=True)) for row in zip(*(values[name] for name in names), strict=True)]


def _pick(row: Row, kind: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in kind._fields)


def _identity(name: str, value: Any) -> Any:
    return UUID(value) if name == "delivery_id" and value is not None else value


def _told(row: Row) -> str:
    return f"{row['destination']} {row['aggregate']}#{row['sequence']} {row['state']} v{row['version']}"
