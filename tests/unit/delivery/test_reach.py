"""How far attempts may have gone: never understated, and told exactly when a partition is let go."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from waybill.delivery.core.position import MAX_UNSETTLED
from waybill.delivery.core.reach import WINDOW, Reach


class Owners(RuleBasedStateMachine):
    """Owners of one partition that read, attempt, commit, die and let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reach, self.committed, self.position = Reach(), 0, 0
        self.attempted: set[int] = set()
        self.begun: set[int] = set()

    @rule(records=st.integers(1, 3 * WINDOW))
    def read(self, records: int) -> None:
        self.position += records

    @rule(back=st.integers(0, 3 * WINDOW))
    def attempt(self, back: int) -> None:
        offset = max(self.position - 1 - back, 0)
        if offset < self.position and self.reach.allows(offset):
            self.reach.note(offset)
            self.begun.add(offset)

    @rule()
    def commit(self) -> None:
        self.committed = self.reach.promise(self.position, is_released=False)
        self.reach.carried()

    @rule()
    def promise_and_die(self) -> None:
        self.reach.promise(self.position, is_released=False)
        self.succeed()

    @rule()
    def let_go(self) -> None:
        told = self.reach.promise(self.position, is_released=True)
        assert told >= max(self.begun, default=-1) + 1
        self.committed = told
        self.succeed()

    def succeed(self) -> None:
        self.attempted |= self.begun
        self.begun = set()
        self.reach = Reach(self.committed)

    @invariant()
    def whatever_was_sent_is_doubted(self) -> None:
        assert all(offset < self.committed for offset in self.begun)
        assert all(self.reach.is_doubtful(offset) for offset in self.attempted)


TestOwners = pytest.mark.requirement("DC-8")(Owners.TestCase)


def test_what_a_former_owner_settled_is_passed_over_and_nothing_else() -> None:
    reach = Reach(20, settled_to=10, unsettled=(3, 7))

    assert [offset for offset in range(12) if not reach.is_settled(offset)] == [3, 7, 10, 11]


@pytest.mark.requirement("RS-1")
def test_an_owner_that_dies_before_it_has_read_on_hands_down_what_it_was_told() -> None:
    told = Reach(20, settled_to=10, unsettled=(3, 7)).settled((3,), 5, 5)

    assert told == ((3, 7), 10)
    assert Reach(20, settled_to=10, unsettled=(3, 7)).settled((3, 11), 12, 12) == ((3, 11), 12)


def test_a_list_that_is_not_complete_hands_nothing_down() -> None:
    many = tuple(range(MAX_UNSETTLED))

    assert Reach(9000, settled_to=8000).settled(many, MAX_UNSETTLED, 5000) == (many, MAX_UNSETTLED)
    listed, settled_to = Reach(9000, settled_to=8000, unsettled=(7000,)).settled(many, 5000, 5000)
    assert (listed, settled_to) == (many, 7000)


def test_a_drained_partition_leaves_no_more_in_doubt_than_was_sent() -> None:
    reach = Reach()
    reach.promise(10, is_released=False)
    reach.carried()
    reach.note(3)

    assert reach.promise(10, is_released=True) == 4
    assert Reach(4).is_doubtful(3)
    assert not Reach(4).is_doubtful(4)
