"""Starts services that outlive their launcher, finds them again, and ends only them.

A process belongs to a stack when one argument of its command line is exactly the stack's marker (see `plan`).
There is no pid file to go stale: finding is a scan of the process table, so a reused pid, a killed launcher or a
lost state file cannot make us end a stranger or overlook our own. Between finding and signalling, psutil compares
start times.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from waybill.devstack.plan import marker

__all__ = ["Account", "end", "find", "spawn"]

#: How long a service may take to stop by itself before it is killed.
GRACE_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user and group to run a process as."""

    name: str
    uid: int
    gid: int


def spawn(
    argv: Sequence[str],
    *,
    folder: Path,
    log: Path,
    environ: Mapping[str, str] | None = None,
    account: Account | None = None,
) -> int:
    """Start a process in its own session with its output appended to `log`; return its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=dict(environ) if environ is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    _watch(process)
    return int(process.pid)


def _watch(process: "subprocess.Popen[bytes]") -> None:
    """Reap the child when it ends while this launcher lives, so that it never lingers as a zombie."""
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()


def find(folder: Path, services: Sequence[str]) -> dict[str, psutil.Process]:
    """Return the live process of each service of the stack in `folder`."""
    wanted = {}
    for service in services:
        text = marker(folder, service)
        wanted[text] = service
        wanted[f"-D{text}"] = service
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid():
                continue
            for argument in process.cmdline():
                service = wanted.get(argument, "")
                if service and process.status() != psutil.STATUS_ZOMBIE:
                    found[service] = process
                    break
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def end(processes: Mapping[str, psutil.Process], grace_s: float = GRACE_S) -> list[str]:
    """Ask each process to stop, kill what does not within `grace_s`; return the names of those killed.

    PostgreSQL gets SIGINT (its fast shutdown: sessions are ended), the others SIGTERM.
    """
    for service, process in processes.items():
        try:
            if service == "postgres":
                process.send_signal(signal.SIGINT)
            else:
                process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(list(processes.values()), timeout=grace_s)
    killed = [service for service, process in processes.items() if process in alive]
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=grace_s)
    return killed
