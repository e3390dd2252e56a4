"""A unit test decides from its arguments: reaching for the network or for real time fails it at once."""

import asyncio
import socket
import time
from typing import Never

import pytest

#: Yielding to the event loop is no waiting.
LONGEST_YIELD_S = 0.05
_loop_sleep = asyncio.sleep


def _no_network(*_args: object, **_kwargs: object) -> Never:
    pytest.fail("a unit test reached for the network: pass a fake, or move the test to tests/integration")


def _no_sleep(*_args: object, **_kwargs: object) -> Never:
    pytest.fail("a unit test slept: pass a clock that can be moved")


async def _no_long_sleep(delay: float, result: object = None) -> object:
    if delay > LONGEST_YIELD_S and not getattr(asyncio.get_running_loop(), "is_virtual", False):
        _no_sleep()
    return await _loop_sleep(delay, result)


@pytest.fixture(autouse=True)
def no_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block connecting, listening and sleeping; socket pairs (the event loop's own) stay."""
    for method in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, method, _no_network)
    monkeypatch.setattr(time, "sleep", _no_sleep)
    monkeypatch.setattr(asyncio, "sleep", _no_long_sleep)
