"""What the brokers hold: topics, their settings, groups. Reads facts and makes what a plan decided, nothing else.

There is no method that deletes a topic or lowers a partition count: the declarative commands never do, so they
cannot. Brokers never create topics by themselves here; what this module makes is waited for until every broker's
metadata shows it, because a producer that asks too early stalls.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError

__all__ = ["KafkaAdmin", "TopicFacts"]

_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic as the brokers hold it; `configs` are effective values, whatever set them."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


class KafkaAdmin:
    """One cluster, seen by an administrator. Every method may raise UnavailableError."""

    def __init__(self, bootstrap: str, clock: Clock) -> None:
        self._bootstrap, self._clock = bootstrap, clock
        self._pause = threading.Event()
        self._client = AdminClient(
            {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000, "log_level": 0, "client.id": "waybill-admin"}
        )

    def brokers(self) -> int:
        """Return how many brokers the cluster has: those alive and those that are down but hold copies.

        A broker that is down for an hour must not make new topics thinner than they should be.
        """
        metadata = self._metadata()
        holders = {
            broker for topic in metadata.topics.values() for p in topic.partitions.values() for broker in p.replicas
        }
        return len(holders | set(metadata.brokers))

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Return the facts of those topics that exist."""
        metadata = self._metadata()
        found = [name for name in names if name in metadata.topics and metadata.topics[name].error is None]
        configs = self._configs(found)
        return {
            name: TopicFacts(
                name=name,
                partitions=len(metadata.topics[name].partitions),
                replication=max(len(p.replicas) for p in metadata.topics[name].partitions.values()),
                configs=configs[name],
            )
            for name in found
        }

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._metadata().topics)

    def create(self, name: str, *, partitions: int, replication: int, configs: Mapping[str, str]) -> bool:
        """Create a topic and wait until it is known; return False when it already existed."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(configs))
        future = self._client.create_topics([topic], operation_timeout=_TIMEOUT_S)[name]
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._unavailable(f"topic {name} cannot be created", error) from error
        deadline = self._clock.monotonic() + _TIMEOUT_S
        while not _has_leaders(self._metadata().topics.get(name), partitions):
            if self._clock.monotonic() > deadline:
                raise UnavailableError(f"topic {name} was created, but the brokers do not show it yet: run it again")
            self._pause.wait(0.05)
        return True

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Set some of a topic's settings and leave the others alone."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
            ],
        )
        self._result(self._client.incremental_alter_configs([resource])[resource], f"topic {name} cannot be changed")

    def earliest_offsets(self, topic: str, partitions: int) -> list[int]:
        """Return the first offset still kept, per partition."""
        return self._offsets(topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call] # untyped in the client

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """Return the true end per partition, open transactions included."""
        return self._offsets(topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call] # untyped in the client

    def first_timestamps_ms(self, topic: str, partitions: Sequence[int]) -> list[int]:
        """Return the time of the oldest record still kept, for partitions that hold any."""
        spec = OffsetSpec.for_timestamp(0)
        return [found.timestamp for found in self._ask(topic, partitions, spec)]

    def newest_timestamp_ms(self, topic: str, partition: int) -> int | None:
        """Return the time of a partition's newest record, or None when it holds none."""
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call] # untyped in the client
        found = self._ask(topic, [partition], spec)[0]
        return found.timestamp if found.offset >= 0 else None

    def _offsets(self, topic: str, partitions: int, spec: OffsetSpec) -> list[int]:
        return [found.offset for found in self._ask(topic, range(partitions), spec)]

    def _ask(self, topic: str, partitions: Sequence[int], spec: OffsetSpec) -> list[Any]:
        asked = {TopicPartition(topic, number): spec for number in partitions}
        if not asked:
            return []
        deadline = self._clock.monotonic() + _TIMEOUT_S
        while True:
            futures = self._client.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_TIMEOUT_S
            )
            try:
                found = {place.partition: future.result(_TIMEOUT_S) for place, future in futures.items()}
            except KafkaException as error:
                # a topic made a moment ago, or a leader that moves: the answer comes with the next metadata
                if self._clock.monotonic() > deadline:
                    raise self._unavailable(f"offsets of {topic} cannot be read", error) from error
                self._pause.wait(0.1)
            else:
                return [found[number] for number in partitions]

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        futures = self._client.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        return {
            resource.name: {
                key: entry.value
                for key, entry in self._result(future, f"settings of {resource.name} cannot be read").items()
                if entry.value is not None and entry.source != ConfigSource.UNKNOWN_CONFIG.value
            }
            for resource, future in futures.items()
        }

    def _metadata(self) -> Any:
        try:
            return self._client.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._unavailable("Kafka does not answer", error) from error

    def _result(self, future: Any, complaint: str) -> Any:
        try:
            return future.result(_TIMEOUT_S)
        except KafkaException as error:
            raise self._unavailable(complaint, error) from error

    def _unavailable(self, complaint: str, error: KafkaException) -> UnavailableError:
        return UnavailableError(f"{complaint} at {self._bootstrap} (WAYBILL_KAFKA): {error.args[0].str()}")


def _has_leaders(topic: Any, partitions: int) -> bool:
    return topic is not None and len([p for p in topic.partitions.values() if p.leader >= 0]) >= partitions
