"""Ports and passwords of a stack that runs on this machine, seen from one stack among others of the project."""

import json
import random
import secrets
import socket
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

from waybill.devstack.plan import HOST, LOGIN_ROLES, PORT_RANGE, choose_ports, port_names
from waybill.devstack.stack import STATE_NAME, Stack, Wanted
from waybill.kernel.errors import ConfigError

__all__ = ["free_ports", "local_stack"]


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


def local_stack(folder: Path, asked: Wanted, former: Stack | None, running: frozenset[str]) -> Stack:
    """Return the record of a stack on this machine: former ports where they are free or its own, the rest chosen.

    `running` names the services of this stack that hold their ports now.

    Raises:
        ConfigError: a number of brokers no stack has, or another port for a service that runs.
        UnavailableError: an asked port is taken.
    """
    brokers = asked.brokers or (former.brokers if former else 1)
    if brokers not in (1, 3):
        raise ConfigError(f"a stack has 1 or 3 brokers, not {brokers}")
    kept = former.ports if former else {}
    held = {name: kept[name] for name in kept if service_of(name) in running}
    for name, port in asked.ports.items():
        if held.get(name, port) != port:
            raise ConfigError(f"{name} runs on port {held[name]}: `waybill dev down --name {folder.name}` first")
    is_free, candidates = free_ports(folder.parent, folder)
    ports = choose_ports(
        port_names(brokers),
        asked=asked.ports,
        former=kept,
        candidates=candidates,
        is_free=lambda port: port in held.values() or is_free(port),
    )
    passwords = dict(former.passwords) if former else {}
    for role in ("postgres", *LOGIN_ROLES):
        passwords.setdefault(role, secrets.token_hex(16))
    return Stack(
        name=folder.name,
        backend=asked.backend or (former.backend if former else "process"),
        folder=folder,
        brokers=brokers,
        kafka=",".join(f"{HOST}:{ports[f'kafka-{node}']}" for node in range(1, brokers + 1)),
        connect_url=f"http://{HOST}:{ports['connect']}",
        registry_url=f"http://{HOST}:{ports['registry']}/apis/ccompat/v7",
        postgres_host=HOST,
        postgres_port=ports["postgres"],
        ports=ports,
        cluster_id=former.cluster_id if former else _cluster_id(),
        passwords=passwords,
    )


def service_of(port_name: str) -> str:
    """Return the service that listens on a port of that name."""
    return port_name.removesuffix("-controller").removesuffix("-management")


def _cluster_id() -> str:
    """Return 16 random bytes as Kafka writes them; the first is fixed, for no id may begin with a dash."""
    return urlsafe_b64encode(b"w" + secrets.token_bytes(15)).decode().rstrip("=")
