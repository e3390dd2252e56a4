"""Numbers of a lane: contiguous, each with one delivery, whatever the batches."""

import itertools
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.readmodel.core.numbering import Known, Lane, check_numbers, lane_of
from waybill.readmodel.core.records import AnomalyKind, AnomalyRow, DeliveryRow

AT = datetime(2026, 1, 1, tzinfo=UTC)
LANE: Lane = ("acme", "subject/1", "crm")
NOTHING = Known(tops={}, holders={}, holes={})


def row(sequence: int, *, name: str | None = None, offset: int = 0, partition: int = 0) -> DeliveryRow:
    command = uuid.uuid5(uuid.NAMESPACE_OID, name or f"command {sequence}")
    return DeliveryRow(
        tenant="acme",
        delivery_id=uuid.uuid5(command, "crm"),
        command_id=command,
        destination="crm",
        aggregate="subject/1",
        sequence=sequence,
        in_topic_at=AT,
        command_partition=partition,
        command_offset=offset,
    )


def rows(*sequences: int) -> list[DeliveryRow]:
    return [row(sequence, offset=offset) for offset, sequence in enumerate(sequences)]


class Memory:
    """What the store remembers between batches, in a dictionary."""

    def __init__(self) -> None:
        self.tops: dict[Lane, int] = {}
        self.holders: dict[tuple[Lane, int], uuid.UUID] = {}
        self.anomalies: dict[tuple[str, int], AnomalyRow] = {}

    def fold(self, batch: Sequence[DeliveryRow]) -> None:
        known_tops = dict(self.tops)
        old = {(lane_of(r), r.sequence) for r in batch if r.sequence <= known_tops.get(lane_of(r), 0)}
        holes = tuple(a for a in self.anomalies.values() if a.kind is AnomalyKind.HOLE and a.resolved_at is None)
        known = Known(
            tops=known_tops,
            holders={key: held for key, held in self.holders.items() if key in old},
            holes={LANE: holes} if old else {},
        )
        verdict = check_numbers(known, batch)
        self.tops |= verdict.tops
        for r in batch:
            self.holders.setdefault((lane_of(r), r.sequence), r.delivery_id)
        for anomaly in verdict.anomalies:
            self.anomalies[anomaly.kind, anomaly.offset] = anomaly


@pytest.mark.requirement("DC-7")
@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([1, 2, 3], []),
        ([1, 2, 2, 3, 1], []),  # the relay repeats; the deliveries are the same
        ([1, 3], [("hole", 2, 2, 1)]),
        ([1, 5], [("hole", 2, 4, 3)]),
        ([3], [("hole", 1, 2, 2)]),  # the first number is 1
        ([1, 4, 3], [("hole", 2, 3, 1)]),  # it shrank
        ([1, 4, 3, 3], [("hole", 2, 3, 1)]),  # a repeat fills nothing
        ([1, 4, 3, 2], [("hole", 2, 3, 0)]),  # it closed
        ([2, 4], [("hole", 1, 1, 1), ("hole", 3, 3, 1)]),
    ],
)
def test_numbers_are_compared_with_what_is_expected(
    sequences: list[int], expected: list[tuple[str, int, int, int]]
) -> None:
    verdict = check_numbers(NOTHING, rows(*sequences))

    assert expected == [(a.kind, a.first_sequence, a.last_sequence, a.missing) for a in verdict.anomalies]


def test_hole_that_is_filled_is_resolved_at_the_time_of_the_last_missing_number() -> None:
    (hole,) = check_numbers(NOTHING, rows(1, 3, 2)).anomalies

    assert hole.resolved_at == AT
    assert hole.offset == 1  # where it was revealed


@pytest.mark.requirement("DC-7")
def test_number_with_two_deliveries_names_both() -> None:
    first, second = row(1, name="before the restore"), row(1, name="after the restore", offset=9)

    (anomaly,) = check_numbers(NOTHING, [first, second]).anomalies

    assert anomaly.kind is AnomalyKind.REUSED_NUMBER
    assert (anomaly.delivery_id, anomaly.other_id) == (second.delivery_id, first.delivery_id)


def test_first_number_above_one_is_no_hole_where_the_first_records_expired() -> None:
    known = Known(tops={}, holders={}, holes={}, truncated=frozenset({("acme", 3)}))

    assert check_numbers(known, [row(7, partition=3)]).anomalies == []
    assert len(check_numbers(known, [row(7, partition=4)]).anomalies) == 1


@given(
    sequences=st.lists(st.integers(min_value=1, max_value=8), max_size=20),
    reused=st.sets(st.integers(min_value=0, max_value=19)),
    cuts=st.sets(st.integers(min_value=0, max_value=20)),
)
def test_verdict_does_not_depend_on_where_batches_end(sequences: list[int], reused: set[int], cuts: set[int]) -> None:
    records = [
        row(sequence, offset=offset, name=f"other {sequence}" if offset in reused else None)
        for offset, sequence in enumerate(sequences)
    ]
    whole, pieces = Memory(), Memory()

    whole.fold(records)
    edges = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    for begin, end in itertools.pairwise(edges):
        pieces.fold(records[begin:end])

    assert whole.anomalies == pieces.anomalies
    assert whole.tops == pieces.tops
