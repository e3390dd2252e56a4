"""What a lane does behind a row that waits for people."""

import pytest

from waybill.contracts.states import State
from waybill.delivery.core.lanes import Item, Lane, Limits, PartitionLanes

pytestmark = pytest.mark.requirement("DC-22", "GW-17")


def item(offset: int, sequence: int) -> Item:
    made = Item(offset, "subject/1", sequence, (b"subject/1", [], b""))
    made.delivery_id = f"delivery-{sequence}"
    return made


@pytest.fixture
def lanes() -> PartitionLanes:
    return PartitionLanes(0, Limits())


@pytest.fixture
def halted(lanes: PartitionLanes) -> Lane:
    """A lane whose head, number 5, failed and waits in its row."""
    head = item(10, 5)
    lanes.admit(head)
    lane = lanes.ready.popleft()
    head.state = State.FAILED
    lanes.to_rows(lane)
    lanes.stored(lane, head, is_repeat=False)
    lanes.row_halted(lane, head)
    return lane


def test_what_comes_after_a_halted_head_is_stored_and_not_worked_on(lanes: PartitionLanes, halted: Lane) -> None:
    follower = item(11, 6)

    assert lanes.admit(follower) == (follower,), "it becomes a row at once"
    lanes.stored(halted, follower, is_repeat=False)

    assert (halted.halted, lanes.loads, list(lanes.ready)) == (True, [], [])
    assert lanes.base() == lanes.position
    assert lanes.memory.records == 0


def test_what_comes_before_a_halted_head_is_worked_on_when_a_crash_brings_it_again(
    lanes: PartitionLanes, halted: Lane
) -> None:
    earlier = item(9, 4)
    lanes.admit(earlier)
    lanes.stored(halted, earlier, is_repeat=False)

    assert lanes.loads == [halted], "its rows are read again"
    lanes.loads.clear()
    lanes.fed(halted, [earlier], halted_at=None)
    assert list(lanes.ready) == [halted]
    assert halted.head is earlier

    lanes.ready.clear()
    lanes.row_closed(halted, earlier)
    assert lanes.loads == [halted]
    lanes.loads.clear()
    lanes.fed(halted, [], halted_at=5)
    assert (halted.halted, lanes.loads, list(lanes.ready)) == (True, [], [])


def test_what_comes_before_a_head_and_is_stored_while_it_is_under_way_is_worked_on_when_the_head_halts(
    lanes: PartitionLanes,
) -> None:
    head, earlier = item(10, 5), item(11, 1)  # the relay offers an old one again
    lanes.admit(head)
    lane = lanes.ready.popleft()
    head.state = State.FAILED
    lanes.to_rows(lane)
    lanes.stored(lane, head, is_repeat=False)
    lanes.admit(earlier)
    lanes.stored(lane, earlier, is_repeat=False)

    lanes.row_halted(lane, head)

    assert (lane.halted, lanes.loads) == (False, [lane]), "its rows are read again"


def test_a_lane_that_is_found_halted_stays_so(lanes: PartitionLanes) -> None:
    lanes.adopt("subject/1", 2)
    (lane,) = lanes.loads
    lanes.loads.clear()
    lanes.fed(lane, [], halted_at=5)
    follower = item(11, 6)
    lanes.admit(follower)
    lanes.stored(lane, follower, is_repeat=False)

    assert (lane.halted, lanes.loads, list(lanes.ready)) == (True, [], [])


@pytest.mark.requirement("DC-8")
def test_only_the_first_row_of_a_lane_taken_from_somebody_may_have_been_under_way(lanes: PartitionLanes) -> None:
    lanes.adopt("subject/1", 2, in_doubt=True)
    (lane,) = lanes.loads
    first, second = item(3, 1), item(4, 2)
    lanes.fed(lane, [first, second], halted_at=None)

    assert [(one.sent, one.may_have_acted) for one in (first, second)] == [(True, True), (False, False)]


def busy(lanes: PartitionLanes, aggregate: str, first: int, count: int) -> None:
    for offset in range(first, first + count):
        made = Item(offset, aggregate, offset + 1, (aggregate.encode(), [], b""))
        made.delivery_id = f"{aggregate}-{offset}"
        lanes.admit(made)


def test_a_hot_key_becomes_rows_when_it_keeps_others_from_being_read() -> None:
    lanes = PartitionLanes(0, Limits(max_records=80))
    busy(lanes, "subject/hot", 0, 70)
    assert lanes.crowding() == [], "there is room: it stays on the happy path"

    busy(lanes, "subject/calm", 70, 10)
    hot = lanes.lanes["subject/hot"]
    assert (lanes.memory.is_over, lanes.crowding()) == (True, [hot])

    stored = lanes.to_rows(hot)
    for written in stored:
        lanes.stored(hot, written, is_repeat=False)
    assert [entry.sequence for entry in stored] == list(range(1, 71))
    assert (lanes.memory.has_room, lanes.crowding()) == (True, [])
    assert lanes.base() == 70, "the offset waits for the others alone"


def test_many_calm_keys_crowd_nobody() -> None:
    lanes = PartitionLanes(0, Limits(max_records=80))
    for number in range(20):
        busy(lanes, f"subject/{number}", number * 5, 5)

    assert (lanes.memory.is_over, lanes.crowding()) == (True, []), "reading stops, Kafka is the buffer"


def loaded(lanes: PartitionLanes, aggregate: str, count: int) -> Lane:
    """A lane taken over with rows, the next of which were read."""
    lane = lanes.adopt(aggregate, count)
    lanes.loads.remove(lane)
    rows = [Item(number, aggregate, number + 1, (aggregate.encode(), [], b"")) for number in range(count)]
    lanes.fed(lane, rows, halted_at=None)
    return lane


def test_a_lane_whose_row_is_not_due_for_long_holds_nothing_and_is_read_again(lanes: PartitionLanes) -> None:
    lane = loaded(lanes, "subject/1", 3)
    head = lanes.ready.popleft().head
    assert head is not None

    lanes.rest(lane, head)
    assert (lane.asleep, lanes.memory.records, lanes.memory.size) == (True, 0, 0)

    follower = item(9, 9)
    assert lanes.admit(follower) == (follower,), "what comes meanwhile is stored behind it"
    lanes.stored(lane, follower, is_repeat=False)
    assert (list(lanes.ready), lanes.loads) == ([], [])

    lanes.rouse(lane)
    assert lanes.loads == [lane]


def test_rows_that_are_due_leave_room_for_what_is_read() -> None:
    lanes = PartitionLanes(0, Limits(max_records=40))
    for number in range(10):
        assert lanes.memory.may_feed
        loaded(lanes, f"subject/{number}", 1)

    assert not lanes.memory.may_feed
    assert lanes.memory.has_room, "others are still read"
    lane = lanes.ready.popleft()
    assert lane.head is not None
    lanes.row_closed(lane, lane.head)
    assert lanes.memory.may_feed
