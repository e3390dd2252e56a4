"""From where a member of a group reads: its owner's word, not what the client looked up by itself."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka import TopicPartition

from waybill.infra import kafka
from waybill.infra.kafka import GroupReader, Listener

TOPIC = "waybill.acme.commands"


class Message:
    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"subject/1"

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def value(self) -> bytes:
        return b"{}"


class ForgetfulConsumer:
    """A client whose look-up of a committed offset failed for good: such a partition stays assigned and unread."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        self.assign: Callable[..., None] | None = None

    def subscribe(self, topics: Sequence[str], **callbacks: Callable[..., None]) -> None:
        self.assign = callbacks["on_assign"]

    def consumer_group_metadata(self) -> object:
        return object()

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions.update((each.partition, each.offset) for each in partitions)
        self.paused.difference_update(each.partition for each in partitions)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            del self.positions[each.partition]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.update(each.partition for each in partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(each.partition for each in partitions)

    def poll(self, timeout_s: float) -> Message | None:
        if self.assign is not None:
            assign, self.assign = self.assign, None
            assign(self, [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
        for partition, offset in self.positions.items():
            if offset >= 0 and partition not in self.paused:
                self.positions[partition] += 1
                return Message(partition, offset)
        return None


class Silent(Listener):
    def assigned(self, partition: int, group_metadata: object) -> None:
        pass

    def revoked(self, partitions: Sequence[int]) -> None:
        pass

    def lost(self, partitions: Sequence[int]) -> None:
        pass


def read(reader: GroupReader) -> list[tuple[int, int]]:
    found = []
    while records := reader.poll(1, 0):
        found += [(record.partition, record.offset) for record in records]
        if len(found) == 3:
            break
    return found


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> GroupReader:
    monkeypatch.setattr(kafka, "Consumer", ForgetfulConsumer)
    reader = GroupReader("127.0.0.1:1", "group", TOPIC, Silent())
    reader.subscribe()
    assert read(reader) == []
    return reader


@pytest.mark.requirement("DC-23")
def test_a_partition_is_read_from_where_its_owner_says_although_the_client_found_no_position(
    reader: GroupReader,
) -> None:
    reader.resume(1, 1591)

    assert read(reader) == [(1, 1591), (1, 1592), (1, 1593)]


def test_a_pause_ends_where_it_began(reader: GroupReader) -> None:
    reader.resume(0, 7)
    read(reader)
    reader.pause(0)
    assert read(reader) == []

    reader.resume(0, 7)

    assert read(reader) == [(0, 10), (0, 11), (0, 12)]


def test_a_partition_that_gets_a_new_owner_is_read_from_where_that_one_says(reader: GroupReader) -> None:
    reader.resume(0, 7)
    read(reader)
    reader.rewind(0)
    assert read(reader) == []

    reader.resume(0, 8)

    assert read(reader) == [(0, 8), (0, 9), (0, 10)]


@pytest.mark.parametrize(
    ("among", "holds_kb", "fetches", "waits_ms"),
    [(1, 8_192, 1_048_576, 250), (50, 5_242, 335_544, 250), (200, 1_310, 83_886, 400), (10_000, 512, 65_536, 1_000)],
)
def test_many_readers_of_a_process_hold_less_each_and_ask_brokers_less_often(
    monkeypatch: pytest.MonkeyPatch, among: int, holds_kb: int, fetches: int, waits_ms: int
) -> None:
    seen: list[dict[str, Any]] = []

    def make(settings: dict[str, Any]) -> ForgetfulConsumer:
        seen.append(settings)
        return ForgetfulConsumer(settings)

    monkeypatch.setattr(kafka, "Consumer", make)
    GroupReader("127.0.0.1:1", "group", TOPIC, Silent(), among)

    names = ("queued.max.messages.kbytes", "max.partition.fetch.bytes", "fetch.wait.max.ms")
    assert tuple(seen[0][name] for name in names) == (holds_kb, fetches, waits_ms)


class Turns:
    """Knows whether somebody has a turn."""

    is_held = False

    def __enter__(self) -> None:
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False


class Watched(ForgetfulConsumer):
    """A client that has more than anybody takes, and says whether it was in a turn that it was asked for."""

    turns = Turns()
    waited: ClassVar[list[bool]] = []
    taken: ClassVar[list[tuple[int, bool]]] = []

    def poll(self, timeout_s: float) -> Message | None:
        self.waited.append(self.turns.is_held)
        return Message(0, 0)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        self.taken.append((most, self.turns.is_held))
        return [Message(0, offset) for offset in range(1, most + 1)]


@pytest.mark.parametrize(("among", "most"), [(1, 1_000), (50, 200), (500, 100)])
def test_readers_wait_for_records_at_one_time_and_take_them_in_turns(
    monkeypatch: pytest.MonkeyPatch, among: int, most: int
) -> None:
    monkeypatch.setattr(kafka, "Consumer", Watched)
    monkeypatch.setattr(kafka, "_TURNS", Watched.turns)
    Watched.waited.clear()
    Watched.taken.clear()

    records = GroupReader("127.0.0.1:1", "group", TOPIC, Silent(), among).poll(1_000, 1.0)

    assert len(records) == most
    assert Watched.waited == [False], "who waits for a record keeps nobody from taking theirs"
    assert Watched.taken == [(most - 1, True)]
