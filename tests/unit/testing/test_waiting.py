"""Waiting ends the moment the condition holds, and a timeout explains itself."""

import pytest

from waybill.testing import NotReached, eventually, eventually_async


def test_eventually_returns_the_first_truthy_result():
    answers = iter([0, "", "there"])

    assert eventually(lambda: next(answers), within_s=5) == "there"


def test_eventually_takes_a_failed_assert_as_not_yet():
    looks = []

    def third_look() -> bool:
        looks.append(1)
        assert len(looks) >= 3
        return True

    assert eventually(third_look, within_s=5)


def test_eventually_names_what_it_waited_for_and_what_it_saw():
    with pytest.raises(NotReached, match=r"three rows did not hold within 0.01 s; last seen: \[\]"):
        eventually(list, within_s=0.01, what="three rows")


def test_eventually_lets_an_accident_through():
    def broken() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        eventually(broken, within_s=5)


async def test_eventually_async_awaits_a_coroutine_function():
    answers = iter([False, True])

    async def look() -> bool:
        return next(answers)

    assert await eventually_async(look, within_s=5)


async def test_eventually_async_explains_a_timeout():
    async def look() -> dict[str, int]:
        return {}

    with pytest.raises(NotReached, match=r"last seen: \{\}"):
        await eventually_async(look, within_s=0.01)
