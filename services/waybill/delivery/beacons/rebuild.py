"""Writes again what a control database lost when it was set back: `waybill tasks rebuild`.

Per partition: shut out every owner by a fresh epoch; wait until what owners had under way has ended; read the committed
offset with its note, then the states to an end taken afterwards, then the commands in the order of their offsets; write
what is missing in batches; put the beacon back that the note names. The beacon comes last, so an end at any point leaves
a partition that still stands still, and the next run finishes it. When offset, note or states moved meanwhile, all is
done once more.

Decisions that had nothing to act on, and results, are not judged again; the place for it is between `_write_again` and
`put_back`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.names import commands_topic
from waybill.contracts.states import Move
from waybill.delivery.beacons.judging import CAUSE, Need, Told
from waybill.delivery.beacons.ports import Note, Tables, Topics
from waybill.delivery.beacons.reading import Counts, Judged, Reading
from waybill.delivery.core.answered import as_document
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.position import Position
from waybill.delivery.core.records import Event, Place, Recorder, Try, millis
from waybill.delivery.core.retry import moved
from waybill.delivery.rows import image_of
from waybill.delivery.settler import untried
from waybill.kernel.clock import Clock
from waybill.kernel.errors import RefusedError, UnavailableError

__all__ = ["QUIET_S", "Found", "Rebuild", "RebuildParts", "rebuild"]

#: What a live owner may have under way when it is shut out ends within so long: it looks at its database every five
#: seconds, and a transaction it began takes at most eight.
QUIET_S: Final = 14.0
_BATCH: Final = 500
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildParts:
    """What a rebuild of one destination works with."""

    topics: Topics
    tables: Tables
    recorder: Recorder
    clock: Clock
    #: Told where it is.
    say: Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Found:
    """What was done, or would be, for one partition."""

    destination: str
    partition: int
    #: Whether the database lacked what the committed offset names.
    was_rewound: bool = False
    #: When the database last heard of the partition; None when it never did.
    known_until: datetime | None = None
    states: int = 0
    commands: int = 0
    #: Rows written as the topics say, of deliveries whose end is not known, and notes of acknowledged ones.
    rows: int = 0
    ambiguous: int = 0
    notes: int = 0
    #: Why it was not done; None when it was, or need not be.
    refused: str | None = None


def rebuild(
    rebuilds: Iterable[tuple["Rebuild", Iterable[int]]],
    wait: Callable[[float], None],
    *,
    dry_run: bool = False,
    quiet_s: float = QUIET_S,
) -> list[Found]:
    """Rebuild those of some partitions whose database was set back; one that is refused does not stop the others.

    Args:
        rebuilds: a destination's, and its partitions to look at.
        wait: waits so many seconds.
        dry_run: write nothing and shut nobody out; counts are what a run would write now.
        quiet_s: how long what owners have under way may take to end.

    Raises:
        UnavailableError: a server does not answer, or a partition still moves; the next run finishes what is left.
    """
    found = [(each, each.look(partition)) for each, partitions in rebuilds for partition in partitions]
    todo = [(each, what) for each, what in found if what.was_rewound]
    if todo and not dry_run:
        for each, what in todo:
            each.shut_out(what.partition)
        wait(quiet_s)
    for each, what in todo:
        each.repair(what)
    return [what for _, what in found]


@dataclass(slots=True)
class _Batch:
    """What is written with the next transaction."""

    items: list[Item] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items) + len(self.notes)


class Rebuild:
    """One destination's."""

    def __init__(self, parts: RebuildParts) -> None:
        self._parts, self._topics, self._tables = parts, parts.topics, parts.tables
        self._config = parts.recorder.config
        self._reading = Reading(self._config, parts.topics, parts.tables)
        self._epochs: dict[int, str] = {}

    def look(self, partition: int) -> Found:
        """Say whether the database of a partition was set back."""
        found = Found(destination=self._config.name, partition=partition)
        position = self._topics.position(partition)
        if position is not None and position[1].beacon is not None:
            mark = self._tables.mark(partition, position[1])
            found.was_rewound, found.known_until = not mark.is_known, mark.at
        return found

    def shut_out(self, partition: int) -> None:
        """Let nobody write any more, nor take it, until it is repaired."""
        self._epochs[partition] = self._tables.take(partition)

    def repair(self, found: Found) -> None:
        """Write again what is missing; without `shut_out` before it, only count it.

        Raises:
            UnavailableError: a server does not answer, or the partition still moves; the next run finishes it.
        """
        try:
            self._repair(found)
        except RefusedError as error:
            found.refused = str(error)
            self._say(found.partition, f"refused: {error}")

    def _repair(self, found: Found) -> None:
        partition, is_dry = found.partition, found.partition not in self._epochs
        for _ in range(_ROUNDS):
            position = self._topics.position(partition)
            end = self._topics.states_end(partition)
            if position is None:
                raise RefusedError("its committed offset is gone", rule="topics_kept")
            self._write_again(found, position, end)
            if is_dry:
                return
            if self._is_still(partition, position, end):
                self._tables.put_back(partition, *position)
                self._say(partition, f"is whole again: its owner goes on at offset {position[0]}")
                return
            self._say(partition, "moved meanwhile: once more")
        raise UnavailableError(
            f"{self._config.name}[{partition}] still moves: a worker cannot reach the control database and goes on from "
            "memory. Stop it, then run this again"
        )

    def _is_still(self, partition: int, before: tuple[int, Position], end: int) -> bool:
        now = self._topics.position(partition)
        if now is None or (now[0], now[1].beacon) != (before[0], before[1].beacon):
            return False
        said = self._topics.states(partition, end, self._topics.states_end(partition))
        return next(iter(said), None) is None  # other destinations go on

    def _write_again(self, found: Found, position: tuple[int, Position], end: int) -> None:
        partition, counts, batch = found.partition, Counts(), _Batch()
        place = Place(commands_topic(self._config.tenant), partition, self._epochs.get(partition, ""))
        self._say(partition, f"reads {end} states and the commands up to offset {position[0]}")
        for judged in self._reading.judged(partition, position, end, counts):
            self._add(found, batch, judged, place)
            if len(batch) >= _BATCH:
                self._flush(partition, batch)
                self._say(partition, f"{found.rows + found.ambiguous} rows and {found.notes} notes written")
        self._flush(partition, batch)
        found.states, found.commands = counts.states, counts.commands

    def _add(self, found: Found, batch: _Batch, judged: Judged, place: Place) -> None:
        item, told, need = judged
        if need is Need.NOTE:
            found.notes += 1
            batch.notes.append(_note(item, told, self._parts.clock.now()))
            return
        item.state, item.version, item.attempts = told.state, told.version, told.attempt
        item.next_due, item.code, item.detail = told.next_due, told.code, told.detail
        item.sent = item.may_have_acted = item.poison is None  # nobody knows better; what can never be sent was not
        if need is Need.AMBIGUOUS and item.poison is None:
            found.ambiguous += 1
            self._lose_track(item, place)
        else:
            found.rows += 1
        batch.items.append(item)

    def _lose_track(self, item: Item, place: Place) -> None:
        """Move it to where nobody tries it; the next owner tells the topics."""
        before, attempt, recorder = item.state, untried(self._parts.clock.now()), self._parts.recorder
        item.state = moved(before, Move.LOSE_TRACK)
        item.version += 1
        item.next_due, item.code, item.detail = None, ErrorCode.AMBIGUOUS_RESULT, CAUSE
        outcome = recorder.outcome(item, place, Event("transition", before, True, attempt, None))
        item.pending = (outcome, recorder.state(item, place, attempt.ended_ms), None)

    def _flush(self, partition: int, batch: _Batch) -> None:
        if len(batch) and partition in self._epochs:
            now = self._parts.clock.now()
            self._tables.write(partition, [image_of(item, now) for item in batch.items], batch.notes)
        batch.items, batch.notes = [], []

    def _say(self, partition: int, what: str) -> None:
        self._parts.say(f"{self._config.tenant}/{self._config.name}[{partition}] {what}")


def _note(item: Item, told: Told, now: datetime) -> Note:
    at, attempts = told.at or now, max(told.attempt, 1)
    verdict = Verdict(code=None, phase=Phase.AFTER_SENDING, detail=CAUSE, may_have_acted=True)
    return Note(
        delivery_id=item.delivery_id or "",
        record_offset=item.offset,
        attempts=attempts,
        at=at,
        answer=as_document(verdict, Try(attempts, millis(at), millis(at), "")),
    )
