"""What is held back so long that Kafka would delete its records becomes rows, whatever the bound says, with an alarm.

A destination that is paused or dead is read up to the bound of what may be held, and Kafka is its buffer. Once the
oldest record that only Kafka holds is half as old as its topic keeps records, its lane goes on from rows; so do all
others that are as old. A head whose row holds it anyway is let go, so that there is room to read what comes behind.
What breaks otherwise: a pause longer than the retention of `commands` loses deliveries without a word.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from waybill.delivery.actor import PartitionActor
from waybill.delivery.core.keeping import is_old
from waybill.delivery.core.lanes import Held, Item, Lane
from waybill.delivery.decisions.standstill import is_busy
from waybill.delivery.group import DestinationGroup
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["Rescue"]

_EVERY_S: Final = 5.0


class Rescue:
    """Looks at the oldest record of every partition of a worker; lives on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_at = 0.0
        self._log = get_logger("delivery")
        #: Partitions with such a record, by destination; read from the thread that answers `/readyz`.
        self.old: dict[tuple[str, str], int] = {}

    def look(self, groups: Mapping[tuple[str, str], DestinationGroup]) -> None:
        """Look at every partition, unless that was done a moment ago."""
        mono, now = self._clock.monotonic(), self._clock.now()
        if mono - self._looked_at < _EVERY_S:
            return
        self._looked_at = mono
        old: dict[tuple[str, str], int] = {}
        for key, group in groups.items():
            for actor in group.actors.values():
                oldest = _oldest(actor)
                if oldest is not None and _is_old(oldest, now):
                    old[key] = old.get(key, 0) + 1
                    stored = _store(group, actor, now)
                    self._tell(key, actor, oldest, stored)
        self.old = old

    def _tell(self, key: tuple[str, str], actor: PartitionActor, oldest: Item, stored: int) -> None:
        self._log.error(
            "partition.old",
            tenant=key[0],
            destination=key[1],
            partition=actor.partition,
            base=actor.lanes.base(),
            delivery_id=oldest.delivery_id,
            issued_at=None if oldest.command is None else oldest.command.issued_at.isoformat(),
            stored=stored,
        )


def _oldest(actor: PartitionActor) -> Item | None:
    """Return what holds the offset, or what fills the memory so that nothing more is read."""
    if not actor.is_taken or actor.is_closing:
        return None
    lanes = actor.lanes
    for item in lanes.outstanding.values():
        actor.settler.identify(item)
        if item.command is not None:
            return item
    heads = (lane.head for lane in lanes.lanes.values()) if actor.is_held else ()
    known = (head for head in heads if head is not None and head.command is not None)
    return min(known, key=_issued, default=None)


def _store(group: DestinationGroup, actor: PartitionActor, now: datetime) -> int:
    """Let every lane with something as old go on from rows; return how many rows will be written."""
    lanes, stored = actor.lanes, 0
    for lane in list(lanes.lanes.values()):
        head = lane.head
        if lane.held or is_busy(group, actor.settler, lane):  # a slow attempt gets its row by itself
            continue
        in_memory = list(_in_memory(lane))
        for item in in_memory:
            actor.settler.identify(item)
        if any(_is_old(item, now) for item in in_memory):
            writes = lanes.to_rows(lane)
            stored += len(writes)
            actor.settler.store(lane, writes)
        elif actor.is_held and head is not None and head.held is Held.ROW and _is_old(head, now):
            lanes.rest(lane, head)
    actor.pump()
    return stored


def _in_memory(lane: Lane) -> Iterator[Item]:
    if lane.head is not None and lane.head.held is Held.MEMORY:
        yield lane.head
    yield from lane.waiting


def _is_old(item: Item, now: datetime) -> bool:
    return item.command is not None and is_old(item.command.issued_at, now)


def _issued(item: Item) -> datetime:
    assert item.command is not None
    return item.command.issued_at
