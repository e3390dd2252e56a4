"""The statistics that decide whether a benchmark means anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.bench.core.pairs import Arm, PairedRun, abba, percentile, spread

rates = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=5, max_size=20)


def test_abba_alternates_which_arm_goes_first() -> None:
    order = list(abba(3))

    expected = [Arm.SUBJECT, Arm.BASELINE, Arm.BASELINE, Arm.SUBJECT, Arm.SUBJECT, Arm.BASELINE]
    assert expected == order


@given(pairs=st.integers(min_value=1, max_value=50))
def test_abba_measures_both_arms_equally_often(pairs: int) -> None:
    order = list(abba(pairs))

    assert order.count(Arm.SUBJECT) == order.count(Arm.BASELINE) == pairs


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100.0], 0.0),  # one value has no spread
        ([100.0, 100.0, 100.0], 0.0),
        ([80.0, 90.0, 100.0, 110.0, 120.0], 0.2),  # quartiles 90 and 110 around 100
        ([100.0, 100.0, 100.0, 100.0, 10.0], 0.0),  # one accident does not count
    ],
)
def test_spread_is_the_width_of_the_middle_half(values: list[float], expected: float) -> None:
    assert expected == pytest.approx(spread(values))


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(50, 5.0), (99, 10.0), (100, 10.0), (1, 1.0)],
    ids=["median", "p99 of ten is the largest", "all", "smallest"],
)
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    values = [float(n) for n in range(10, 0, -1)]

    assert expected == percentile(values, percent)


@given(baseline=rates, factor=st.floats(min_value=0.1, max_value=10.0))
def test_ratio_compares_within_pairs_so_that_drift_cancels(baseline: list[float], factor: float) -> None:
    run = PairedRun(subject=[rate * factor for rate in baseline], baseline=baseline)

    assert factor == pytest.approx(run.ratio)


@pytest.mark.parametrize(
    ("subject", "is_invalid"),
    [
        ([50.0] * 5, False),
        ([50.0] * 4, True),  # too few pairs
        ([10.0, 30.0, 50.0, 70.0, 90.0], True),  # too noisy
    ],
)
def test_run_calls_itself_invalid_when_it_proves_nothing(subject: list[float], is_invalid: bool) -> None:
    run = PairedRun(subject=subject, baseline=[100.0] * len(subject))

    assert is_invalid is run.is_invalid
