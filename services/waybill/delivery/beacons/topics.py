"""A tenant's topics and one destination's group in Kafka, as a rebuild reads them: committed records only."""

from collections.abc import Iterator, Mapping
from typing import Any

from waybill.contracts.codec import TASK_STATE, AvroReader
from waybill.contracts.fabric import DestinationConfig
from waybill.contracts.names import commands_topic, delivery_group, state_topic
from waybill.delivery.core.position import Position
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.registry import Registry
from waybill.infra.topic_log import LogRecord, scan
from waybill.kernel.clock import Clock

__all__ = ["KafkaTopics"]


class KafkaTopics:
    """The topics end of a rebuild. Every method may raise UnavailableError."""

    def __init__(
        self, bootstrap: str, registry: Registry, config: DestinationConfig, partitions: int, clock: Clock
    ) -> None:
        self._bootstrap, self._config, self._partitions, self._clock = bootstrap, config, partitions, clock
        self._admin, self._groups = KafkaAdmin(bootstrap, clock), GroupOffsets(bootstrap)
        self._reader = AvroReader(TASK_STATE, registry.schema)
        self._commands, self._states = commands_topic(config.tenant), state_topic(config.tenant)

    def position(self, partition: int) -> tuple[int, Position] | None:
        """Return the committed offset and its note; None when nobody ever set a start."""
        group = delivery_group(self._config.tenant, self._config.name)
        found = self._groups.position(group, self._commands, partition)
        return None if found is None else (found[0], Position.decode(found[1]))

    def first(self, partition: int) -> int:
        """Return the offset of the oldest command that is still kept."""
        return self._admin.earliest_offsets(self._commands, self._partitions)[partition]

    def states_end(self, partition: int) -> int:
        """Return the true end of the states now."""
        return self._admin.end_offsets(self._states, self._partitions)[partition]

    def states(self, partition: int, start: int, end: int) -> Iterator[Mapping[str, Any]]:
        """Yield every state of this destination from one offset up to another."""
        name = self._config.name
        needle = name.encode()
        first = self._admin.earliest_offsets(self._states, self._partitions)[partition]
        for record in self._scan(self._states, partition, max(start, first), end):
            if record.value is not None and needle in record.value:
                state = self._reader.decode(record.value)
                if state["destination"] == name:
                    yield state

    def commands(self, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        """Yield the commands from one offset up to another, in their order."""
        last = min(end, self._admin.end_offsets(self._commands, self._partitions)[partition])
        yield from self._scan(self._commands, partition, max(start, self.first(partition)), last)

    def _scan(self, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        starts, ends = [0] * self._partitions, [0] * self._partitions
        starts[partition], ends[partition] = start, end
        return scan(self._bootstrap, topic, starts=starts, ends=ends, clock=self._clock)
