"""Reading partitions by assignment: no group, no committed offsets; whoever reads knows where it stands.

One thread owns a reader. A partition may be watched from any offset at any time, also from before where it stands.
A topic that does not exist yet gives nothing until it does.
"""

from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

__all__ = ["PlacedRecord", "TopicReader"]

_BATCH: Final = 500


class PlacedRecord(NamedTuple):
    """One record and where it lies."""

    topic: str
    partition: int
    offset: int
    value: bytes | None


class TopicReader:
    """A consumer that is told what to read."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._watched: set[tuple[str, int]] = set()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": client_id,  # required by the client; nothing is committed under it
                "client.id": client_id,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # what was there before is gone by retention
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": 1_024,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 100,
                "log_level": 0,
            }
        )

    def watch(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition from an offset on, whether it is read already or not."""
        self.forget(topic, partition)
        self._watched.add((topic, partition))
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])

    def forget(self, topic: str, partition: int) -> None:
        """Read a partition no more."""
        if (topic, partition) in self._watched:
            self._watched.discard((topic, partition))
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def poll(self, timeout_s: float) -> list[PlacedRecord]:
        """Return committed records, waiting for the first; those of a partition come in the order of offsets."""
        return [
            PlacedRecord(m.topic(), m.partition(), m.offset(), m.value())
            for m in self._consumer.consume(_BATCH, timeout_s)
            if m.error() is None
        ]

    def close(self) -> None:
        """End it."""
        self._consumer.close()
