"""When a campaign is at rest: every promise has ended, or stands behind one that waits for people."""

import pytest

from waybill.chaos.closing import unfinished


def promise(number: int, destination: str = "printer", aggregate: str = "thing/1") -> dict[str, object]:
    return {
        "delivery_id": f"{destination}-{aggregate}-{number}",
        "destination": destination,
        "aggregate": aggregate,
        "sequence": number,
    }


PROMISES = [promise(3), promise(1), promise(2)]


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ({}, 3),
        ({1: "acknowledged", 2: "acknowledged", 3: "acknowledged"}, 0),
        ({1: "acknowledged", 2: "retrying"}, 2),
        ({1: "acknowledged", 2: "ambiguous"}, 0),  # the third waits behind it
        ({1: "failed"}, 0),
        ({3: "ambiguous"}, 2),  # what stands before it is still to end
    ],
)
def test_what_stands_behind_one_that_waits_for_people_is_not_waited_for(states: dict[int, str], left: int):
    found = {f"printer-thing/1-{number}": state for number, state in states.items()}

    assert unfinished(PROMISES, found) == left


def test_another_aggregate_and_another_destination_wait_for_nobody():
    promises = [promise(1), promise(2, aggregate="thing/2"), promise(2, destination="register")]

    assert unfinished(promises, {"printer-thing/1-1": "ambiguous"}) == 2
