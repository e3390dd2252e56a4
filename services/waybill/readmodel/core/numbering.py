"""Whether the numbers of every (aggregate, destination) are 1..n, each with one delivery (DC-7).

The numbers are given under the aggregate's row lock at the outbox insert and travel in one partition, so they
arrive in order. A jump is a hole: lost rows, until `relay recover` brings them. A number that comes again with
another delivery id is a producer database that went back in time. A number that comes again with the same
delivery is the relay's right to repeat. If this check were missing, a listener would wait for ever, or take a
reused number for a repeat, and nobody would know why.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from waybill.readmodel.core.records import AnomalyKind, AnomalyRow, DeliveryRow, Topic

__all__ = ["Known", "Lane", "Verdict", "check_numbers", "lane_of"]

#: (tenant, aggregate, destination)
Lane = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier batches left, for the lanes of this one."""

    tops: Mapping[Lane, int]
    #: Who has a number, for numbers at or below the top.
    holders: Mapping[tuple[Lane, int], uuid.UUID]
    #: Open holes by lane.
    holes: Mapping[Lane, tuple[AnomalyRow, ...]]
    #: (tenant, partition) whose first records had expired before the fold began: a first number above 1 is no hole.
    truncated: frozenset[tuple[str, int]] = frozenset()


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What this batch changes."""

    tops: dict[Lane, int] = field(default_factory=dict)
    #: New anomalies, and known holes that shrank or closed.
    anomalies: list[AnomalyRow] = field(default_factory=list)


def lane_of(row: DeliveryRow) -> Lane:
    """Return whose numbers a row takes part in."""
    return (row.tenant, row.aggregate, row.destination)


class _Checker:
    def __init__(self, known: Known) -> None:
        self.known = known
        self.tops = dict(known.tops)
        self.raised: dict[Lane, int] = {}
        self.holders: dict[tuple[Lane, int], uuid.UUID] = dict(known.holders)
        self.holes: dict[Lane, list[AnomalyRow]] = {lane: list(holes) for lane, holes in known.holes.items()}
        self.touched: dict[tuple[Lane, int], AnomalyRow] = {}
        self.reused: list[AnomalyRow] = []

    def take(self, row: DeliveryRow) -> None:
        lane = lane_of(row)
        first = row.sequence if (row.tenant, row.command_partition) in self.known.truncated else 1
        expected = self.tops.get(lane, first - 1) + 1
        if row.sequence >= expected:
            if row.sequence > expected:
                self.open_hole(lane, row, expected)
            self.tops[lane] = self.raised[lane] = row.sequence
            self.holders[lane, row.sequence] = row.delivery_id
            return
        holder = self.holders.get((lane, row.sequence))
        if holder is None:
            self.holders[lane, row.sequence] = row.delivery_id
            self.fill(lane, row)
        elif holder != row.delivery_id:
            self.reused.append(_reused(row, holder))

    def open_hole(self, lane: Lane, row: DeliveryRow, expected: int) -> None:
        hole = _anomaly(
            row,
            AnomalyKind.HOLE,
            first=expected,
            last=row.sequence - 1,
            detail=f"number {row.sequence} came where {expected} was expected",
        )
        self.holes.setdefault(lane, []).append(hole)
        self.touched[lane, expected] = hole

    def fill(self, lane: Lane, row: DeliveryRow) -> None:
        holes = self.holes.get(lane, [])
        for index, hole in enumerate(holes):
            first, last = hole.first_sequence or 0, hole.last_sequence or 0
            if first <= row.sequence <= last and hole.missing > 0:
                left = hole.missing - 1
                holes[index] = self.touched[lane, first] = replace(
                    hole, missing=left, resolved_at=None if left else row.in_topic_at
                )
                return


def _anomaly(row: DeliveryRow, kind: AnomalyKind, *, first: int, last: int, detail: str) -> AnomalyRow:
    return AnomalyRow(
        tenant=row.tenant,
        kind=kind,
        topic=Topic.COMMANDS,
        partition=row.command_partition,
        offset=row.command_offset,
        destination=row.destination,
        aggregate=row.aggregate,
        first_sequence=first,
        last_sequence=last,
        missing=last - first + 1 if kind is AnomalyKind.HOLE else 0,
        delivery_id=row.delivery_id,
        detail=detail,
        seen_at=row.in_topic_at,
    )


def _reused(row: DeliveryRow, holder: uuid.UUID) -> AnomalyRow:
    found = _anomaly(
        row,
        AnomalyKind.REUSED_NUMBER,
        first=row.sequence,
        last=row.sequence,
        detail=f"number {row.sequence} already belongs to another delivery",
    )
    return replace(found, other_id=holder)


def check_numbers(known: Known, rows: Iterable[DeliveryRow]) -> Verdict:
    """Compare the numbers of a batch with what is known; rows of one lane come in the order of their offsets."""
    checker = _Checker(known)
    for row in rows:
        checker.take(row)
    return Verdict(tops=checker.raised, anomalies=[*checker.touched.values(), *checker.reused])
