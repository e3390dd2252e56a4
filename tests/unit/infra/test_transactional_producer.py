"""Offsets that share their proof of ownership go in one call, and a refusal names the one partition it is about."""

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from waybill.infra import kafka
from waybill.infra.kafka import OffsetMove, OffsetRefusedError, Outgoing, TransactionalProducer

pytestmark = pytest.mark.requirement("DC-23")
TOPIC = "waybill.acme.commands"
Call = tuple[object, list[int]]


class Brokers:
    """The client as far as a transaction needs it; refuses the offsets of some partitions."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        #: Who was refused is not the next time.
        self.forgives = False
        self.calls: list[Call] = []
        self.records: list[bytes] = []
        self.committed: list[tuple[list[Call], list[bytes]]] = []

    def init_transactions(self, timeout_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self.calls, self.records = [], []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        self.records.append(value)

    def flush(self, timeout_s: float) -> int:
        return 0

    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], proof: object, timeout_s: float) -> None:
        if any(each.partition in self.refused for each in offsets):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "refused", False, False, True))
        self.calls.append((proof, [each.partition for each in offsets]))

    def abort_transaction(self, timeout_s: float) -> None:
        self.calls, self.records = [], []
        if self.forgives:
            self.refused = ()

    def commit_transaction(self, timeout_s: float) -> None:
        self.committed.append((self.calls, self.records))


Make = Callable[..., tuple[TransactionalProducer, Brokers]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(*refused: int) -> tuple[TransactionalProducer, Brokers]:
        brokers = Brokers(*refused)
        monkeypatch.setattr(kafka, "Producer", lambda _: brokers)
        return TransactionalProducer("127.0.0.1:1", "waybill.slot"), brokers

    return made


def move(partition: int, proof: bytes = b"one") -> OffsetMove:
    return OffsetMove(proof, TOPIC, partition, 7, "note")


def record(value: bytes) -> Outgoing:
    return Outgoing("outcomes", 0, b"key", value)


def test_offsets_of_one_assignment_go_in_one_call_and_others_in_their_own(make: Make) -> None:
    producer, brokers = make()
    moves = [move(0), move(1, b"two"), move(2), move(3, b"two"), move(4)]

    producer.commit([record(b"a")], moves)

    assert brokers.committed == [([(b"one", [0, 2, 4]), (b"two", [1, 3])], [b"a"])]


def test_topics_do_not_share_a_call(make: Make) -> None:
    producer, brokers = make()
    other = move(1)._replace(topic="waybill.globex.commands")

    producer.commit([], [move(0), other])

    assert brokers.committed == [([(b"one", [0]), (b"one", [1])], [])]


@pytest.mark.parametrize(("refused", "index"), [(0, 0), (2, 1), (4, 2)])
def test_a_refusal_among_several_names_the_one_that_is_not_ours(make: Make, refused: int, index: int) -> None:
    producer, brokers = make(refused)

    with pytest.raises(OffsetRefusedError) as told:
        producer.commit(iter([record(b"a")]), [move(0), move(2), move(4)])

    assert told.value.index == index
    assert f"[{refused}]" in str(told.value)
    assert brokers.committed == []


def test_a_refusal_that_was_over_by_the_second_try_loses_no_record(make: Make) -> None:
    producer, brokers = make(2)
    brokers.forgives = True

    producer.commit(iter([record(b"a"), record(b"b")]), [move(0), move(2)])

    assert brokers.committed == [([(b"one", [0]), (b"one", [2])], [b"a", b"b"])]
