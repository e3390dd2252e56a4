"""Lanes that must not go on while their rows are changed by something else than an attempt.

- `end_head` … `reload`: the head ended, and a gap resolution takes its place;
- `renew`: what was settled before its time, without an attempt;
- `hold` … `release`: people decided about one of the lane's deliveries. Nothing of a held lane starts, records that
  arrive wait in memory, and `release` begins anew from the rows, whatever became of them.

What breaks otherwise: the next delivery is sent before the listener knows that this one will not come, or a delivery
is sent while it is cancelled.
"""

from collections import deque
from collections.abc import Sequence

from waybill.delivery.core.lanes import Held, Item, Lane, PartitionLanes

__all__ = ["end_head", "has_memory", "hold", "release", "reload", "renew", "stop_loading", "wait_for_rows"]


def end_head(lanes: PartitionLanes, lane: Lane, item: Item) -> None:
    """Learn that the head's row ended otherwise than acknowledged: nothing of its lane goes on until `reload`."""
    lanes.drop_head(lane, item)
    wait_for_rows(lanes, lane)


def wait_for_rows(lanes: PartitionLanes, lane: Lane) -> None:
    """Let a lane without a head stand until `reload`: its next rows are about to be others."""
    lanes.drop_feed(lane)
    lane.loading = True


def reload(lanes: PartitionLanes, lane: Lane) -> None:
    """Ask for a lane's rows anew."""
    lanes.loads.append(lane)


def hold(lanes: PartitionLanes, aggregate: str) -> Lane:
    """Let nothing of an aggregate start until `release`; what is under way goes on."""
    lane = lanes.lanes.get(aggregate)
    if lane is None:
        lane = lanes.lanes[aggregate] = Lane(aggregate)
    lane.held = True
    return lane


def stop_loading(lanes: PartitionLanes, lane: Lane) -> None:
    """Take back that a held lane wants its rows, while nobody reads any: there may be no room for them for long."""
    if lane.loading and lane in lanes.loads:
        lanes.loads.remove(lane)
        lane.loading = False


def renew(lanes: PartitionLanes, lane: Lane) -> Lane:
    """Put another lane in the place of one at rest: whoever would rouse the old one finds it without a head."""
    fresh = Lane(lane.aggregate)
    for name in Lane.__slots__:
        setattr(fresh, name, getattr(lane, name))
    lane.head, lane.waiting, lane.feed, lane.asleep = None, deque(), deque(), False
    lanes.lanes[lane.aggregate] = fresh
    return fresh


def has_memory(lane: Lane) -> bool:
    """Whether something of a lane is in memory only."""
    return bool(lane.waiting) or (lane.head is not None and lane.head.held is Held.MEMORY)


def release(lanes: PartitionLanes, held: Lane, rows: int) -> Sequence[Item]:
    """Let a held lane go on from its rows; return what arrived meanwhile and must become rows now, oldest first.

    Another lane takes its place: whoever still waits with the old one finds it without a head.

    Args:
        lanes: of its partition.
        held: nothing of it is under way, written or loaded.
        rows: how many rows block its aggregate now.
    """
    first = held.head or next(iter(held.feed), None)
    in_doubt = held.in_doubt or (first is not None and first.held is Held.ROW and first.sent)
    if held.head is not None:
        lanes.memory.release(held.head)
        held.head = None
    lanes.drop_feed(held)
    held.asleep = False  # who would rouse it finds nothing to do
    lane = lanes.lanes[held.aggregate] = Lane(held.aggregate)
    lane.rows, lane.in_doubt, lane.waiting = rows, in_doubt, held.waiting
    writes = lanes.to_rows(lane) if lane.waiting else ()
    lanes.wake(lane)
    return writes
