"""Which ports of 127.0.0.1 are free, seen from one stack among others of the same project."""

import json
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from waybill.devstack.plan import HOST, PORT_RANGE
from waybill.devstack.stack import STATE_NAME

__all__ = ["free_ports"]


def free_ports(stacks: Path, own: Path) -> tuple[Callable[[int], bool], Iterator[int]]:
    """Return the test for a free port and candidates to try; ports that other stacks wrote down are left to them."""
    reserved = set()
    for state in stacks.glob(f"*/{STATE_NAME}"):
        if state.parent != own:
            try:
                reserved.update(json.loads(state.read_text())["ports"].values())
            except (OSError, ValueError, KeyError, AttributeError):
                continue
    order = random.SystemRandom()
    candidates = (order.randrange(*PORT_RANGE) for _ in range(2_000))
    return (lambda port: port not in reserved and _can_bind(port)), candidates


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
