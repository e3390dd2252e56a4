"""Reading partitions by assignment: no group, no committed offsets; whoever reads knows where it stands.

One thread owns a reader. A partition may be watched from any offset at any time, also from before where it stands.
A topic that does not exist yet gives nothing until it does.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

__all__ = ["PlacedRecord", "TopicReader"]

_BATCH: Final = 500


class PlacedRecord(NamedTuple):
    """One record and where it lies."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    #: Milliseconds since 1970, by the producer's clock or the broker's, as the topic says.
    timestamp_ms: int = 0


class TopicReader:
    """A consumer that is told what to read."""

    def __init__(self, bootstrap: str, client_id: str, *, tells_end: bool = False) -> None:
        """Connect.

        Args:
            bootstrap: where the brokers are.
            client_id: the name they see.
            tells_end: give an empty record for whatever lies before the end of a partition and is no record, such as
                the marks of transactions: who waits until everything is read could not tell otherwise.
        """
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
                "enable.partition.eof": tells_end,
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
        return list(_placed(self._consumer.consume(_BATCH, timeout_s)))

    def close(self) -> None:
        """End it."""
        self._consumer.close()


def _placed(messages: Sequence[Any]) -> Iterator[PlacedRecord]:
    for m in messages:
        if m.error() is None:
            headers = tuple(m.headers() or ())
            yield PlacedRecord(m.topic(), m.partition(), m.offset(), m.value(), headers, m.timestamp()[1])
        elif m.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - how the client names it
            yield PlacedRecord(m.topic(), m.partition(), m.offset() - 1, None)
