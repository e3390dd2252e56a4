"""The loop: positions move with rows or not at all, and every accident ends in folding again from the store."""

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import pytest

from waybill.kernel.errors import FencedError, TransientError, UnavailableError
from waybill.readmodel.core.records import AnomalyKind, AnomalyRow, Fact, Rows
from waybill.readmodel.ports import Batch, Bounds, Positions, RawRecord, TopicPartition
from waybill.readmodel.projector import Projector, Settings
from waybill.testing import MovableClock

PLACE: TopicPartition = ("waybill.acme.state", 0)
CAUGHT_UP = Settings(until_caught_up=True, pause_after_error_s=0.0)


class Topics:
    """Partitions in memory; a control record ends each, as a transaction leaves it."""

    def __init__(self, counts: Mapping[TopicPartition, int]) -> None:
        self.counts = dict(counts)
        self.at: dict[TopicPartition, int] = {}
        self.shown: list[dict[TopicPartition, int]] = []
        self.errors: list[Exception] = []
        self.batch = 2

    def partitions(self, tenants: Collection[str] = ()) -> dict[TopicPartition, str]:
        return {place: place[0].split(".")[1] for place in self.counts}

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {place: Bounds(first=0, end=self.counts[place] + 1) for place in partitions}

    def assign(self, positions: Positions) -> None:
        self.at = dict(positions)

    def poll(self, timeout_s: float) -> Batch:
        if self.errors:
            raise self.errors.pop(0)
        batch = Batch(records=[], reached={})
        for (topic, number), at in self.at.items():
            for offset in range(at, min(at + self.batch, self.counts[topic, number])):
                batch.records.append(
                    RawRecord(
                        topic=topic,
                        partition=number,
                        offset=offset,
                        timestamp_ms=offset,
                        key=None,
                        headers=[],
                        value=b"",
                    )
                )
                batch.reached[topic, number] = offset + 1
            if at >= self.counts[topic, number]:
                batch.reached[topic, number] = self.counts[topic, number] + 1
        self.at |= batch.reached
        return batch

    def show(self, positions: Positions, tenants: Mapping[TopicPartition, str]) -> None:
        self.shown.append(dict(positions))


class Echo:
    def decode(self, record: RawRecord, tenant: str) -> list[Fact]:
        return [
            AnomalyRow(
                tenant=tenant,
                kind=AnomalyKind.UNREADABLE,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                detail="",
                seen_at=datetime.fromtimestamp(0).astimezone(),
            )
        ]


class Memory:
    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}
        self.offsets: list[tuple[str, int, int]] = []
        self.errors: list[Exception] = []
        self.newest: dict[TopicPartition, datetime] = {}
        self.taken: frozenset[str] = frozenset()

    def claim(self, tenants: Collection[str]) -> frozenset[str]:
        return frozenset(tenants) - self.taken

    def positions(
        self, partitions: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        return {place: self.at.setdefault(place, bounds[place].first) for place in partitions}

    def apply(self, rows: Rows, before: Positions, after: Positions, newest: Mapping[TopicPartition, datetime]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if any(self.at.get(place) != before[place] for place in after):
            raise FencedError("moved")
        self.offsets += [(row.topic, row.partition, row.offset) for row in rows.anomalies]
        self.at |= after
        self.newest |= newest


def run(topics: Topics, store: Memory, settings: Settings = CAUGHT_UP, clock: MovableClock | None = None) -> Projector:
    projector = Projector(topics, store, Echo(), clock or MovableClock(), settings)
    projector.run(threading.Event())
    return projector


def test_run_until_caught_up_folds_every_record_once_and_passes_the_control_record() -> None:
    topics, store = Topics({PLACE: 5, ("waybill.zeta.state", 1): 1}), Memory()

    projector = run(topics, store)

    assert sorted(store.offsets) == [("waybill.acme.state", 0, n) for n in range(5)] + [("waybill.zeta.state", 1, 0)]
    assert projector.positions == {PLACE: 6, ("waybill.zeta.state", 1): 2}
    assert projector.records == 6


def test_second_run_begins_where_the_first_ended() -> None:
    topics, store = Topics({PLACE: 3}), Memory()
    run(topics, store)

    topics.counts[PLACE] = 5
    run(topics, store)

    assert [offset for _, _, offset in store.offsets] == [0, 1, 2, 4]  # 3 was a control record


@pytest.mark.parametrize(
    "accident",
    [TransientError("database away"), FencedError("overtaken"), UnavailableError("registry away")],
    ids=lambda error: type(error).__name__,
)
def test_accident_while_writing_folds_the_same_records_again(accident: Exception) -> None:
    topics, store = Topics({PLACE: 3}), Memory()
    store.errors = [accident]

    run(topics, store)

    assert [offset for _, _, offset in store.offsets] == [0, 1, 2]


def test_accident_while_reading_is_followed_by_a_new_assignment() -> None:
    topics, store = Topics({PLACE: 3}), Memory()
    topics.errors = [TransientError("offset out of range")]

    run(topics, store)

    assert [offset for _, _, offset in store.offsets] == [0, 1, 2]


def test_model_emptied_under_a_running_fold_is_filled_again_from_the_beginning() -> None:
    topics, store = Topics({PLACE: 4}), Memory()
    projector = run(topics, store)
    store.at, store.offsets = {}, []

    topics.counts[PLACE] = 5
    stop = threading.Event()
    projector._targets = {PLACE: 6}
    projector.run(stop)

    assert [offset for _, _, offset in store.offsets] == [0, 1, 2, 3, 4]


def test_run_until_caught_up_gives_up_when_nothing_answers() -> None:
    clock = MovableClock()

    class Dead(Topics):
        def poll(self, timeout_s: float) -> Batch:
            clock.advance(45.0)
            raise TransientError("no broker")

    with pytest.raises(UnavailableError, match="no broker"):
        run(Dead({PLACE: 1}), Memory(), clock=clock)


def test_invariants_of_ours_stop_the_loop() -> None:
    topics, store = Topics({PLACE: 1}), Memory()
    store.errors = [AssertionError("broken")]

    with pytest.raises(AssertionError):
        run(topics, store)


def test_tenant_that_another_process_folds_is_left_to_it_and_waited_for() -> None:
    theirs: TopicPartition = ("waybill.zeta.state", 0)
    topics = Topics({PLACE: 2, theirs: 2})

    class Moving(Memory):
        looks = 0

        def positions(
            self, partitions: Mapping[TopicPartition, str], bounds: Mapping[TopicPartition, Bounds]
        ) -> dict[TopicPartition, int]:
            self.looks += 1
            if self.looks == 3:
                self.at[theirs] = 3
            return super().positions(partitions, bounds)

    moving = Moving()
    moving.taken = frozenset({"zeta"})
    settings = Settings(until_caught_up=True, pause_after_error_s=0.0, poll_s=0.0)

    run(topics, moving, settings)

    assert {topic for topic, _, _ in moving.offsets} == {PLACE[0]}
    assert moving.at[theirs] == 3


def test_stop_is_obeyed_although_nothing_is_caught_up() -> None:
    topics, store = Topics({PLACE: 1}), Memory()
    stop = threading.Event()
    stop.set()

    Projector(topics, store, Echo(), MovableClock(), Settings()).run(stop)

    assert store.offsets == []


def test_positions_are_shown_to_kafka_tools() -> None:
    topics, store = Topics({PLACE: 3}), Memory()

    run(topics, store)
    run(topics, store)

    assert topics.shown[-1] == {PLACE: 4}
