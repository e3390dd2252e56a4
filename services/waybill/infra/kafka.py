"""The door to Kafka for what runs all day: a consumer owned by one thread, a producer that writes transactions.

Two facts of the brokers shape it. A broker does not check who owns a partition when an offset is committed, so
every transaction carries, per partition, the group metadata that was captured when the partition was assigned:
a former owner's is refused. And `send_offsets_to_transaction` does not flush, so the order here is produce,
flush, offsets, commit. What breaks otherwise: a frozen worker wakes up and its old state lands.

Nothing of the client library leaves this module: records come out as `Record`, failures as the classes below.
`confluent_kafka.aio` is not used; it deadlocks in public.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from waybill.contracts.codes import ErrorCode
from waybill.contracts.driver_errors import NO_POSITION, NOT_OWNER, UNREVIEWED, broker_code
from waybill.kernel.errors import FencedError, TransientError, UnavailableError

__all__ = [
    "GroupReader",
    "Listener",
    "OffsetMove",
    "OffsetRefusedError",
    "Outgoing",
    "PositionMissingError",
    "ProducerLostError",
    "Record",
    "TransactionError",
    "TransactionalProducer",
]

RawHeaders = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    headers: RawHeaders
    value: bytes | None


class Outgoing(NamedTuple):
    """One record to be written."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: RawHeaders | None = None
    #: Told the record's offset, on the producer's thread and before the transaction ends: once for each try.
    placed: Callable[[int], None] | None = None


class OffsetMove(NamedTuple):
    """One partition's committed offset, with the proof of ownership captured when it was assigned."""

    group_metadata: object
    topic: str
    partition: int
    offset: int
    metadata: str


class PositionMissingError(UnavailableError):
    """A group has no committed offset for a partition, or the offset is no longer in the topic."""

    code = "position_missing"


class OffsetRefusedError(FencedError):
    """The broker refused one partition's offset: somebody else owns it. `index` is its place in what was asked."""

    code = "offset_refused"

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class TransactionError(TransientError):
    """The transaction was aborted; the same records may be tried again in another one. `fault` classifies the cause."""

    code = "transaction_failed"

    def __init__(self, message: str, *, fault: ErrorCode = UNREVIEWED) -> None:
        super().__init__(message)
        self.fault = fault


class ProducerLostError(TransientError):
    """The producer cannot go on; whether the last commit happened is not known. Make another with the same id."""

    code = "producer_lost"

    def __init__(self, message: str, *, fault: ErrorCode = UNREVIEWED) -> None:
        super().__init__(message)
        self.fault = fault


#: The reviewed names as the numbers errors carry.
_NOT_OWNER: Final = frozenset(getattr(KafkaError, name) for name in NOT_OWNER)
_NO_POSITION: Final = frozenset(getattr(KafkaError, name) for name in NO_POSITION)


class Listener(Protocol):
    """Who learns about assignments; called on the reader's thread, inside `poll`."""

    def assigned(self, partition: int, group_metadata: object) -> None:
        """Take note of a partition; it is not read before `resume` says from where."""
        ...

    def revoked(self, partitions: Sequence[int]) -> None:
        """Finish with partitions; they are let go when this returns."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Drop partitions that already belong to somebody else."""
        ...


#: Readers of a process that turn messages into records at one time. They share one interpreter: hundreds that all have
#: something to read would keep it from the loop and from transactions for seconds.
_TURNS: Final = threading.BoundedSemaphore(2)


class GroupReader:
    """One member of one consumer group on one topic. All methods belong to the thread that made the first call."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        listener: Listener,
        among: int = 1,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        """Take what it needs.

        Args:
            bootstrap: where the brokers are.
            group: the consumer group.
            topic: what it reads.
            listener: who learns about assignments.
            among: how many readers the process has; the more, the less each holds and the longer it lets brokers wait.
            on_bytes: told every few seconds, on the reader's thread, what it has received in all.
        """
        self._topic, self._group, self._listener = topic, group, listener
        watched: dict[str, Any] = {}
        if on_bytes is not None:
            watched = {
                "statistics.interval.ms": 5_000,
                "stats_cb": lambda text: on_bytes(json.loads(text)["rx_bytes"]),
            }
        self._thread: int | None = None
        #: Assigned and not read yet: only their owner knows from where.
        self._unread: set[int] = set()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "client.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "max.poll.interval.ms": 30_000,
                "queued.min.messages": 5_000,
                **_share(among),
                "fetch.error.backoff.ms": 50,
                "retry.backoff.ms": 10,
                "socket.keepalive.enable": True,
                "log_level": 0,
                **watched,
            }
        )

        #: Records of one poll: as Python objects they take several times what they take in the client.
        self._most = max(100, min(1_000, 10_000 // among))

    def subscribe(self) -> None:
        """Join the group."""
        self._on_own_thread()
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Return what is there, at most `max_records`, waiting only for the first; runs the listener's calls.

        One reader of many returns fewer.

        Raises:
            PositionMissingError: a partition has no valid committed offset.
        """
        self._on_own_thread()
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        with _TURNS:
            return self._read(first, min(max_records, self._most) - 1)

    def _read(self, first: Any, more: int) -> list[Record]:
        """Return a message that was found and those behind it as records."""
        messages = [first, *self._consumer.consume(more, 0)] if more > 0 else [first]
        records: list[Record] = []
        for m in messages:
            error = m.error()
            if error is None:
                records.append(Record(m.partition(), m.offset(), m.key(), m.headers() or [], m.value()))
            elif error.code() in _NO_POSITION:
                raise PositionMissingError(
                    f"group {self._group} has no valid committed offset on {self._topic}"
                    f"[{m.partition()}]: run `waybill apply` to set its start, or records it never read are gone"
                )
        return records

    def resume(self, partition: int, start: int) -> None:
        """Read a partition on from where it was paused; the first time from `start`.

        The client looks for a committed offset by itself too, and when that look-up fails for good, which a broker
        that just came back can cause, it never reads the partition. So its finding is not used.
        """
        self._on_own_thread()
        if partition in self._unread:
            self._unread.discard(partition)
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, start)])
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def pause(self, partition: int) -> None:
        """Stop reading a partition that is not paused."""
        self._on_own_thread()
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def committed(self, partition: int, timeout_s: float) -> tuple[int, str | None] | None:
        """Return offset and metadata; None when it was never committed. Waits for open transactions on it.

        Raises:
            TransientError: no answer in time.
        """
        self._on_own_thread()
        try:
            found = self._consumer.committed([TopicPartition(self._topic, partition)], timeout=timeout_s)[0]
        except KafkaException as error:
            raise TransientError("the committed offset cannot be read now") from error
        if found.error is not None:
            raise TransientError("the committed offset cannot be read now")
        return (found.offset, found.metadata) if found.offset >= 0 else None

    def stable_end(self, topic: str, partition: int, timeout_s: float) -> int:
        """Return the offset below which every transaction of any partition has ended.

        Raises:
            TransientError: no answer in time.
        """
        self._on_own_thread()
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
        except KafkaException as error:
            raise TransientError("the end of a partition cannot be read now") from error
        if found is None:
            raise TransientError("the end of a partition cannot be read now")
        return int(found[1])

    def group_metadata(self) -> object:
        """Return the membership as it is now, opaque."""
        self._on_own_thread()
        return cast("object", self._consumer.consumer_group_metadata())

    def rewind(self, partition: int) -> None:
        """Read an assigned partition no more until its next owner says from where."""
        self._on_own_thread()
        self._unread.add(partition)
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def close(self) -> None:
        """Leave the group; the listener's `revoked` is called first."""
        self._on_own_thread()
        self._consumer.close()

    def _on_own_thread(self) -> None:
        current = threading.get_ident()
        if self._thread is None:
            self._thread = current
        assert self._thread == current, "a consumer is used by one thread only"

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        metadata = consumer.consumer_group_metadata()
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._unread.update(found.partition for found in partitions)
        for found in partitions:
            self._listener.assigned(found.partition, metadata)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._listener.revoked([found.partition for found in partitions])
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._listener.lost([found.partition for found in partitions])
        consumer.incremental_unassign(partitions)


def _share(among: int) -> dict[str, int]:
    """Return what one reader of so many may hold, and how long a fetch waits that finds nothing.

    A fetch ends at once when there is something. But it is one for all partitions of a broker, and one that is resumed
    meanwhile waits for its end: so few readers ask often, and all of a process together ask brokers 500 times a second.
    """
    return {
        "queued.max.messages.kbytes": max(512, min(8_192, 262_144 // among)),
        "max.partition.fetch.bytes": max(65_536, min(1_048_576, 16_777_216 // among)),
        "fetch.wait.max.ms": max(250, min(1_000, 2 * among)),
    }


def _nothing(step: str) -> None:
    """Do nothing at a step; tests stop or kill the process here."""


class _SomebodyRefusedError(Exception):
    """The transaction was aborted: one of several partitions in a call is somebody else's."""


def _calls(offsets: Sequence[OffsetMove]) -> Iterable[Sequence[tuple[int, OffsetMove]]]:
    """Put together, with their places, those that one call may carry: the same proof of ownership of one topic.

    A group's partitions that came with one assignment share theirs, so the first call costs what each cost.
    """
    calls: dict[object, list[tuple[int, OffsetMove]]] = {}
    for index, move in enumerate(offsets):
        calls.setdefault((move.group_metadata, move.topic), []).append((index, move))
    return calls.values()


def _nowhere(offset: int) -> None:
    """Let an offset go that nobody asked for."""


def _telling(placed: Callable[[int], None]) -> Callable[[Any, Any], None]:
    """Return a delivery report that tells the offset; what failed is found out by the flush."""

    def report(error: Any, message: Any) -> None:
        if error is None:
            placed(message.offset())

    return report


class TransactionalProducer:
    """Writes records and offsets in one transaction. One thread uses it; after ProducerLostError it is of no more use."""

    def __init__(self, bootstrap: str, transactional_id: str, *, at_step: Callable[[str], None] = _nothing) -> None:
        self._at_step = at_step
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "client.id": transactional_id,
                "transaction.timeout.ms": 8_000,
                "message.timeout.ms": 7_000,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 50,
                "linger.ms": 5,
                "batch.size": 262_144,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        try:
            self._producer.init_transactions(10)
        except KafkaException as error:
            fault = broker_code(error.args[0].name())
            raise ProducerLostError(f"{transactional_id}: the brokers did not accept it", fault=fault) from error

    def commit(self, records: Iterable[Outgoing], offsets: Sequence[OffsetMove]) -> None:
        """Write all of it or nothing.

        Raises:
            OffsetRefusedError: one partition is not ours; nothing was written.
            TransactionError: nothing was written; the same may be asked again.
            ProducerLostError: it is not known whether it was written.
        """
        listed = list(records)
        try:
            try:
                self._run(listed, _calls(offsets))
            except _SomebodyRefusedError:  # who it was, one call for each tells
                self._run(listed, [[place] for place in enumerate(offsets)])
        except KafkaException as error:
            self._recover(error)

    def close(self) -> None:
        """Forget it; an open transaction is aborted by the brokers."""
        self._producer.purge()

    def _run(self, records: Iterable[Outgoing], calls: Iterable[Sequence[tuple[int, OffsetMove]]]) -> None:
        producer = self._producer
        producer.begin_transaction()
        produce = producer.produce
        for topic, partition, key, value, headers, placed in records:
            if headers is None and placed is None:  # nearly all: arguments by name cost as much as the rest
                produce(topic, value, key, partition)
            else:
                produce(topic, value, key, partition, headers=headers or [], on_delivery=_telling(placed or _nowhere))
        self._at_step("produced")
        if producer.flush(7.0):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "flush", False, True, True))  # noqa: SLF001
        self._at_step("flushed")
        for call in calls:
            index, first = call[0]
            try:
                producer.send_offsets_to_transaction(
                    [TopicPartition(m.topic, m.partition, m.offset, metadata=m.metadata) for _, m in call],
                    first.group_metadata,
                    5.0,
                )
            except KafkaException as error:
                if error.args[0].code() not in _NOT_OWNER or error.args[0].fatal():
                    raise
                producer.abort_transaction(8.0)
                if len(call) > 1:
                    raise _SomebodyRefusedError from error
                raise OffsetRefusedError(f"{first.topic}[{first.partition}] is not ours", index=index) from error
        self._at_step("offsets_sent")
        producer.commit_transaction(8.0)
        self._at_step("committed")

    def _recover(self, error: KafkaException) -> None:
        """Turn a failure into what the caller may do; the open transaction is gone afterwards."""
        cause = cast("Any", error.args[0])
        fault = broker_code(cause.name())
        if not cause.fatal() and cause.txn_requires_abort():
            try:
                self._producer.abort_transaction(8.0)
            except KafkaException as failed:
                raise ProducerLostError(f"abort failed: {failed.args[0].name()}", fault=fault) from failed
            raise TransactionError(f"transaction aborted: {cause.name()}", fault=fault) from error
        raise ProducerLostError(f"producer unusable: {cause.name()}", fault=fault) from error
