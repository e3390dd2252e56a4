"""What a baseline says of each aggregate of a destination, and when nothing can be said.

| of a number is known | it has |
| --- | --- |
| acknowledged | passed |
| ended without acknowledgement, and its lane went on behind it | passed; told, as a gap resolution would |
| anything else: queued, tried again, handed over, or an end that halts its lane | not passed |

`next` is the lowest number that has not passed, and one above the highest where all have. Numbers below it that may
still be sent are told *deferred*; numbers above it that will not come in their turn are told too, since a listener that
is new was never told of them. An aggregate whose first number has not passed needs no word: every listener begins with 1.

Nothing is stated of a lane whose head is `ambiguous`: whether the destination did it is what the lane waits to learn, and
a baseline would answer it by chance. Nor of one with a hole, or with a number that two deliveries have.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from waybill.contracts.baseline import MAX_PARTS, LaneStart, render_lanes
from waybill.contracts.envelope import GapEntry, Resolution
from waybill.contracts.fabric import Timeouts
from waybill.contracts.states import State
from waybill.delivery.core.controls.standing import Control, Standing
from waybill.delivery.core.gaps import FOR_GOOD
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, DeliveryId

__all__ = ["PART_BYTES", "SETTLE", "Number", "Stated", "check_standing", "cut", "state_lanes"]

#: The data of a part are no longer than this; a listener reads bodies of 1 MiB.
PART_BYTES: Final = 262_144
#: How long workers may take to follow a pause, beside what is in flight then.
SETTLE: Final = timedelta(seconds=10)
_ENDED: Final = frozenset({State.AMBIGUOUS, State.FAILED, State.EXCEPTION, State.DEAD_LETTER})
_AT_REST: Final = frozenset({Standing.PAUSED, Standing.DRAINING, Standing.CLOSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One delivery that is not acknowledged."""

    aggregate: str
    sequence: int
    delivery_id: uuid.UUID
    state: State
    detail: str | None
    expires_at: datetime | None
    #: Whether its row, or that of its gap resolution, holds its lane; None where it has none.
    blocks: bool | None

    @property
    def has_passed(self) -> bool:
        """Whether its lane went on behind it."""
        return self.state in _ENDED if self.blocks is None else not self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What can be said, and of whom nothing can."""

    #: Ascending by aggregate.
    lanes: tuple[LaneStart, ...]
    #: By aggregate, why nothing can be said of it.
    doubts: Mapping[str, str]


def state_lanes(tops: Mapping[str, int], numbers: Iterable[Number], broken: Collection[str], now: datetime) -> Stated:
    """State where every aggregate of a destination goes on.

    Args:
        tops: by aggregate, its highest number.
        numbers: every delivery of them that is not acknowledged.
        broken: aggregates with a hole, or with a number that two deliveries have.
        now: what has expired by then is never sent again.
    """
    by_lane: dict[str, list[Number]] = defaultdict(list)
    for number in numbers:
        by_lane[number.aggregate].append(number)
    lanes: list[LaneStart] = []
    doubts: dict[str, str] = {}
    for aggregate in sorted(tops.keys() | by_lane.keys()):
        listed = sorted(by_lane[aggregate], key=lambda each: each.sequence)
        if aggregate in broken:
            doubts[aggregate] = (
                "a number is missing or has two deliveries: `waybill deliveries list --anomalies` tells which"
            )
            continue
        head = next((each for each in listed if not each.has_passed), None)
        if head is not None and head.state is State.AMBIGUOUS:
            doubts[aggregate] = f"nobody knows whether {head.sequence} was done: settle {head.delivery_id} first"
            continue
        following = head.sequence if head is not None else max([tops.get(aggregate, 0), *_sequences(listed)]) + 1
        told = tuple(entry for each in listed if (entry := _entry(each, following, now)) is not None)
        if following > 1 or told:
            lanes.append(LaneStart(aggregate=Aggregate(aggregate), next=following, told=told))
    return Stated(lanes=tuple(lanes), doubts=doubts)


def _sequences(listed: Iterable[Number]) -> list[int]:
    return [each.sequence for each in listed]


def _entry(number: Number, following: int, now: datetime) -> GapEntry | None:
    """Return what a listener is told of a number; None where its place says everything."""
    if not number.has_passed:
        return None
    is_over = number.expires_at is None or number.expires_at <= now or number.detail in FOR_GOOD
    if is_over and number.sequence < following:
        return None
    resolution = Resolution.FINAL if is_over else Resolution.DEFERRED
    return GapEntry(sequence=number.sequence, delivery_id=DeliveryId(number.delivery_id), resolution=resolution)


def cut(lanes: Sequence[LaneStart], limit: int = PART_BYTES) -> tuple[bytes, ...]:
    """Return the data of the parts of a statement, in order.

    Raises:
        ConfigError: nothing to state, too much for one statement, or one aggregate alone is too much for a part.
    """
    parts: list[bytes] = []
    held: list[LaneStart] = []
    size = 0
    for lane in lanes:
        length = len(render_lanes([lane]))
        if length > limit:
            raise ConfigError(
                f"aggregate {lane.aggregate} has {len(lane.told)} deliveries that were passed over, too many to tell of: "
                "redrive or cancel some of them first"
            )
        if held and size + length > limit:
            parts.append(render_lanes(held))
            held, size = [], 0
        held.append(lane)
        size += length
    if held:
        parts.append(render_lanes(held))
    if not parts:
        raise ConfigError(
            "no aggregate has a delivery here yet: a listener that is new begins with 1, without a baseline"
        )
    if len(parts) > MAX_PARTS:
        raise ConfigError(f"a statement has at most {MAX_PARTS} parts, this one would have {len(parts)}")
    return tuple(parts)


def check_standing(control: Control | None, timeouts: Timeouts, now: datetime) -> None:
    """Refuse a destination that may be attempted, or was a moment ago: its lanes would move away from the statement.

    Args:
        control: what is in force.
        timeouts: of the destination.
        now: UTC.

    Raises:
        ConfigError: says what to do, or how long to wait.
    """
    if control is None or control.standing not in _AT_REST:
        raise ConfigError(
            "the destination is being attempted, so that its sequences move: `waybill destinations pause` it first"
        )
    left = control.at + timedelta(seconds=timeouts.total_s) + SETTLE - now
    if left > timedelta(0):
        raise ConfigError(
            f"attempts of before the pause may still be under way: try again in {left.total_seconds():.0f} s"
        )
