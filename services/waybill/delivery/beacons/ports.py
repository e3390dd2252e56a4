"""The two ends of a rebuild: the topics of a tenant, and the tables of one destination's partitions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from waybill.delivery.beacons.judging import Kept
from waybill.delivery.core.position import Position
from waybill.delivery.store import Feed, RowImage
from waybill.infra.topic_log import LogRecord

__all__ = ["Mark", "Note", "Tables", "Topics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the database knows of a partition's past."""

    #: It has the beacon that the committed offset names: it was not set back.
    is_known: bool
    #: When it last heard of the partition, and the offset that was committed then.
    at: datetime | None
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """That a delivery was acknowledged, where intents are kept."""

    delivery_id: str
    record_offset: int
    attempts: int
    at: datetime
    answer: Mapping[str, Any]


class Topics(Protocol):
    """A tenant's topics and the group of one destination. Every method may raise UnavailableError."""

    def position(self, partition: int) -> tuple[int, Position] | None:
        """Return the committed offset and its note; None when nobody ever set a start."""
        ...

    def first(self, partition: int) -> int:
        """Return the offset of the oldest command that is still kept."""
        ...

    def states_end(self, partition: int) -> int:
        """Return the true end of the states now."""
        ...

    def states(self, partition: int, start: int, end: int) -> Iterator[Mapping[str, Any]]:
        """Yield every state of this destination, committed, from one offset up to another."""
        ...

    def commands(self, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        """Yield the committed commands from one offset up to another, in their order."""
        ...


class Tables(Protocol):
    """One destination's rows, intents and beacons. Every method may raise UnavailableError.

    What writes does nothing and raises FencedError when the partition was taken by somebody else since `take`.
    """

    def mark(self, partition: int, note: Position) -> Mark:
        """Say what is known of a partition."""
        ...

    def take(self, partition: int) -> str:
        """Shut out every owner there was, by a fresh epoch; return it. It leaves no beacon."""
        ...

    def kept(self, partition: int) -> dict[str, tuple[int, Kept]]:
        """Return by delivery id what a partition has, and the offset of the record it is of."""
        ...

    def load(self, partition: int, delivery_ids: Collection[str]) -> list[Feed]:
        """Return rows."""
        ...

    def write(self, partition: int, rows: Sequence[RowImage], notes: Sequence[Note]) -> None:
        """Put rows in the place of older ones, and notes, in one transaction."""
        ...

    def put_back(self, partition: int, offset: int, note: Position) -> None:
        """Put the beacon back that the committed offset names: owners go on from here."""
        ...
