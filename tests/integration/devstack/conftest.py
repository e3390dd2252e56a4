"""Stacks of a test's own, deleted after it."""

import os
import secrets
from collections.abc import Iterator

import pytest

from waybill.devstack import Stack, Wanted, reset, up


def _name() -> str:
    return f"pytest-{os.getpid()}-{secrets.token_hex(3)}"


@pytest.fixture
def own_name() -> Iterator[str]:
    """A stack's name nobody uses; whatever the test started under it is deleted afterwards."""
    name = _name()
    yield name
    reset(name)


@pytest.fixture(scope="module")
def other_stack() -> Iterator[Stack]:
    """A second stack beside the session's: PostgreSQL, one broker and the registry."""
    name = _name()
    yield up(Wanted(name=name, services=("postgres", "kafka-1", "registry")), print)
    reset(name)
