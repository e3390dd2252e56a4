"""One assigned partition of a group that goes through its records in order."""

import uuid

from waybill.delivery.core.position import Position
from waybill.infra.kafka import OffsetMove, Record

__all__ = ["CarriedPartition"]


class CarriedPartition:
    """How far its owner got, and what it read beyond."""

    def __init__(self, topic: str, partition: int, group_metadata: object) -> None:
        self.partition = partition
        self.epoch = uuid.uuid4()
        #: Everything below it is settled.
        self.position = -1
        self.waiting: list[Record] = []
        self.waiting_bytes = 0
        self.after = -1
        self.is_working = False
        self.is_held = False
        self.gone = False
        self.is_dropped = False
        self.released = False
        self.committed = -1
        self._topic, self._group_metadata = topic, group_metadata

    def offset_move(self) -> OffsetMove:
        """Return how far it got, with the proof of ownership."""
        note = Position(epoch=self.epoch, released=self.released).encode()
        return OffsetMove(self._group_metadata, self._topic, self.partition, self.position, note)

    def carried(self, started: float, move: OffsetMove) -> None:
        """Learn what is committed."""
        self.committed = move.offset

    def refused(self) -> None:
        """Learn that it is another's."""
        self.gone = self.is_dropped = True
