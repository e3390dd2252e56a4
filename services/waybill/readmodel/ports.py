"""What the projector needs: a source of records with positions, and a store that moves them with the rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from waybill.readmodel.core.records import Fact, Rows

__all__ = ["Batch", "Bounds", "Decoder", "Positions", "RawRecord", "Source", "Store", "TopicPartition"]

#: Topic name and partition number.
TopicPartition = tuple[str, int]
#: The next offset to read, by partition.
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A record as the broker has it."""

    topic: str
    partition: int
    offset: int
    #: Broker's or producer's record time in milliseconds since 1970 UTC.
    timestamp_ms: int
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    value: bytes | None


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one poll brought."""

    records: list[RawRecord]
    #: Next offsets after this batch, for every partition it moved: records, and the ends that were reached
    #: (an end counts the control records that a transaction leaves behind).
    reached: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a partition holds: the first offset still kept, and the last stable offset (its end for readers)."""

    first: int
    end: int


class Source(Protocol):
    """Reads committed records of partitions it was told, from where it was told."""

    def partitions(self, tenants: Collection[str] = ()) -> dict[TopicPartition, str]:
        """Return every partition of the folded topics with its tenant: of these tenants, or of all there are."""
        ...

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return what each partition holds now."""
        ...

    def assign(self, positions: Positions) -> None:
        """Read these partitions from these offsets, forgetting what was assigned before."""
        ...

    def poll(self, timeout_s: float) -> Batch:
        """Return what is there, at most a few thousand records; empty after `timeout_s` without any.

        Raises:
            TransientError: an offset is out of range or the broker refuses; assign again.
        """
        ...

    def show(self, positions: Positions, tenants: Mapping[TopicPartition, str]) -> None:
        """Show the positions to Kafka tools as committed offsets of each tenant's group; nothing depends on it."""
        ...


class Decoder(Protocol):
    """Turns records into facts; what cannot be read becomes an anomaly."""

    def decode(self, record: RawRecord, tenant: str) -> list[Fact]:
        """Return what one record says."""
        ...


class Store(Protocol):
    """Holds rows and positions together; a method may raise TransientError or UnavailableError."""

    def claim(self, tenants: Collection[str]) -> frozenset[str]:
        """Return those of the tenants that this process may fold: nobody else does while it is connected."""
        ...

    def positions(
        self, partitions: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        """Return where to read from, beginning at the first offset where nothing is known."""
        ...

    def apply(self, rows: Rows, before: Positions, after: Positions, newest: Mapping[TopicPartition, datetime]) -> None:
        """Write rows and move positions in one transaction.

        `newest` is the broker time of the newest record of each partition that brought any.

        Raises:
            FencedError: the positions are not what this process thinks: another one folds, or the model was rebuilt.
        """
        ...
