"""The two ends of a rebuild in a simulated world: its topics and its tables. They take no virtual time."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from random import Random
from typing import Any, Final

from waybill.contracts.fabric import DestinationConfig
from waybill.contracts.names import delivery_group, state_topic
from waybill.delivery.beacons.judging import Kept
from waybill.delivery.beacons.ports import Mark, Note
from waybill.delivery.core.position import Position
from waybill.delivery.store import Feed, RowImage
from waybill.infra.topic_log import LogRecord
from waybill.simulator.laws import state_reader
from waybill.simulator.orders import START, TENANT
from waybill.simulator.process import SimClock
from waybill.simulator.tables.rows import Key, Row
from waybill.simulator.world import World

__all__ = ["SimTables", "SimTopics"]

_NEVER_KNOWN: Final = 0


class SimTopics:
    """The topics end."""

    def __init__(self, world: World, config: DestinationConfig) -> None:
        self._broker, self._name = world.broker, config.name
        self._group, self._states = delivery_group(TENANT, config.name), state_topic(TENANT)

    def position(self, partition: int) -> tuple[int, Position] | None:
        """Return the committed offset and its note."""
        offset, metadata = self._broker.offsets[self._group, partition]
        return offset, Position.decode(metadata)

    def first(self, partition: int) -> int:
        """Return where the commands begin: nothing is ever dropped."""
        return 0

    def states_end(self, partition: int) -> int:
        """Return the end of everything published."""
        return len(self._broker.published)

    def states(self, partition: int, start: int, end: int) -> Iterator[Mapping[str, Any]]:
        """Yield the states of this destination."""
        for record in self._broker.published[start:end]:
            if (record.topic, record.partition) == (self._states, partition):
                state = state_reader().decode(record.value)
                if state["destination"] == self._name:
                    yield state

    def commands(self, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        """Yield commands."""
        for record in self._broker.commands[partition].records():
            if start <= record.offset < end:
                yield LogRecord(
                    topic="commands",
                    key=record.key,
                    value=record.value,
                    headers=tuple(record.headers),
                    partition=partition,
                    offset=record.offset,
                )


class SimTables:
    """The tables end."""

    def __init__(self, world: World, config: DestinationConfig) -> None:
        self._database, self._name, self._clock = world.database, config.name, SimClock(world.timeline, START)
        self._ids = Random(f"rebuild/{world.setup.seed}/{world.timeline.now}")  # noqa: S311 - dice, no secrets

    def _key(self, partition: int) -> Key:
        return TENANT, self._name, partition

    def mark(self, partition: int, note: Position) -> Mark:
        """Say what is known of a partition."""
        beacons = self._database.beacons.get(self._key(partition), {})
        committed = next(reversed(beacons.values()), _NEVER_KNOWN)
        return Mark(is_known=note.beacon in beacons, at=None, committed=committed)

    def take(self, partition: int) -> str:
        """Shut out every owner there was."""
        epoch = uuid.UUID(int=self._ids.getrandbits(128), version=4)
        self._database.shut_out(self._key(partition), epoch)
        return str(epoch)

    def kept(self, partition: int) -> dict[str, tuple[int, Kept]]:
        """Return what a partition has."""
        rows = {row["delivery_id"]: row for row in self._own(self._database.rows_of(self._name), partition)}
        every = self._database.intents.copy().items()
        noted = {key[1]: row for key, row in every if key[0] == self._name and row["partition"] == partition}
        found = {}
        for delivery_id in {**rows, **noted}:
            row, note = rows.get(delivery_id), noted.get(delivery_id)
            answer = None if note is None else note["answer"]
            is_answered = answer is not None and answer.get("code", "unknown") is None
            offset = (row or note or {})["record_offset"]
            found[delivery_id] = (offset, Kept(version=row["version"] if row else None, is_answered=is_answered))
        return found

    def _own(self, rows: Sequence[Row], partition: int) -> list[Row]:
        return [row for row in rows if row["partition"] == partition and row["kind"] == "delivery"]

    def load(self, partition: int, delivery_ids: Collection[str]) -> list[Feed]:
        """Return rows."""
        rows = [row for row in self._database.rows_of(self._name) if row["delivery_id"] in delivery_ids]
        return [Feed(*(row[name] for name in Feed._fields)) for row in rows]

    def write(self, partition: int, rows: Sequence[RowImage], notes: Sequence[Note]) -> None:
        """Put rows in the place of older ones."""
        for row in rows:
            place = {"partition": partition, "destination": self._name, "updated_at": self._clock.now()}
            self._database.replace({**asdict(row), **place})
        for note in notes:
            said = {
                "delivery_id": note.delivery_id,
                "partition": partition,
                "record_offset": note.record_offset,
                "epoch": str(uuid.UUID(int=0)),
                "attempts": note.attempts,
                "sends": note.attempts,
                "first_sent_at": note.at,
                "last_sent_at": note.at,
                "answer": dict(note.answer),
            }
            self._database.intents.note(self._name, said)

    def put_back(self, partition: int, offset: int, note: Position) -> None:
        """Put the beacon back that the committed offset names."""
        assert note.beacon is not None
        self._database.beacons.setdefault(self._key(partition), {})[note.beacon] = offset
