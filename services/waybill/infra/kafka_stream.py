"""The door to Kafka for whoever works a topic off record by record and writes elsewhere what came of it.

Offsets are committed when the caller says so, as plain offsets: what is read twice is recognised by whoever takes it,
not by Kafka.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from waybill.infra.kafka import Record
from waybill.kernel.errors import TransientError

__all__ = ["Assigned", "StreamConsumer"]

_BATCH: Final = 500
_LOOK_S: Final = 1.0


class Assigned(Protocol):
    """Who learns about assignments; called inside `poll`, on its thread."""

    def revoked(self, partitions: Sequence[int]) -> dict[int, int]:
        """Finish with partitions and return the offsets to commit; they are let go when this returns."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Drop partitions that already belong to somebody else."""
        ...


class StreamConsumer:
    """One member of one group on one topic, committed records only; one thread uses it."""

    def __init__(self, bootstrap: str, group: str, topic: str, assigned: Assigned) -> None:
        """Connect and join. A group without a committed offset begins with the oldest record there is."""
        self._topic, self._assigned = topic, assigned
        #: What the client cannot do now and goes on trying, by the brokers' name for it; empty when it reads.
        self.trouble = ""
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "client.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 8_192,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._on_revoke, on_lost=self._on_lost)

    def poll(self, timeout_s: float) -> list[Record]:
        """Return what is there, waiting only for the first; runs the calls of assignments."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        records, assigned = [], frozenset[int]()
        messages = [first, *self._consumer.consume(_BATCH - 1, 0)]
        for m in messages:
            if m.error() is not None:
                self.trouble = m.error().name()
                continue
            assigned = assigned or self.partitions()
            if m.partition() in assigned:  # it may have been given back while the others were gathered
                records.append(Record(m.partition(), m.offset(), m.key(), m.headers() or [], m.value()))
        if records:
            self.trouble = ""
        return records

    def look(self) -> None:
        """Ask the brokers for the topic, where something was in the way: on an idle topic nothing else would tell."""
        try:
            found = self._consumer.list_topics(self._topic, _LOOK_S).topics[self._topic]
        except KafkaException as error:
            self.trouble = error.args[0].name()
        else:
            self.trouble = found.error.name() if found.error is not None else ""

    def partitions(self) -> frozenset[int]:
        """Return what is assigned now."""
        return frozenset(found.partition for found in self._consumer.assignment())

    def pause(self, partitions: Sequence[int]) -> None:
        """Read partitions no further until they are resumed."""
        self._consumer.pause([TopicPartition(self._topic, number) for number in partitions])

    def resume(self, partitions: Sequence[int]) -> None:
        """Read partitions on."""
        self._consumer.resume([TopicPartition(self._topic, number) for number in partitions])

    def commit(self, offsets: dict[int, int]) -> None:
        """Commit offsets by partition.

        Raises:
            TransientError: the brokers did not take them now; or somebody else owns a partition, who learns nothing.
        """
        if offsets:
            try:
                places = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
                self._consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                raise TransientError(f"offsets were not committed: {error.args[0].name()}") from error

    def close(self) -> None:
        """Leave the group; `revoked` is called first."""
        self._consumer.close()

    def _on_error(self, error: Any) -> None:
        self.trouble = error.name()

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        offsets = self._assigned.revoked([found.partition for found in partitions])
        try:
            self.commit(offsets)
        except TransientError:
            return  # the next owner reads again what was not committed

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._assigned.lost([found.partition for found in partitions])
