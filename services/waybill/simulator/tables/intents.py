"""The intents of the control database: attempts that are written down before they are made.

Each statement checks and writes what `delivery.intents.statements` says, at the instant its transaction ends. Answers
are not fenced; openings are, by the database that runs them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from waybill.delivery.intents import statements as sql
from waybill.simulator.trace import Trace

__all__ = ["IntentTables"]

Row = dict[str, Any]
Values = Mapping[str, Any]


class IntentTables:
    """The rows of `delivery.intent`, by destination and delivery."""

    def __init__(self, trace: Trace, broken: Callable[[str, str], object]) -> None:
        self._trace, self._broken = trace, broken
        self._rows: dict[tuple[str, str], Row] = {}

    def copy(self) -> Mapping[tuple[str, str], Row]:
        """Return what there is now."""
        return {key: dict(row) for key, row in self._rows.items()}

    def set_back(self, copy: Mapping[tuple[str, str], Row]) -> None:
        """Have what there was, nothing else."""
        self._rows = {key: dict(row) for key, row in copy.items()}

    def note(self, destination: str, row: Row) -> None:
        """Note that a delivery was acknowledged."""
        known = self._rows.get((destination, row["delivery_id"]))
        if known is None:
            self._rows[destination, row["delivery_id"]] = row
        else:
            attempts, first = max(known["attempts"], row["attempts"]), known["first_sent_at"] or row["first_sent_at"]
            sends = max(known["sends"], row["sends"])
            known.update(attempts=attempts, sends=sends, first_sent_at=first, answer=row["answer"])

    def begin(self, values: Values) -> list[tuple[Any, ...]]:
        """Open first intents, and those whose last attempt was answered; return what is open now."""
        opened = []
        for delivery_id, offset, number in _records(values, "delivery_id", "record_offset", "number"):
            key = (values["destination"], delivery_id)
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = {
                    "delivery_id": delivery_id,
                    "partition": values["partition"],
                    "record_offset": offset,
                    "attempts": number - 1,
                    "sends": 0,
                    "first_sent_at": None,
                    "answer": {},
                }
            if row["attempts"] == number - 1 and row["answer"] is not None:
                opened.append(self._open(row, number, values))
        return opened

    def again(self, values: Values) -> list[tuple[Any, ...]]:
        """Open intents that stand where their opener found them; return what is open now."""
        opened = []
        for delivery_id, found, number in _records(values, "delivery_id", "found", "number"):
            row = self._rows.get((values["destination"], delivery_id))
            if row is not None and row["attempts"] == found:
                opened.append(self._open(row, number, values))
        return opened

    def answer(self, values: Values) -> list[tuple[Any, ...]]:
        """Note what attempts came to; an answer that is there stays."""
        for delivery_id, number, unsent, answer in _records(values, "delivery_id", "number", "unsent", "answer"):
            row = self._rows.get((values["destination"], delivery_id))
            if row is None or row["attempts"] != number or row["answer"] is not None:
                continue
            row["sends"] -= unsent
            if row["sends"] < 0:
                self._broken("I7", f"{delivery_id} was answered as unsent more often than it was opened")
            row.update(answer=answer.obj, first_sent_at=row["first_sent_at"] if row["sends"] else None)
            self._trace("database", f"attempt {number} of {delivery_id} is answered: {answer.obj['detail']}")
        return []

    def look(self, values: Values) -> list[tuple[Any, ...]]:
        """Return intents by delivery."""
        rows = (self._rows.get((values["destination"], delivery_id)) for delivery_id in values["delivery_id"])
        return [tuple(row[name] for name in sql.Intent._fields) for row in rows if row is not None]

    def _open(self, row: Row, number: int, values: Values) -> tuple[Any, ...]:
        now = values["now"]
        row.update(attempts=number, sends=row["sends"] + 1, answer=None, epoch=str(values["epoch"]), last_sent_at=now)
        row["first_sent_at"] = row["first_sent_at"] or now
        self._trace("database", f"attempt {number} of {row['delivery_id']} is written down")
        return row["delivery_id"], row["sends"], row["first_sent_at"]


def _records(values: Values, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(values[name] for name in names), strict=True))
