"""What a rebuild reads of one destination, put together: each delivery once, with what is told and what is kept of it.

Deliveries that have a row come first, then those of the commands in the order of their offsets, from the one that the
newest surviving beacon was left at: whatever is older and open had its row then, and so has it now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import DestinationConfig
from waybill.contracts.names import commands_topic
from waybill.contracts.states import State
from waybill.delivery.beacons.judging import Kept, Need, Past, Told, needed
from waybill.delivery.beacons.ports import Mark, Tables, Topics
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.ownership import Claim, identify
from waybill.delivery.core.position import Position
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.rows import item_of
from waybill.infra.topic_log import LogRecord
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import RefusedError

__all__ = ["Counts", "Judged", "Reading"]

_BATCH: Final = 500
_NOTHING_TOLD: Final = Told()
_NOTHING_KEPT: Final = Kept()
#: Of a delivery that was acknowledged as nearly all are: nothing else about it is asked where intents are not kept.
_DONE: Final = Told(state=State.ACKNOWLEDGED, version=1)


class Counts:
    """Records read so far."""

    __slots__ = ("commands", "states")

    def __init__(self) -> None:
        self.commands = self.states = 0


class Judged(NamedTuple):
    """A delivery, where the topic says it stands, and what must be written of it."""

    item: Item
    told: Told
    need: Need


@dataclass(frozen=True, slots=True)
class _Partition:
    number: int
    past: Past
    mark: Mark
    kept: Mapping[str, tuple[int, Kept]]
    told: Mapping[str, Told]

    def judge(self, delivery_id: str, record: int) -> tuple[Told, Need]:
        told = self.told.get(delivery_id, _NOTHING_TOLD)
        kept = self.kept.get(delivery_id)
        return told, needed(self.past, record, told, kept[1] if kept else _NOTHING_KEPT)


class Reading:
    """One destination's."""

    def __init__(self, config: DestinationConfig, topics: Topics, tables: Tables) -> None:
        self._config, self._topics, self._tables = config, topics, tables
        self._commands = commands_topic(config.tenant)
        self._needs_intent = RepeatRule.of(config).needs_intent
        self._claim = Claim(config.name)

    def judged(self, partition: int, position: tuple[int, Position], end: int, counts: Counts) -> Iterator[Judged]:
        """Yield each delivery of a partition of which something must be written.

        Args:
            partition: to be read.
            position: its committed offset and the note beside it.
            end: of its states.
            counts: brought up as it goes.

        Raises:
            RefusedError: the topics do not hold what is needed.
        """
        offset, note = position
        mark = self._tables.mark(partition, note)
        self._check_kept(partition, mark, offset)
        kept = self._tables.kept(partition)
        told = self._fold(partition, mark, kept, end, counts)
        past = Past(offset=offset, note=note, needs_intent=self._needs_intent)
        known = _Partition(partition, past, mark, kept, told)
        yield from self._of_rows(known)
        yield from self._of_commands(known, counts)

    def _check_kept(self, partition: int, mark: Mark, offset: int) -> None:
        """Refuse when commands are gone that may have had a row."""
        first = self._topics.first(partition)
        if mark.committed < min(first, offset):
            known = f"nothing later than {format_instant(mark.at)}" if mark.at else "nothing"
            raise RefusedError(
                f"the database knows {known} of it, so commands from offset {mark.committed} on are needed, and "
                f"{self._commands}[{partition}] holds them from {first} on. Restore a younger copy of the database",
                rule="topics_kept",
            )

    def _fold(
        self, partition: int, mark: Mark, kept: Mapping[str, tuple[int, Kept]], end: int, counts: Counts
    ) -> Mapping[str, Told]:
        """Return what the topic tells of deliveries that matter: those with a row, and those of commands read again."""
        told: dict[str, Told] = {}
        for state in self._topics.states(partition, 0, end):
            counts.states += 1
            delivery_id = state["delivery_id"]
            if state["command_offset"] < mark.committed and delivery_id not in kept:
                continue
            known = told.get(delivery_id)
            if known is None or state["version"] >= known.version:
                told[delivery_id] = self._told(state)
        return told

    def _told(self, state: Mapping[str, Any]) -> Told:
        now, code = State(state["state"]), state["error_code"]
        if now is State.ACKNOWLEDGED and state["version"] == 1 and not self._needs_intent:
            return _DONE
        return Told(
            state=now,
            version=state["version"],
            attempt=state["attempt"],
            next_due=state["next_due"],
            code=ErrorCode(code) if code else None,
            detail=state["detail"],
            at=state["updated_at"],
        )

    def _of_rows(self, known: _Partition) -> Iterator[Judged]:
        wanted = [
            delivery_id
            for delivery_id, (record, kept) in known.kept.items()
            if kept.version is not None and known.judge(delivery_id, record)[1] is not Need.NOTHING
        ]
        for start in range(0, len(wanted), _BATCH):
            for feed in self._tables.load(known.number, wanted[start : start + _BATCH]):
                item = item_of(feed)
                self._identify(item, known.number)
                yield Judged(item, *known.judge(feed.delivery_id, feed.record_offset))

    def _of_commands(self, known: _Partition, counts: Counts) -> Iterator[Judged]:
        seen: set[str] = set()
        for record in self._topics.commands(known.number, known.mark.committed, known.past.end):
            counts.commands += 1
            item = self._item(record, known.number)
            if item is None or item.delivery_id is None or item.delivery_id in seen:
                continue
            seen.add(item.delivery_id)
            kept = known.kept.get(item.delivery_id)
            told, need = known.judge(item.delivery_id, item.offset)
            if need is not Need.NOTHING and (kept is None or kept[1].version is None):
                yield Judged(item, told, need)

    def _item(self, record: LogRecord, partition: int) -> Item | None:
        headers = list(record.headers)
        mine = self._claim.of(record.key, headers)
        if mine is None or record.offset is None:
            return None
        aggregate, sequence, sequences = mine
        item = Item(record.offset, aggregate, sequence, (record.key, headers, record.value))
        item.sequences = sequences
        self._identify(item, partition)
        return item

    def _identify(self, item: Item, partition: int) -> None:
        tenant, name = self._config.tenant, self._config.name
        identify(item, tenant=tenant, destination=name, topic=self._commands, partition=partition)
