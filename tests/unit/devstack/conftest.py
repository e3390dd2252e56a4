"""A stack's record without a stack."""

from collections.abc import Callable
from pathlib import Path

import pytest

from waybill.devstack import plan
from waybill.devstack.stack import Stack


@pytest.fixture
def stack_of() -> Callable[[int], Stack]:
    """Return the record of a stack with so many brokers; ports count up from 20000."""
    return make_stack


def make_stack(brokers: int) -> Stack:
    ports = {name: 20_000 + number for number, name in enumerate(plan.port_names(brokers))}
    return Stack(
        name="x",
        backend="process",
        folder=Path("/p/.waybill/stacks/x"),
        brokers=brokers,
        kafka=",".join(f"127.0.0.1:{ports[f'kafka-{node}']}" for node in range(1, brokers + 1)),
        connect_url=f"http://127.0.0.1:{ports['connect']}",
        registry_url=f"http://127.0.0.1:{ports['registry']}/apis/ccompat/v7",
        postgres_host="127.0.0.1",
        postgres_port=ports["postgres"],
        ports=ports,
        cluster_id="d2F5YmlsbC1zdGFjay0wMQ",
        passwords={role: f"secret-of-{role}" for role in ("postgres", *plan.LOGIN_ROLES)},
    )
