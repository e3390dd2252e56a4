"""Reading topics to their true end, and writing records back exactly as somebody else would have written them.

`scan` reads committed records up to the end that was true when it was called, open transactions included: where one
is still open it waits for it, because a record in it may be just the one that is looked for. `LogWriter` writes
batches in transactions, with keys placed as Java clients place them (murmur2), so an aggregate keeps its partition.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from waybill.kernel.clock import Clock
from waybill.kernel.errors import FencedError, UnavailableError

__all__ = ["LogRecord", "LogWriter", "Tail", "offsets_at", "scan"]

_TIMEOUT_S: Final = 30.0
#: A partition that gives nothing for as long holds a transaction nobody ends, or its leader is gone.
_PATIENCE_S: Final = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record as it lies in, or goes to, a topic. Headers keep order and null values."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    #: Where it lies; None for a record to be written, whose key decides.
    partition: int | None = None
    #: Not what the record says: two that differ only in it are the same.
    offset: int | None = field(default=None, compare=False)


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "waybill-scan",  # required by the client; nothing is committed under it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 0,
        }
    )


def offsets_at(bootstrap: str, topic: str, partitions: int, timestamp_ms: int) -> list[int]:
    """Return per partition the first offset whose record is not older than a time; -1 where there is none."""
    consumer = _consumer(bootstrap)
    try:
        asked = [TopicPartition(topic, number, timestamp_ms) for number in range(partitions)]
        return [place.offset for place in consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)]
    except KafkaException as error:
        raise UnavailableError(f"offsets of {topic} cannot be read at {bootstrap}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def scan(
    bootstrap: str, topic: str, *, starts: Sequence[int], ends: Sequence[int], clock: Clock
) -> Iterator[LogRecord]:
    """Yield the committed records of a topic, per partition from `starts` up to `ends`.

    Raises:
        UnavailableError: nothing came for 90 s although the end was not reached.
    """
    open_ends = {number: end for number, end in enumerate(ends) if starts[number] < end}
    if not open_ends:
        return
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, number, starts[number]) for number in open_ends])
        last = clock.monotonic()
        while open_ends:
            messages = consumer.consume(2000, timeout=1.0)
            if messages:
                last = clock.monotonic()
            elif clock.monotonic() - last > _PATIENCE_S:
                raise UnavailableError(
                    f"{topic} cannot be read to its end: partitions {sorted(open_ends)} give nothing. A transaction "
                    "is open there that nobody ends, or a partition has no leader"
                )
            for message in messages:
                yield from _record(message, topic, open_ends)
    finally:
        consumer.close()


def _record(message: Any, topic: str, open_ends: dict[int, int]) -> Iterator[LogRecord]:
    number, offset = message.partition(), message.offset()
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            raise UnavailableError(f"{topic} cannot be read: {error.str()}")
        if offset >= open_ends.get(number, offset + 1):
            open_ends.pop(number, None)
        return
    end = open_ends.get(number)
    if end is None or offset >= end:
        open_ends.pop(number, None)
        return
    yield LogRecord(
        topic=topic,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        partition=number,
        offset=offset,
    )
    if offset + 1 >= end:
        open_ends.pop(number, None)


class Tail:
    """Stands at the end of a topic as it was at construction and waits for a record with a certain header."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = _consumer(bootstrap)
        places = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            for place in places:
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)
        except KafkaException as error:
            self._consumer.close()
            raise UnavailableError(f"{topic} cannot be read at {bootstrap}: {error.args[0].str()}") from error
        self._consumer.assign(places)

    def wait_for(self, header: tuple[str, bytes], clock: Clock, within_s: float) -> bool:
        """Read until a record carries the header; return False when time is up."""
        deadline = clock.monotonic() + within_s
        while (left := deadline - clock.monotonic()) > 0:
            message = self._consumer.poll(min(left, 0.5))
            if message is not None and message.error() is None and header in (message.headers() or ()):
                return True
        return False

    def close(self) -> None:
        """Let the connection go."""
        self._consumer.close()


class LogWriter:
    """Writes batches of records, each batch one transaction; a second writer of the same id fences the first."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 20_000,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 5,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        self._guard(lambda: self._producer.init_transactions(_TIMEOUT_S))

    def write(self, records: Sequence[LogRecord]) -> None:
        """Write a batch in order, all or nothing.

        Raises:
            FencedError: another writer of the same id took over.
            UnavailableError: the brokers did not take it; nothing of the batch is visible.
        """
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        def all_of_it() -> None:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record, delivered)
            self._producer.flush(_TIMEOUT_S)
            if failed:
                raise KafkaException(failed[0])
            self._producer.commit_transaction(_TIMEOUT_S)

        self._guard(all_of_it)

    def _produce(self, record: LogRecord, delivered: Callable[[KafkaError | None, Any], None]) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except KafkaException as error:
            said: KafkaError = error.args[0]
            if said.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}:  # noqa: SLF001 - the client's own name for it
                raise FencedError("another recovery of this connector took over: let it finish") from error
            try:
                self._producer.abort_transaction(_TIMEOUT_S)
            except KafkaException:
                said_again = " (and the transaction could not be aborted: it ends by itself)"
            else:
                said_again = ""
            raise UnavailableError(f"Kafka did not take the records: {said.str()}{said_again}") from error
