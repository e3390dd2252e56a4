"""Commands put straight into a tenant's topic, as the relay would have written them, all visible at one instant.

They are produced in one transaction: a read-committed worker sees none of them before the commit, and then all,
so a backlog can be timed from a moment that is known exactly.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE, DESTINATION
from waybill.contracts.names import commands_topic
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant

__all__ = ["Backlog"]

#: 400 bytes of believable data; with its envelope a body has about 1,000 bytes.
_DATA: Final = json.dumps(
    {
        "subject": "c0ffee",
        "reason": "request of the person",
        "scopes": ["profile", "orders", "tickets"],
        "pad": "x" * 300,
    }
).encode()
_BATCH: Final = 5_000


def _headers(tenant: Tenant, aggregate: str, sequence: int) -> list[tuple[str, bytes]]:
    texts: Sequence[tuple[str, str]] = (
        ("ce_specversion", "1.0"),
        ("ce_id", str(uuid.uuid4())),
        ("ce_source", f"waybill://{tenant}/bench"),
        ("ce_type", COMMAND_TYPE),
        ("ce_subject", aggregate),
        ("ce_time", "2026-01-01T00:00:00.000000Z"),
        ("content-type", "application/json"),
        ("ce_tenant", tenant),
        ("ce_sequences", json.dumps({DESTINATION: sequence})),
        ("ce_instructionversion", "1"),
        ("ce_expiresat", "2100-01-01T00:00:00.000000Z"),
        ("ce_configversion", "1"),
        ("ce_capability", COMMAND_TYPE),
        ("ce_capabilityversion", "1"),
        ("ce_envelopeversion", "1"),
        ("ce_dataform", "clear"),
    )
    return [(name, text.encode()) for name, text in texts]


@dataclass(slots=True)
class Backlog:
    """Makes backlogs for one tenant; sequences go on from one backlog to the next."""

    bootstrap: str
    tenant: Tenant
    aggregates: int = 2_000
    #: Monotonic seconds just before the last backlog became visible.
    visible_at: float = 0.0
    _next: int = 0
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _producer: Any = None

    def load(self, commands: int) -> Mapping[tuple[str, int], int]:
        """Produce a backlog, make it visible, and return the offset behind the last record of each (topic, partition)."""
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": f"bench.{self.tenant}",
                    "partitioner": "murmur2_random",
                    "linger.ms": 20,
                    "batch.size": 262_144,
                    "compression.type": "lz4",
                    "queue.buffering.max.messages": 200_000,
                    "transaction.timeout.ms": 600_000,
                    "log_level": 0,
                }
            )
            self._producer.init_transactions(30)
        topic = commands_topic(self.tenant)
        self._producer.begin_transaction()
        for number in range(commands):
            place = self._next + number
            aggregate = f"{AGGREGATE_TYPE}/{place % self.aggregates}"
            self._producer.produce(
                topic,
                key=aggregate.encode(),
                value=_DATA,
                headers=_headers(self.tenant, aggregate, place // self.aggregates + 1),
                on_delivery=self._produced,
            )
            if number % _BATCH == 0:
                self._producer.poll(0)
        self._producer.flush(120)
        self._next += commands
        self.visible_at = time.monotonic()
        self._producer.commit_transaction(60)
        return dict(self._ends)

    def _produced(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            raise UnavailableError(f"a command of the backlog was not produced: {error.str()}")
        place = (message.topic(), message.partition())
        self._ends[place] = max(self._ends.get(place, 0), message.offset() + 1)
