"""The watch over partitions: says when one is stuck, tells what its owner holds, and fails the health check.

The rule is `core.controls.stuck`; here is what is looked at, every few seconds.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from waybill.delivery.actor import PartitionActor
from waybill.delivery.committer import Committer
from waybill.delivery.core.controls.stuck import Sight, Watch
from waybill.delivery.core.lanes import Lane
from waybill.delivery.group import DestinationGroup
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["StuckWatch"]

_EVERY_S: Final = 5.0
#: Brokers that failed so lately excuse everybody.
_FAILED_S: Final = 30.0
#: Lanes the log tells of.
_LANES: Final = 20


class StuckWatch:
    """Looks at every partition of a worker; lives on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watches: dict[PartitionActor, Watch] = {}
        self._looked_at = 0.0
        self._failures, self._failed_at = 0, float("-inf")
        self._log = get_logger("delivery")
        #: Partitions that are stuck, by destination; read from the thread that answers `/healthz`.
        self.stuck: dict[tuple[str, str], int] = {}

    def look(self, groups: Mapping[tuple[str, str], DestinationGroup], committer: Committer) -> None:
        """Look at every partition, unless that was done a moment ago."""
        mono, now = self._clock.monotonic(), self._clock.now()
        if mono - self._looked_at < _EVERY_S:
            return
        self._looked_at = mono
        if committer.failures != self._failures:
            self._failures, self._failed_at = committer.failures, mono
        is_away = not committer.is_connected or mono - self._failed_at < _FAILED_S
        watches: dict[PartitionActor, Watch] = {}
        stuck: dict[tuple[str, str], int] = {}
        for key, group in groups.items():
            is_excused = is_away or _is_restricted(group)
            for actor in group.actors.values():
                watch = watches[actor] = self._watches.get(actor) or Watch()
                sight = _sight(actor, now, is_excused=is_excused)
                if watch.look(sight, mono):
                    stuck[key] = stuck.get(key, 0) + 1
                    self._tell(key, actor, sight, now)
        self._watches, self.stuck = watches, stuck

    def _tell(self, key: tuple[str, str], actor: PartitionActor, sight: Sight, now: datetime) -> None:
        lanes = islice((lane for lane in actor.lanes.lanes.values() if _is_live(lane, now)), _LANES)
        self._log.error(
            "partition.stuck",
            tenant=key[0],
            destination=key[1],
            partition=actor.partition,
            epoch=str(actor.owned.epoch),
            base=sight.base,
            position=sight.position,
            held=sight.held,
            unsettled=sight.unsettled,
            rows_waiting=actor.settler.rows.waiting,
            lanes=[_told(lane) for lane in lanes],
        )


def _is_restricted(group: DestinationGroup) -> bool:
    """Whether something known keeps attempts of a destination back."""
    senders = group.senders
    is_busy = senders.inflight >= group.target.config.concurrency
    return senders.valve.is_limited or is_busy or bool(senders.ghosts) or group.problem is not None


def _sight(actor: PartitionActor, now: datetime, *, is_excused: bool) -> Sight:
    lanes, rows = actor.lanes, actor.settler.rows
    is_excused = is_excused or not actor.is_taken or actor.is_closing or rows.is_failing
    is_idle = actor.inflight == 0 and not is_excused
    return Sight(
        base=lanes.base(),
        position=lanes.position,
        held=lanes.memory.records,
        unsettled=lanes.unsettled,
        inflight=actor.inflight,
        has_live_lane=is_idle and _any_live(lanes.lanes.values(), now),
        is_excused=is_excused,
    )


def _any_live(lanes: Iterable[Lane], now: datetime) -> bool:
    return any(_is_live(lane, now) for lane in lanes)


def _is_live(lane: Lane, now: datetime) -> bool:
    """Whether a lane waits for no time and for nobody."""
    if lane.halted or lane.asleep:
        return False
    return lane.head is None or lane.head.next_due is None or lane.head.next_due <= now


def _told(lane: Lane) -> dict[str, Any]:
    head = lane.head
    return {
        "delivery_id": head.delivery_id if head else None,
        "offset": head.offset if head else None,
        "held": head.held.value if head else None,
        "state": head.state.value if head else None,
        "waiting": len(lane.waiting),
        "rows": lane.rows,
        "writing": lane.writing,
        "loading": lane.loading,
    }
