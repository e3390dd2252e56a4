"""Asks each service whether it can do its work, not whether its port is open.

Kafka is asked for its cluster's live brokers in its own protocol (a dozen lines of bytes, so that the `stack`
extra needs no Kafka client), Connect and the registry for a list they only have when they are ready. No
environment proxy is used: everything is on this machine or named by its user.
"""

import http.client
import socket
import struct
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

import psycopg

from waybill.devstack.plan import HOST
from waybill.devstack.stack import Stack

__all__ = ["answers_http", "is_ready", "live_brokers"]

TIMEOUT_S: Final = 3.0


def is_ready(stack: Stack, service: str) -> bool:
    """Whether one service of a stack on this machine does its work; a broker waits for the whole cluster."""
    if service == "postgres":
        return _takes_login(stack.dsn("postgres"))
    if service == "connect":
        return answers_http(f"{stack.connect_url}/connectors")
    if service == "registry":
        return answers_http(f"{stack.registry_url}/subjects")
    return live_brokers(f"{HOST}:{stack.ports[service]}") >= stack.brokers


def _takes_login(dsn: str) -> bool:
    try:
        with closing(psycopg.connect(dsn, connect_timeout=3)):
            return True
    except psycopg.OperationalError:
        return False


def answers_http(url: str) -> bool:
    """Whether a GET is answered with 200."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def live_brokers(bootstrap: str) -> int:
    """Return how many unfenced brokers the first answering bootstrap server knows; 0 when none answers."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            return len(_metadata_brokers(host, int(port)))
        except (OSError, ValueError, struct.error):
            continue
    return 0


def _metadata_brokers(host: str, port: int) -> list[int]:
    """Send Metadata v4 for no topics (API key 3) and read the node ids of its answer."""
    client = b"waybill-health"
    body = struct.pack(">hhih", 3, 4, 1, len(client)) + client + struct.pack(">ib", 0, 0)
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = _read(connection, struct.unpack(">i", _read(connection, 4))[0])
    offset = 8  # correlation id, throttle time
    (count,) = struct.unpack_from(">i", answer, offset)
    offset += 4
    nodes = []
    for _ in range(count):
        (node,) = struct.unpack_from(">i", answer, offset)
        offset = _after_text(answer, _after_text(answer, offset + 4) + 4)  # host, port, rack
        nodes.append(node)
    return nodes


def _after_text(answer: bytes, offset: int) -> int:
    (length,) = struct.unpack_from(">h", answer, offset)
    return offset + 2 + max(int(length), 0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        block = connection.recv(size - len(data))
        if not block:
            raise ConnectionError("closed early")
        data += block
    return data
