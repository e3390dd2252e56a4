"""The load of the isolation benchmark: the healthy traffic of both arms is the same."""

from itertools import islice

from waybill.bench.core.pairs import Arm
from waybill.bench.isolation import HANGING, offers
from waybill.bench.world import DESTINATION


def taken(arm: Arm, healthy: int) -> list[tuple[str, str, bool]]:
    found, count = [], 0
    for offer in offers(200, arm, seed=7):
        found.append(tuple(offer))
        count += offer.is_measured
        if count == healthy:
            return found  # type: ignore[return-value]
    raise AssertionError("a stream has no end")


def test_the_healthy_are_the_same_with_and_without_the_sick():
    alone, beside = taken(Arm.BASELINE, 2_000), taken(Arm.SUBJECT, 2_000)

    assert [offer for offer in beside if offer[2]] == alone
    assert all(destination == DESTINATION for destination, _, _ in alone)


def test_the_sick_are_a_hot_key_dead_aggregates_and_a_destination_that_hangs():
    sick = [offer for offer in taken(Arm.SUBJECT, 2_000) if not offer[2]]

    hot = [offer for offer in sick if offer[1] == "hot"]
    dead = [offer for offer in sick if offer[1].startswith("dead-")]
    hanging = [offer for offer in sick if offer[0] == HANGING]
    assert 0.48 < len(hot) / (2_000 + len(sick)) < 0.52, "half of all commands"
    assert len(dead) > 5
    assert 20 < len(hanging) < 60
    assert len(hot) + len(dead) + len(hanging) == len(sick)
    assert list(islice(offers(200, Arm.SUBJECT, seed=7), 50)) == list(islice(offers(200, Arm.SUBJECT, seed=7), 50))
