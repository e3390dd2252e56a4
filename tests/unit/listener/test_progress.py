"""How far a partition has come: never past what is not settled."""

from hypothesis import given
from hypothesis import strategies as st

from waybill.listener.core.progress import Progress


@given(st.sets(st.integers(0, 60), min_size=1, max_size=20), st.data())
def test_nothing_unsettled_is_behind_the_base_whatever_the_order(offsets: set[int], data: st.DataObject) -> None:
    progress, unsettled = Progress(), set(offsets)
    for offset in sorted(offsets):
        assert progress.read(offset)
    assert progress.base == min(offsets)

    for offset in data.draw(st.permutations(sorted(offsets))):
        progress.settle(offset)
        unsettled.discard(offset)
        assert progress.base == (min(unsettled) if unsettled else max(offsets) + 1)


def test_a_record_that_comes_again_is_taken_once_while_it_is_here_and_again_when_it_was_settled() -> None:
    progress = Progress()
    assert progress.read(7)
    assert progress.read(8)
    assert not progress.read(7)
    progress.settle(7)
    progress.settle(8)
    assert progress.base == 9

    assert progress.read(7)
    assert progress.base == 7
    progress.settle(7)
    assert progress.base == 9


def test_nothing_read_is_nothing_to_commit() -> None:
    assert Progress().base is None
