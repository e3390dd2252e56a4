"""The brokers: logs of commands with holes, transactions, committed offsets. What they check is what Kafka checks.

- A reader sees a log up to the first open transaction; control records and aborted ones are holes between offsets.
- A transaction is fenced by the epoch of its transactional id and aborted when it stays open too long.
- An offset in a transaction is checked when it is sent, by `Groups.accepts`, and counts when the transaction commits;
  until then whoever asks for the committed offset waits.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from waybill.infra.kafka import OffsetMove, Outgoing, Record
from waybill.simulator.groups import Groups, Membership
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["Broker", "Committed", "Stamp", "Transaction", "Witness"]

#: As the worker's producer asks for.
_TRANSACTION_S: Final = 8.0
_STABLE_LOOK_S: Final = 0.02

#: Offset and the note beside it.
Committed = tuple[int, str | None]
Place = tuple[str, int]


class Status(StrEnum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Stamp(NamedTuple):
    """Who runs a transaction, and since when: known to the simulator's laws only."""

    #: A process and which of its lives.
    by: str
    began: float


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    producer: str
    stamp: Stamp
    records: list[Outgoing] = field(default_factory=list)
    offsets: list[tuple[str, OffsetMove]] = field(default_factory=list)
    status: Status = Status.OPEN


class Witness(Protocol):
    """Who sees every transaction that commits, before its offsets count."""

    def transaction(self, transaction: Transaction, before: dict[Place, Committed]) -> None:
        """Look at it; `before` are all committed offsets so far."""
        ...


class CommandLog:
    """One partition of the commands."""

    def __init__(self) -> None:
        self.end = 0
        self._entries: list[tuple[int, Record | None, Transaction | None]] = []

    def append(self, make: Callable[[int], Record], transaction: Transaction | None = None) -> Record:
        """Put a record at the end, in a transaction of the relay or alone."""
        record = make(self.end)
        self._entries.append((self.end, record, transaction))
        self.end += 1
        return record

    def hole(self, size: int) -> None:
        """Leave out some offsets, as control records do."""
        self.end += size

    def read(self, position: int, most: int) -> tuple[list[Record], int]:
        """Return committed records from a position on, and where to read on."""
        found: list[Record] = []
        at = bisect_left(self._entries, position, key=lambda entry: entry[0])
        while at < len(self._entries) and len(found) < most:
            offset, record, transaction = self._entries[at]
            if transaction is not None and transaction.status is Status.OPEN:
                break
            position = offset + 1
            if record is not None and (transaction is None or transaction.status is Status.COMMITTED):
                found.append(record)
            at += 1
        return found, position

    def records(self) -> list[Record]:
        """Return every committed record."""
        return [
            record
            for _, record, transaction in self._entries
            if record is not None and (transaction is None or transaction.status is Status.COMMITTED)
        ]


class Broker:
    """All brokers of the cluster, as one that never loses what it took."""

    def __init__(self, timeline: Timeline, trace: Trace, groups: Groups, partitions: int) -> None:
        self._timeline, self._trace, self.groups = timeline, trace, groups
        self.commands = [CommandLog() for _ in range(partitions)]
        #: What people decided, by partition.
        self.decisions = [CommandLog() for _ in range(partitions)]
        #: Everything workers wrote, in the order of commits.
        self.published: list[Outgoing] = []
        #: How many records of each partition are committed.
        self.ends: dict[Place, int] = defaultdict(int)
        self.offsets: dict[Place, Committed] = {}
        self.witness: Witness | None = None
        self._open: dict[str, Transaction] = {}
        self._epochs: dict[str, int] = {}
        self._readers: list[Callable[[], None]] = []

    def create_group(self, group: str, start: Callable[[int], int]) -> None:
        """Make a group and its start, as apply does."""
        self.groups.create(group, len(self.commands))
        for partition in range(len(self.commands)):
            self.offsets[group, partition] = (start(partition), None)

    def on_records(self, wake: Callable[[], None]) -> None:
        """Tell a reader from now on when there may be records."""
        self._readers.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Tell it no more."""
        if wake in self._readers:
            self._readers.remove(wake)

    def append(self, partition: int, make: Callable[[int], Record], transaction: Transaction | None = None) -> Record:
        """Take a command from the relay."""
        record = self.commands[partition].append(make, transaction)
        self.wake_readers()
        return record

    def decide(self, partition: int, value: bytes) -> None:
        """Take a decision from the relay."""
        self.decisions[partition].append(lambda offset: Record(partition, offset, None, [], value))

    def wake_readers(self) -> None:
        """Let readers look for records."""
        for wake in self._readers:
            wake()

    # Transactions

    def begin(self, producer: str) -> int:
        """Take a producer in: fence the one before, abort what it left open; return its epoch."""
        self._abort(producer, "a new producer")
        self._epochs[producer] = self._epochs.get(producer, 0) + 1
        return self._epochs[producer]

    def write(self, producer: str, epoch: int, stamp: Stamp, records: Sequence[Outgoing]) -> bool | None:
        """Take records into the open transaction; None when the producer is fenced."""
        transaction = self._current(producer, epoch, stamp)
        if transaction is None:
            return None
        transaction.records.extend(records)
        return True

    def send_offset(self, producer: str, epoch: int, stamp: Stamp, move: OffsetMove) -> bool | None:
        """Take an offset into the open transaction; False when its proof is refused, None when fenced."""
        transaction = self._current(producer, epoch, stamp)
        if transaction is None:
            return None
        assert isinstance(move.group_metadata, Membership)
        if not self.groups.accepts(move.group_metadata, move.partition):
            self._trace("broker", f"refuses {producer} the offset of [{move.partition}]")
            return False
        transaction.offsets.append((move.group_metadata.group, move))
        return True

    def commit(self, producer: str, epoch: int) -> bool:
        """Make the open transaction count; False when the producer is fenced or it was aborted."""
        transaction = self._open.get(producer)
        if transaction is None or self._epochs.get(producer) != epoch:
            return False
        del self._open[producer]
        transaction.status = Status.COMMITTED
        if self.witness is not None:
            self.witness.transaction(transaction, self.offsets)
        self.published.extend(transaction.records)
        for record in transaction.records:
            if record.placed is not None:
                record.placed(self.ends[record.topic, record.partition])
            self.ends[record.topic, record.partition] += 1
        for group, move in transaction.offsets:
            self.offsets[group, move.partition] = (move.offset, move.metadata)
        told = ", ".join(f"[{move.partition}]={move.offset}" for _, move in transaction.offsets)
        self._trace("broker", f"{producer} committed {len(transaction.records)} records and {told}")
        return True

    def abort(self, producer: str, epoch: int) -> bool:
        """Undo the open transaction; False when the producer is fenced."""
        if self._epochs.get(producer) != epoch:
            return False
        self._abort(producer, "its producer")
        return True

    def end(self, topic: str, partition: int) -> int:
        """Return how many records of a partition are committed."""
        return self.ends[topic, partition]

    # Offsets

    def is_stable(self, group: str, partition: int) -> bool:
        """Whether no open transaction has an offset for it."""
        return not any(
            found == group and move.partition == partition
            for transaction in self._open.values()
            for found, move in transaction.offsets
        )

    def when_stable(self, group: str, partition: int, until: float, answer: Callable[[Committed | None], None]) -> None:
        """Answer with the committed offset once it is stable, with None when it is not in time."""
        if self.is_stable(group, partition):
            answer(self.offsets[group, partition])
        elif self._timeline.now >= until:
            answer(None)
        else:
            self._timeline.after(_STABLE_LOOK_S, self.when_stable, group, partition, until, answer)

    def _current(self, producer: str, epoch: int, stamp: Stamp) -> Transaction | None:
        if self._epochs.get(producer) != epoch:
            return None
        found = self._open.get(producer)
        if found is None:
            found = self._open[producer] = Transaction(producer, stamp)
            self._timeline.after(_TRANSACTION_S, self._expire, found)
        return found

    def _expire(self, transaction: Transaction) -> None:
        if transaction.status is Status.OPEN:
            self._abort(transaction.producer, "its time")
            self._epochs[transaction.producer] += 1

    def _abort(self, producer: str, why: str) -> None:
        found = self._open.pop(producer, None)
        if found is not None:
            found.status = Status.ABORTED
            self._trace("broker", f"transaction of {producer} aborted by {why}")
