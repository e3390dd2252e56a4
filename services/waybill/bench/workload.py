"""Commands put straight into a tenant's topic, as the relay would have written them.

A `Backlog` is produced in one transaction: a read-committed worker sees none of it before the commit, and then all,
so it can be timed from a moment that is known exactly. A `Stream` comes at a steady rate, for latencies under load.
"""

import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Producer

from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE, DESTINATION
from waybill.contracts.names import commands_topic
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock, format_instant
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import CommandId, DestinationName, Tenant, delivery_id

__all__ = ["DATA", "Backlog", "Offer", "Stream", "backlog_headers"]

#: 400 bytes of believable data; with its envelope a body has about 1,000 bytes.
DATA: Final = json.dumps(
    {
        "subject": "c0ffee",
        "reason": "request of the person",
        "scopes": ["profile", "orders", "tickets"],
        "pad": "x" * 300,
    }
).encode()
_BATCH: Final = 5_000


def _headers(
    tenant: Tenant, aggregate: str, sequences: Mapping[DestinationName, int], command: uuid.UUID
) -> list[tuple[str, bytes]]:
    texts: Sequence[tuple[str, str]] = (
        ("ce_specversion", "1.0"),
        ("ce_id", str(command)),
        ("ce_source", f"waybill://{tenant}/bench"),
        ("ce_type", COMMAND_TYPE),
        ("ce_subject", aggregate),
        ("ce_time", format_instant(SystemClock().now())),
        ("content-type", "application/json"),
        ("ce_tenant", tenant),
        ("ce_sequences", json.dumps(sequences)),
        ("ce_instructionversion", "1"),
        ("ce_expiresat", "2100-01-01T00:00:00.000000Z"),
        ("ce_configversion", "1"),
        ("ce_capability", COMMAND_TYPE),
        ("ce_capabilityversion", "1"),
        ("ce_envelopeversion", "1"),
        ("ce_dataform", "clear"),
    )
    return [(name, text.encode()) for name, text in texts]


def backlog_headers(tenant: Tenant, aggregate: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of one command of a benchmark, as a consumer reads them."""
    return list(_headers(tenant, aggregate, {DESTINATION: 1}, uuid.uuid4()))


def _one_destination(_key: int) -> Sequence[DestinationName]:
    return (DESTINATION,)


@dataclass(slots=True)
class Backlog:
    """Makes backlogs for one tenant; sequences go on from one backlog to the next."""

    bootstrap: str
    tenant: Tenant
    aggregates: int = 2_000
    #: What the ids of its aggregates begin with: backlogs of one tenant keep apart by it.
    prefix: str = ""
    #: The destinations of an aggregate, by its number.
    destinations: Callable[[int], Sequence[DestinationName]] = _one_destination
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
                    "transactional.id": f"bench.{self.tenant}.{self.prefix}",
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
            sequence, key = divmod(self._next + number, self.aggregates)
            aggregate = f"{AGGREGATE_TYPE}/{self.prefix}{key}"
            sequences = dict.fromkeys(self.destinations(key), sequence + 1)
            self._producer.produce(
                topic,
                key=aggregate.encode(),
                value=DATA,
                headers=_headers(self.tenant, aggregate, sequences, uuid.uuid4()),
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
        _must_be_there(error)
        place = (message.topic(), message.partition())
        self._ends[place] = max(self._ends.get(place, 0), message.offset() + 1)


class Offer(NamedTuple):
    """One command of a stream."""

    destination: DestinationName
    #: The aggregate's id; its sequences rise from one.
    aggregate: str
    #: Whether its delivery is measured.
    is_measured: bool = True


class Stream:
    """Commands at a steady rate from a thread of their own; one that comes late does not delay the next."""

    def __init__(self, bootstrap: str, tenant: Tenant, clock: Clock) -> None:
        self._tenant, self._clock = tenant, clock
        self._topic = commands_topic(tenant)
        self._sequences: Counter[tuple[DestinationName, str]] = Counter()
        #: Measured deliveries and the wall-clock second each was produced at.
        self.produced: dict[str, float] = {}
        #: The partition each of them went to.
        self.partitions: dict[str, int] = {}
        self._stop = threading.Event()
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def run(self, offers: Iterator[Offer], rate_per_s: float, seconds: float) -> float:
        """Produce for a while, wait until the brokers have everything, and return by how many seconds it was late."""
        started = time.monotonic()
        for number in itertools.count():
            due = started + number / rate_per_s
            if due - started >= seconds or self._stop.wait(max(0.0, due - time.monotonic())):
                break
            self._produce(next(offers))
            self._producer.poll(0)
        late = time.monotonic() - started - seconds
        self._producer.flush(30)
        return max(0.0, late)

    def stop(self) -> None:
        """End a run early, from another thread."""
        self._stop.set()

    def _produce(self, offer: Offer) -> None:
        command = uuid.uuid4()
        aggregate = f"{AGGREGATE_TYPE}/{offer.aggregate}"
        place = (offer.destination, aggregate)
        self._sequences[place] += 1
        headers = _headers(self._tenant, aggregate, {offer.destination: self._sequences[place]}, command)
        delivery = str(delivery_id(CommandId(command), offer.destination))
        if offer.is_measured:
            self.produced[delivery] = self._clock.now().timestamp()

        def produced(error: KafkaError | None, message: Any) -> None:
            _must_be_there(error)
            if offer.is_measured:
                self.partitions[delivery] = message.partition()

        self._producer.produce(
            self._topic,
            key=aggregate.encode(),
            value=DATA,
            headers=headers,
            on_delivery=produced,
        )


def _must_be_there(error: KafkaError | None) -> None:
    if error is not None:
        raise UnavailableError(f"a command of the benchmark was not produced: {error.str()}")
