"""The laws of the lanes over random reads, answers, slow attempts, database delays, repeats and crashes.

The machine plays the shell: it dispatches heads, answers them, writes rows in order and takes over after a crash
with nothing but the committed offset and the rows. The database here is a dict, its writes happen when a rule says.
"""

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from waybill.contracts.states import State
from waybill.delivery.core.lanes import HALTING, Held, Item, Lane, Limits, PartitionLanes

pytestmark = pytest.mark.requirement("DC-22", "GW-17")


@dataclass
class Row:
    """One row of the pretended database."""

    offset: int
    aggregate: str
    sequence: int
    state: State

    @property
    def blocks(self) -> bool:
        return self.state is not State.ACKNOWLEDGED


class Lanes(RuleBasedStateMachine):
    """One partition, its owner, its database."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str, int] | None] = []
        self.sequences: dict[str, int] = defaultdict(int)
        self.rows: dict[str, Row] = {}
        self.acknowledged: set[str] = set()
        self.first_attempts: dict[str, list[int]] = defaultdict(list)
        self.attempted: set[str] = set()
        self.committed = 0
        self.take_over()

    # The shell

    def take_over(self) -> None:
        self.lanes = PartitionLanes(self.committed, Limits(max_records=4))
        self.read_to = self.committed
        self.inflight: dict[Item, Lane] = {}
        self.waiting: list[Lane] = []
        self.resting: list[Lane] = []
        self.inserts: list[tuple[Lane, Item, State]] = []
        self.moves: list[tuple[Lane, Item, State]] = []
        self.known = set(self.rows)
        counts: dict[str, int] = defaultdict(int)
        for row in self.rows.values():
            counts[row.aggregate] += row.blocks
        for aggregate, count in counts.items():
            if count:
                self.lanes.adopt(aggregate, count)
        self.pump()

    def pump(self) -> None:
        while self.lanes.ready:
            self.waiting.append(self.lanes.ready.popleft())

    def store(self, lane: Lane, items: object) -> None:
        self.inserts.extend((lane, item, item.state) for item in items)  # type: ignore[attr-defined]

    # What happens

    @rule(aggregate=st.sampled_from("ABC"))
    def a_command_is_committed(self, aggregate: str) -> None:
        self.sequences[aggregate] += 1
        self.log.append((f"{aggregate}{self.sequences[aggregate]}", aggregate, self.sequences[aggregate]))

    @rule()
    def somebody_elses_record(self) -> None:
        self.log.append(None)

    @precondition(lambda self: any(self.log))
    @rule(data=st.data())
    def the_relay_repeats(self, data: st.DataObject) -> None:
        self.log.append(data.draw(st.sampled_from([record for record in self.log if record])))

    @precondition(lambda self: self.read_to < len(self.log))
    @rule(count=st.integers(1, 5))
    def a_batch_is_read(self, count: int) -> None:
        for offset in range(self.read_to, min(self.read_to + count, len(self.log))):
            record = self.log[offset]
            if record is not None:
                delivery, aggregate, sequence = record
                item = Item(offset, aggregate, sequence, (aggregate.encode(), [], b""))
                item.delivery_id = delivery
                writes = self.lanes.admit(item, is_known=delivery in self.known)
                self.store(self.lanes.lanes[aggregate], writes)
            self.lanes.position = self.read_to = offset + 1
        self.pump()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_head_is_attempted(self, data: st.DataObject) -> None:
        lane = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        item = lane.head
        assert item is not None
        assert lane.aggregate not in {other.aggregate for other in self.inflight.values()}, "I2"
        earlier = [r for r in self.log[: item.offset] if r and r[1] == item.aggregate and r[2] < item.sequence]
        assert {r[0] for r in earlier} <= self.acknowledged, "I3: an earlier one is not acknowledged"
        if item.delivery_id not in self.attempted:
            self.attempted.add(str(item.delivery_id))
            self.first_attempts[item.aggregate].append(item.sequence)
        self.inflight[item] = lane

    @precondition(lambda self: self.inflight)
    @rule(data=st.data(), end=st.sampled_from(["ack", "ack", "hot", "retry", "fail"]))
    def an_answer_comes(self, data: st.DataObject, end: str) -> None:
        item = data.draw(st.sampled_from(sorted(self.inflight, key=lambda i: i.offset)))
        lane = self.inflight.pop(item)
        self.answer(lane, item, end)
        self.pump()

    def answer(self, lane: Lane, item: Item, end: str) -> None:
        if item.held is Held.REPEAT:
            self.lanes.repeat_done(lane, item)
        elif end == "ack":
            self.acknowledged.add(str(item.delivery_id))
            if item.held is Held.MEMORY:
                self.lanes.settle(lane, item)
            else:
                self.moves.append((lane, item, State.ACKNOWLEDGED))
        elif end == "hot" and item.held is Held.MEMORY:
            self.waiting.append(lane)
        else:
            target = State.FAILED if end == "fail" and item.delivery_id not in self.acknowledged else State.RETRYING
            if item.held is Held.MEMORY:
                item.state, item.version = target, item.version + 1
                self.store(lane, self.lanes.to_rows(lane))
            else:
                self.moves.append((lane, item, target))

    @precondition(lambda self: any(item.held is Held.MEMORY for item in self.inflight))
    @rule()
    def an_attempt_is_slow(self) -> None:
        item = next(item for item in self.inflight if item.held is Held.MEMORY)
        lane = self.inflight[item]
        self.store(lane, self.lanes.to_rows(lane))

    @precondition(lambda self: any(lane.head and lane.head.held is Held.ROW for lane in self.waiting))
    @rule()
    def a_row_is_not_due_for_long(self) -> None:
        lane = next(lane for lane in self.waiting if lane.head and lane.head.held is Held.ROW)
        self.waiting.remove(lane)
        assert lane.head is not None
        self.lanes.rest(lane, lane.head)
        self.resting.append(lane)

    @precondition(lambda self: self.resting)
    @rule()
    def its_time_comes(self) -> None:
        self.lanes.rouse(self.resting.pop(0))
        self.pump()

    @precondition(lambda self: self.lanes.crowding())
    @rule()
    def a_hot_key_makes_room(self) -> None:
        for lane in self.lanes.crowding():
            self.store(lane, self.lanes.to_rows(lane))
        assert not self.lanes.crowding()

    @precondition(lambda self: self.inserts or self.moves or self.lanes.loads)
    @rule(count=st.integers(1, 4))
    def the_database_works(self, count: int) -> None:
        for _ in range(count):
            if self.inserts:
                self.insert(*self.inserts.pop(0))
            elif self.moves:
                self.move(*self.moves.pop(0))
            elif self.lanes.loads:
                self.feed(self.lanes.loads.pop(0))
        self.pump()

    def insert(self, lane: Lane, item: Item, state: State) -> None:
        there = self.rows.setdefault(str(item.delivery_id), Row(item.offset, item.aggregate, item.sequence, state))
        is_repeat = there.offset != item.offset
        is_head = lane.head is item
        self.known.add(str(item.delivery_id))
        self.lanes.stored(lane, item, is_repeat=is_repeat)
        if is_repeat and is_head and state is not State.QUEUED:
            self.lanes.repeat_done(lane, item)
        elif not is_repeat and is_head and state is not State.QUEUED:
            self.after(lane, item, state)

    def move(self, lane: Lane, item: Item, state: State) -> None:
        if item.held is Held.REPEAT:
            self.lanes.repeat_done(lane, item)
            return
        self.rows[str(item.delivery_id)].state = state
        self.after(lane, item, state)

    def after(self, lane: Lane, item: Item, state: State) -> None:
        if state is State.ACKNOWLEDGED:
            self.lanes.row_closed(lane, item)
        elif state is State.RETRYING:
            self.waiting.append(lane)
        else:
            self.lanes.row_halted(lane, item)

    def feed(self, lane: Lane) -> None:
        rows = sorted(
            ((r.sequence, r.offset, d, r) for d, r in self.rows.items() if r.blocks and r.aggregate == lane.aggregate),
            key=lambda entry: entry[:3],
        )[:2]
        items, halted_at = [], None
        for sequence, offset, delivery, row in rows:
            if row.state in HALTING:
                halted_at = sequence
                break
            item = Item(offset, row.aggregate, sequence, (row.aggregate.encode(), [], b""))
            item.delivery_id, item.state = delivery, row.state
            items.append(item)
        self.lanes.fed(lane, items, halted_at=halted_at)

    @rule()
    def a_transaction_commits(self) -> None:
        base = self.lanes.base()
        assert base >= self.committed, "an offset never goes back"
        self.committed = base

    @rule()
    def the_owner_crashes_and_another_takes_over(self) -> None:
        self.take_over()

    # The laws

    @invariant()
    def i1_the_base_passes_only_what_is_settled_stored_or_not_ours(self) -> None:
        for record in self.log[: self.lanes.base()]:
            assert record is None or record[0] in self.acknowledged or record[0] in self.rows

    @invariant()
    def i3_first_attempts_follow_the_records(self) -> None:
        for sequences in self.first_attempts.values():
            assert sequences == sorted(sequences)

    @invariant()
    def i5_the_counts_are_what_is_held(self) -> None:
        held = set(self.lanes.outstanding.values())
        for lane in self.lanes.lanes.values():
            held.update(lane.feed)
            if lane.head is not None:
                held.add(lane.head)
        assert self.lanes.memory.records == len(held)
        assert self.lanes.memory.size == sum(item.size for item in held)
        assert self.lanes.memory.fed == sum(item.is_fed for item in held)

    @invariant()
    def i10_a_lane_in_memory_has_no_blocking_row(self) -> None:
        for lane in self.lanes.lanes.values():
            if lane.head is not None and lane.head.held is Held.MEMORY:
                assert not any(row.blocks and row.aggregate == lane.aggregate for row in self.rows.values())

    def teardown(self) -> None:
        """I4: when everybody answers, everything that no failure halts is settled and nothing is held."""
        for _ in range(10_000):
            if self.waiting:
                lane = self.waiting.pop()
                assert lane.head is not None
                self.inflight[lane.head] = lane
            elif self.inflight:
                item = next(iter(self.inflight))
                self.answer(self.inflight.pop(item), item, "ack")
                self.pump()
            elif self.inserts or self.moves or self.lanes.loads:
                self.the_database_works(1)
            elif self.resting:
                self.its_time_comes()
            elif self.read_to < len(self.log):
                self.a_batch_is_read(5)
            else:
                break
        halted = {row.aggregate for row in self.rows.values() if row.state in HALTING}
        assert self.lanes.base() == len(self.log)
        assert self.lanes.memory.records == 0
        assert {lane.aggregate for lane in self.lanes.lanes.values()} <= halted
        for row in self.rows.values():
            if row.blocks and row.state not in HALTING:
                assert any(
                    other.state in HALTING and other.aggregate == row.aggregate and other.sequence < row.sequence
                    for other in self.rows.values()
                ), "left behind nothing that halts it"


Lanes.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLanes = Lanes.TestCase
