"""Committed offsets of consumer groups that nobody runs yet: the start an apply gives them.

Consumers here never guess where to begin (`auto.offset.reset=error`), so a group's first offsets are written by the
administrator before its first member joins. Kafka takes them for an empty group only; a group with members owns its
offsets and refuses us.
"""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from waybill.kernel.errors import UnavailableError

__all__ = ["GroupOffsets"]

_TIMEOUT_S: Final = 20.0

#: (topic, partition): where a record lies.
Place = tuple[str, int]


class GroupOffsets:
    """One cluster's groups, seen by an administrator. Every method may raise UnavailableError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client = AdminClient(
            {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000, "log_level": 0, "client.id": "waybill-groups"}
        )

    def committed(self, group: str) -> dict[Place, int]:
        """Return what a group has committed; empty for a group nobody ever heard of."""
        asked = [ConsumerGroupTopicPartitions(group)]
        futures = self._client.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S)
        answer = self._answer(futures[group], f"offsets of group {group} cannot be read")
        return {(item.topic, item.partition): item.offset for item in answer.topic_partitions if item.offset >= 0}

    def position(self, group: str, topic: str, partition: int) -> tuple[int, str | None] | None:
        """Return one committed offset with its metadata, once no transaction on it is open; None when there is none."""
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
        futures = self._client.list_consumer_group_offsets(asked, require_stable=True, request_timeout=_TIMEOUT_S)
        (found,) = self._answer(futures[group], f"offsets of group {group} cannot be read").topic_partitions
        if found.error is not None:
            place = f"{topic}-{partition}"
            raise UnavailableError(f"offset of group {group} at {place} cannot be read: {found.error.str()}")
        return (found.offset, found.metadata) if found.offset >= 0 else None

    def commit(self, group: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """Commit offsets for a group without members, each with the same metadata (at most 4,000 bytes)."""
        places = [
            TopicPartition(topic, partition, offset, metadata) for (topic, partition), offset in sorted(offsets.items())
        ]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        futures = self._client.alter_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S)
        answer = self._answer(futures[group], f"offsets of group {group} cannot be committed")
        for item in answer.topic_partitions:
            if item.error is not None:
                place = f"{item.topic}-{item.partition}"
                raise UnavailableError(f"offset of group {group} at {place} cannot be committed: {item.error.str()}")

    def _answer(self, future: Any, complaint: str) -> Any:
        try:
            return future.result(_TIMEOUT_S)
        except KafkaException as error:
            said = error.args[0].str()
            raise UnavailableError(f"{complaint} at {self._bootstrap} (WAYBILL_KAFKA): {said}") from error
