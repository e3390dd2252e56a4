"""A batch of many partitions: shares of a bounded size, each told when its own transaction has ended."""

import threading
from collections.abc import Iterable, Sequence
from typing import cast

import pytest

from waybill.delivery.committer import Committer, Pace
from waybill.infra.clock import SystemClock
from waybill.infra.kafka import OffsetMove, Outgoing, TransactionalProducer
from waybill.infra.strand import ThreadStrand
from waybill.testing.waiting import eventually_async


class Partition:
    """Remembers what it is told."""

    is_dropped = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.was_carried = threading.Event()

    def offset_move(self) -> OffsetMove:
        return OffsetMove(object(), "waybill.acme.commands", self.number, 1, "")

    def carried(self, started: float, move: OffsetMove) -> None:
        self.was_carried.set()

    def refused(self) -> None:
        raise AssertionError("nobody else owns it")


class Producer:
    """Commits; a transaction goes on only when the one before was told."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = partitions
        self.shares: list[list[int]] = []

    def commit(self, records: Iterable[Outgoing], offsets: Sequence[OffsetMove]) -> None:
        for partition in self._partitions[: sum(map(len, self.shares))]:
            assert partition.was_carried.wait(5), f"{partition.number} is committed and was not told"
        self.shares.append([move.partition for move in offsets])

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.requirement("DC-23")
async def test_a_batch_of_many_partitions_tells_each_share_before_the_next_transaction_ends() -> None:
    partitions = [Partition(number) for number in range(5)]
    producer = Producer(partitions)
    broken: list[BaseException] = []
    committer = Committer(
        lambda: cast("TransactionalProducer", producer),
        SystemClock(),
        broken.append,
        ThreadStrand("commit"),
        Pace(interval_s=0.0, max_partitions=2),
    )
    committer.start()

    for partition in partitions:
        committer.carry(partition)
    await eventually_async(lambda: partitions[-1].was_carried.is_set() or broken)
    await committer.close()

    assert broken == []
    assert producer.shares == [[0, 1], [2, 3], [4]]
