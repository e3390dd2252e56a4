"""Interleaving, medians, percentiles and the verdict on noise.

A benchmark on a shared machine measures its neighbours too. Pairing in the order A B B A gives both arms the
same share of any drift; the median ignores single accidents; the spread says when neither helped.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["MAX_SPREAD", "MIN_PAIRS", "Arm", "PairedRun", "abba", "percentile", "spread"]

#: Fewer pairs than this prove nothing.
MIN_PAIRS: Final = 5
#: Above this relative spread a run calls itself invalid.
MAX_SPREAD: Final = 0.25


class Arm(StrEnum):
    """One of the two things compared."""

    #: What is measured.
    SUBJECT = "subject"
    #: What it is measured against.
    BASELINE = "baseline"


def abba(pairs: int) -> Iterator[Arm]:
    """Yield the arms of `pairs` pairs: A B, B A, A B, ..."""
    for number in range(pairs):
        pair = (Arm.SUBJECT, Arm.BASELINE)
        yield from pair if number % 2 == 0 else reversed(pair)


def spread(values: Sequence[float]) -> float:
    """Return the middle half's width relative to the median (0 for fewer than two values).

    The quartiles, not the extremes: one descheduled second in ten runs is noise the median already ignores.
    """
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of a non-empty sequence."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRun:
    """Rates of both arms, in the order measured; both sequences have one entry per pair."""

    subject: Sequence[float]
    baseline: Sequence[float]

    @property
    def ratio(self) -> float:
        """Return the median of the ratios within each pair."""
        return statistics.median(a / b for a, b in zip(self.subject, self.baseline, strict=True))

    @property
    def subject_median(self) -> float:
        """Return the median rate of the subject."""
        return statistics.median(self.subject)

    @property
    def baseline_median(self) -> float:
        """Return the median rate of the baseline."""
        return statistics.median(self.baseline)

    @property
    def is_invalid(self) -> bool:
        """Whether there were too few pairs or either arm was too noisy to compare."""
        too_few = len(self.subject) < MIN_PAIRS
        return too_few or spread(self.subject) > MAX_SPREAD or spread(self.baseline) > MAX_SPREAD
