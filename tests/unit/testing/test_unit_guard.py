"""The guard around unit tests does what it says."""

import asyncio
import socket
import time

import pytest


def test_unit_test_cannot_connect():
    with socket.socket() as door, pytest.raises(pytest.fail.Exception, match="network"):
        door.connect(("127.0.0.1", 1))


def test_unit_test_cannot_listen():
    with socket.socket() as door, pytest.raises(pytest.fail.Exception, match="network"):
        door.bind(("127.0.0.1", 0))


def test_unit_test_cannot_sleep():
    with pytest.raises(pytest.fail.Exception, match="clock"):
        time.sleep(0.001)


async def test_unit_test_cannot_sleep_in_the_loop():
    with pytest.raises(pytest.fail.Exception, match="clock"):
        await asyncio.sleep(1)
