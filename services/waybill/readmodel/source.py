"""Reads the four topics of every tenant: assigned by hand, read committed, from the positions of the read model.

There is no group membership and no rebalance: the positions are in PostgreSQL, beside the rows they produced.
Ends of partitions are events too, because a transaction leaves control records behind that count as offsets but
are never delivered: without the ends a caught-up fold would look as if it lagged for ever.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from waybill.contracts.names import read_model_group
from waybill.kernel.errors import TransientError, UnavailableError
from waybill.kernel.ids import Tenant
from waybill.readmodel.core.records import Topic
from waybill.readmodel.ports import Batch, Bounds, Positions, RawRecord
from waybill.readmodel.ports import TopicPartition as Place

__all__ = ["KafkaSource"]

TIMEOUT_S: Final = 15.0
BATCH: Final = 4000
#: Records taken from the client at once; values of commands are dropped before the next chunk is taken.
CHUNK: Final = 250
END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public name for it
_FOLDED: Final = re.compile(rf"^waybill\.([a-z][a-z0-9-]{{0,29}})\.({'|'.join(re.escape(t) for t in Topic)})$")


class KafkaSource:
    """One consumer for everything that is folded. Every method may raise UnavailableError."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topics: Collection[Topic] = tuple(Topic),
        group: Callable[[Tenant], str] = read_model_group,
        name: str = "read-model",
    ) -> None:
        """Connect when something is asked.

        Args:
            bootstrap: of Kafka.
            topics: which of the four.
            group: by tenant, the group whose committed offsets show how far reading is.
            name: of the client, for the broker's log.
        """
        self._bootstrap, self._topics, self._group = bootstrap, frozenset(topics), group
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"waybill.{name}",
                "client.id": f"waybill-{name}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 16_384,
                "log_level": 0,
            }
        )
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": f"waybill-{name}", "log_level": 0})

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def partitions(self, tenants: Collection[str] = ()) -> dict[Place, str]:
        """Return every partition of the folded topics with its tenant: of these tenants, or of all there are."""
        try:
            metadata = self._admin.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise self._unavailable(error) from error
        found: dict[Place, str] = {}
        for name in sorted(metadata.topics):
            match = _FOLDED.match(name)
            if match is not None and match[2] in self._topics and (not tenants or match[1] in tenants):
                found |= {(name, number): match[1] for number in metadata.topics[name].partitions}
        return found

    def bounds(self, partitions: Sequence[Place]) -> dict[Place, Bounds]:
        """Return what each partition holds now."""
        if not partitions:
            return {}
        firsts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: Bounds(first=firsts[place], end=ends[place]) for place in partitions}

    def assign(self, positions: Positions) -> None:
        """Read these partitions from these offsets, forgetting what was assigned before."""
        self._consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in positions.items()])

    def poll(self, timeout_s: float) -> Batch:
        """Return what is there, at most a few thousand records; empty after `timeout_s` without any."""
        batch = Batch(records=[], reached={})
        wait_s = timeout_s
        while len(batch.records) < BATCH:
            messages = self._consumer.consume(CHUNK, wait_s)
            for message in messages:
                self._take(batch, message)
            if len(messages) < CHUNK:
                break
            wait_s = 0.0
        return batch

    def show(self, positions: Positions, tenants: Mapping[Place, str]) -> None:
        """Commit the positions to each tenant's group, so that Kafka tools show the lag; nothing waits for it."""
        groups: dict[str, list[TopicPartition]] = {}
        for (topic, number), offset in positions.items():
            group = self._group(Tenant(tenants[topic, number]))
            groups.setdefault(group, []).append(TopicPartition(topic, number, offset))
        for group, places in groups.items():  # one group per call is what the client takes
            self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])

    def _take(self, batch: Batch, message: Message) -> None:
        error = message.error()
        place = (message.topic() or "", message.partition() or 0)
        if error is not None:
            if error.code() != END_OF_PARTITION:
                raise TransientError(f"{place[0]}-{place[1]} cannot be read: {error.str()}")
            batch.reached[place] = message.offset() or 0
            return
        offset = message.offset()
        assert offset is not None  # a delivered record has one
        batch.reached[place] = offset + 1
        is_command = place[0].endswith(f".{Topic.COMMANDS}")
        batch.records.append(
            RawRecord(
                topic=place[0],
                partition=place[1],
                offset=offset,
                timestamp_ms=message.timestamp()[1],
                key=message.key(),
                headers=cast("Sequence[tuple[str, bytes | None]]", message.headers() or []),
                value=None if is_command else message.value(),
            )
        )

    def _offsets(self, partitions: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        futures = self._admin.list_offsets(
            {TopicPartition(topic, number): spec for topic, number in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=TIMEOUT_S,
        )
        try:
            return {
                (asked.topic, asked.partition): future.result(TIMEOUT_S).offset for asked, future in futures.items()
            }
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> UnavailableError:
        cause: Any = error.args[0]
        return UnavailableError(f"Kafka at {self._bootstrap} (WAYBILL_KAFKA) does not answer: {cause.str()}")
