"""The commands of a run, as the relay put them into the log: what everybody is measured against."""

import json
import uuid
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from zlib import crc32

from waybill.contracts.envelope import delivery_id_text
from waybill.infra.kafka import Record
from waybill.kernel.clock import format_instant
from waybill.kernel.ids import CommandId, DestinationName, Tenant
from waybill.simulator.broker import Broker, Stamp, Status, Transaction

__all__ = ["START", "TENANT", "Order", "Orders", "Relay", "partition_of"]

TENANT: Final = Tenant("acme")
#: What wall clocks say when a run begins.
START: Final = datetime(2026, 6, 1, tzinfo=UTC)
_LIFE: Final = timedelta(days=7)

Headers = list[tuple[str, bytes | None]]


def partition_of(aggregate: str, partitions: int) -> int:
    """Return where an aggregate's commands lie."""
    return crc32(aggregate.encode()) % partitions


def header_list(
    command_id: uuid.UUID, tenant: str, aggregate: str, sequences: Mapping[str, int], **more: str
) -> Headers:
    """Return a command's headers as the relay gives them; `more` replaces or adds some by their name without `ce_`."""
    text = {
        "ce_specversion": "1.0",
        "ce_id": str(command_id),
        "ce_source": "/waybill/simulator/outbox",
        "ce_type": "subject.erase",
        "ce_subject": aggregate,
        "ce_time": "2026-01-01T00:00:00.000Z",
        "content-type": "application/json",
        "ce_tenant": tenant,
        "ce_sequences": json.dumps(sequences),
        "ce_instructionversion": "1",
        "ce_configversion": "1",
        "ce_capability": "erase",
        "ce_capabilityversion": "1",
        "ce_envelopeversion": "1",
        "ce_dataform": "clear",
        **{f"ce_{name}": value for name, value in more.items()},
    }
    return [(name, value.encode()) for name, value in text.items()]


@dataclass(slots=True, eq=False)
class Order:
    """One command in the log; a repeat of the relay is another record of the same command."""

    command_id: uuid.UUID
    aggregate: str
    #: At each destination it names that can own it.
    sequences: Mapping[str, int]
    partition: int
    headers: Headers
    offset: int = -1
    #: Intake must write a dead letter for it.
    is_unroutable: bool = False

    def delivery_id(self, destination: str) -> str:
        """Return its delivery's identity."""
        return delivery_id_text(CommandId(self.command_id), DestinationName(destination))

    def told(self, destination: str) -> str:
        """Name it for people."""
        return f"{destination} {self.aggregate}#{self.sequences.get(destination, 0)}"

    def record(self, offset: int) -> Record:
        """Return it as it is read."""
        self.offset = offset
        return Record(self.partition, offset, self.aggregate.encode(), self.headers, b'{"n":1}')


class Orders:
    """Everything in the log, by offset, by delivery and by lane."""

    def __init__(self) -> None:
        self._by_offset: dict[int, list[Order]] = defaultdict(list)
        self._by_delivery: dict[tuple[str, str], Order] = {}
        self._lanes: dict[tuple[str, str], list[Order]] = defaultdict(list)
        self._groups: dict[str, str | None] = {}
        #: Deliveries the relay offered more than once.
        self.repeated: set[tuple[str, str]] = set()

    def know_group(self, group: str, destination: str | None) -> None:
        """Say whose group it is; None is intake's."""
        self._groups[group] = destination

    def destination_of(self, group: str) -> str | None:
        """Return whose group it is."""
        return self._groups[group]

    def add(self, order: Order) -> None:
        """Know a record that was appended."""
        self._by_offset[order.partition].append(order)
        for destination in order.sequences:
            key = (destination, order.delivery_id(destination))
            if key not in self._by_delivery:
                self._by_delivery[key] = order
                self._lanes[destination, order.aggregate].append(order)
            else:
                self.repeated.add(key)

    def delivery(self, destination: str, delivery_id: str) -> Order | None:
        """Return the command of a delivery."""
        return self._by_delivery.get((destination, delivery_id))

    def before(self, destination: str, order: Order) -> Iterator[Order]:
        """Yield what comes before in its lane."""
        mine = order.sequences[destination]
        for earlier in self._lanes[destination, order.aggregate]:
            if earlier.sequences[destination] < mine:
                yield earlier

    def between(self, partition: int, start: int, end: int) -> list[Order]:
        """Return the records of a partition in [start, end)."""
        found = self._by_offset[partition]
        low = bisect_left(found, start, key=lambda order: order.offset)
        high = bisect_right(found, end - 1, key=lambda order: order.offset)
        return found[low:high]

    def deliveries(self) -> Iterator[tuple[str, Order]]:
        """Yield every delivery."""
        for (destination, _), order in self._by_delivery.items():
            yield destination, order

    def end(self, partition: int) -> int:
        """Return the offset after the last record of a partition."""
        found = self._by_offset[partition]
        return found[-1].offset + 1 if found else 0


class Relay:
    """Puts commands into the log, each aggregate's numbered without a gap at every destination."""

    def __init__(
        self, broker: Broker, orders: Orders, destinations: Sequence[str], rng: Random, now: Callable[[], float]
    ) -> None:
        self._broker, self._orders, self._destinations = broker, orders, destinations
        self._rng, self._now = rng, now
        #: What commands are resolved against.
        self.config_version = 1
        self._sequences: dict[tuple[str, str], int] = {}

    def emit(
        self,
        aggregate: str,
        *,
        destinations: Sequence[str] | None = None,
        life: timedelta = _LIFE,
        transaction: Transaction | None = None,
        **headers: str,
    ) -> Order:
        """Commit the aggregate's next command; its record follows at once."""
        named = list(self._destinations if destinations is None else destinations)
        sequences = {}
        for destination in named:
            sequences[destination] = self._sequences[destination, aggregate] = (
                self._sequences.get((destination, aggregate), 0) + 1
            )
        command_id = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        now = START + timedelta(seconds=self._now())
        more = {"time": format_instant(now), "expiresat": format_instant(now + life), **headers}
        more.setdefault("configversion", str(self.config_version))
        order = Order(
            command_id=command_id,
            aggregate=aggregate,
            sequences={name: number for name, number in sequences.items() if name in self._destinations},
            partition=partition_of(aggregate, len(self._broker.commands)),
            headers=header_list(command_id, TENANT, aggregate, sequences, **more),
            is_unroutable=any(name not in self._destinations for name in named),
        )
        return self._append(order, transaction)

    def emit_unreadable(self, partition: int) -> Order:
        """Put a record into the log that nobody can own."""
        order = Order(
            command_id=uuid.UUID(int=self._rng.getrandbits(128), version=4),
            aggregate="?",
            sequences={},
            partition=partition % len(self._broker.commands),
            headers=[("ce_sequences", b"{")],
            is_unroutable=True,
        )
        return self._append(order, None)

    def repeat(self, order: Order) -> Order:
        """Let the relay publish a command again."""
        return self._append(replace(order, offset=-1), None)

    def hole(self, partition: int, size: int) -> None:
        """Leave out some offsets."""
        self._broker.commands[partition].hole(size)

    def open_transaction(self) -> Transaction:
        """Open a transaction of whoever writes commands: what comes after it is not seen before it ends."""
        return Transaction("relay", Stamp("relay", self._now()))

    def end_transaction(self, transaction: Transaction) -> None:
        """Commit it."""
        transaction.status = Status.COMMITTED
        self._broker.wake_readers()

    def _append(self, order: Order, transaction: Transaction | None) -> Order:
        self._broker.append(order.partition, order.record, transaction)
        self._orders.add(order)
        return order
