"""What demonstration, campaign and benchmark stand on: a stack that is up, databases of their own, our own commands.

They use the fabric as its users do, through the public command line as processes, so that what they show is what
everybody gets. Everything here is idempotent or leaves nothing behind.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from waybill.devstack.launcher import status, variables
from waybill.devstack.stack import Stack
from waybill.infra.addresses import environment
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import FabricError, UnavailableError

__all__ = ["WAYBILL", "drop_database", "environ_of", "is_up", "make_database", "run_to_end", "tail"]

#: `waybill`, by the interpreter that runs this; works from a checkout, a wheel and a zip alike.
WAYBILL: Final = (sys.executable, "-c", "from waybill.cli import main; main()")
TAIL_LINES: Final = 12
AGAIN_S: Final = 0.25


def is_up(name: str) -> bool:
    """Whether a stack of this name has every service up."""
    try:
        services = status(name)
    except FabricError:
        return False
    return bool(services) and all(service["state"] == "up" for service in services)


def environ_of(stack: Stack) -> dict[str, str]:
    """Return the variables that point the fabric's programs at a stack, wherever they are started."""
    return {
        **variables(stack),
        "WAYBILL_HOME": str(stack.folder.parent.parent),
        "WAYBILL_RELAY_SECRET": f"{stack.secrets_file}:relay.password",
    }


def make_database(stack: Stack, name: str) -> None:
    """Make a database unless it is there."""
    assert re.fullmatch(r"[a-z_]+[a-z0-9_]*", name)
    with closing(connect(stack.dsn("postgres"), application_name="waybill-ground", autocommit=True)) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            connection.execute(f"CREATE DATABASE {name}".encode())


def drop_database(dsn: str, name: str, within_s: float = 60) -> None:
    """Drop a database with its replication slots and end the sessions on both; one that is not there is dropped.

    A connector that was just deleted may hold its slot for seconds longer and even open it anew, which no `FORCE`
    ends: so each try ends the reader, drops the slots and then the database, until all three went well.

    Args:
        dsn: a superuser's, of another database of the same server.
        name: of the database.
        within_s: seconds after which it is given up.

    Raises:
        UnavailableError: somebody still holds it then.
    """
    clock, pause = SystemClock(), threading.Event()
    end = clock.monotonic() + within_s
    while not _is_dropped(dsn, name):
        if clock.monotonic() >= end:
            raise UnavailableError(f"database {name} cannot be dropped: a connector still reads it")
        pause.wait(AGAIN_S)


def _is_dropped(dsn: str, name: str) -> bool:
    try:
        with closing(connect(dsn, application_name="waybill-ground", autocommit=True)) as connection:
            readers = connection.execute(
                "SELECT slot_name, pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s",
                (name,),
            )
            for slot, _ in readers.fetchall():
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except (psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
        return False
    return True


def run_to_end(title: str, words: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> str:
    """Run a `waybill …` command and return what it wrote to stdout.

    Raises:
        UnavailableError: it failed or took too long; shows its last words.
    """
    try:
        done = subprocess.run(
            [*WAYBILL, *words],
            env={**environment(), **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = _last((error.stderr or b"").decode(errors="replace") if isinstance(error.stderr, bytes) else "")
        raise UnavailableError(f"{title} did not end within {timeout_s:.0f} s; it said last:\n{said}") from error
    if done.returncode != 0:
        raise UnavailableError(f"{title} failed with exit code {done.returncode}:\n{_last(done.stderr)}")
    return done.stdout


def tail(path: Path) -> str:
    """Return the last lines of a log, empty when there is none."""
    with suppress(OSError):
        return _last(path.read_text(errors="replace"))
    return ""


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-TAIL_LINES:])
