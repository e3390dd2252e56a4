"""A producer that is killed again and again: run as a program, prints what it attempted.

`killable.py DSN TENANT ROUNDS SEED`: each round forks a producer that changes a business row and emits in one
transaction, over and over, until its parent kills it (SIGKILL) or ends its session in the server, at a random moment.
"""

import contextlib
import os
import random
import signal
import sys
import time
import uuid

import psycopg

from waybill.outbox import CommandDraft, Outbox

#: The longest life of the first round. It follows what this machine's transactions take, so that a kill lands anywhere
#: in one of the first few: longer after a round that saw no commit, shorter after one that did.
LONGEST_LIFE_S = 0.012
LONGER, SHORTER = 1.1, 0.95


def produce(dsn: str, tenant: str, ready: int) -> None:
    """Commit transactions until killed; tell the parent our session once connected."""
    connection = psycopg.connect(dsn)
    os.write(ready, f"{connection.info.backend_pid}\n".encode())
    while True:
        with connection.transaction(), Outbox(connection, tenant=tenant).collect() as box:
            row = uuid.uuid4()
            connection.execute("INSERT INTO business (id, tenant) VALUES (%s, %s)", (row, tenant))
            for _ in range(2):
                box.emit(
                    CommandDraft(
                        aggregate_type="subject", aggregate_id="hot", command_type="subject.erase",
                        data={"id": str(row)}, request_id=str(row),
                    )
                )  # fmt: skip
        os.write(ready, b".")


def one_round(
    dsn: str, tenant: str, chance: random.Random, admin: "psycopg.Connection[tuple[object, ...]]", longest_life_s: float
) -> int:
    """Fork, wait a random moment, kill; return how many commits the producer saw acknowledged."""
    heard, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        with contextlib.suppress(BaseException):
            produce(dsn, tenant, ready)
        os._exit(0)
    os.close(ready)
    first = b""
    while not first.endswith(b"\n"):
        piece = os.read(heard, 1)
        if not piece:
            break
        first += piece
    time.sleep(chance.random() * longest_life_s)
    if first and chance.random() < 0.5:
        admin.execute("SELECT pg_terminate_backend(%s)", (int(first),))
    else:
        os.kill(child, signal.SIGKILL)
    acknowledged = b"".join(iter(lambda: os.read(heard, 4096), b"")).count(b".")
    os.waitpid(child, 0)
    os.close(heard)
    return acknowledged


def main() -> None:
    """Run the rounds."""
    dsn, admin_dsn, tenant, rounds, seed = sys.argv[1:]
    chance, longest_life_s, total = random.Random(int(seed)), LONGEST_LIFE_S, 0
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for _ in range(int(rounds)):
            acknowledged = one_round(dsn, tenant, chance, admin, longest_life_s)
            longest_life_s *= SHORTER if acknowledged else LONGER
            total += acknowledged
    print(total)


if __name__ == "__main__":
    main()
