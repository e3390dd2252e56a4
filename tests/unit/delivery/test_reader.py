"""How long a reader looks for records."""

import pytest

from waybill.delivery.reader import look_s


@pytest.mark.parametrize(("found_nothing", "seconds"), [(0, 0.05), (19, 0.05), (20, 0.1), (50, 0.25), (10_000, 0.25)])
def test_a_reader_without_work_looks_less_often_up_to_a_bound(found_nothing: int, seconds: float) -> None:
    assert look_s(found_nothing) == pytest.approx(seconds)
