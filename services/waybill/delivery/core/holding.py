"""Lanes that must not go on while their rows are changed by something else than an attempt.

`end_head` … `reload`: the head ended, and a gap resolution takes its place.

What breaks otherwise: the next delivery is sent before the listener knows that this one will not come.
"""

from waybill.delivery.core.lanes import Item, Lane, PartitionLanes

__all__ = ["end_head", "reload", "wait_for_rows"]


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
