"""The listener as a program of its own: started, killed without warning, started again.

It runs in a process group of its own, which is what is killed: a program that starts helpers dies as a whole, and
nothing else does. What it prints goes to a file, whose end is shown when it does not start.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Final

from waybill.infra.addresses import environment
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["Program", "free_port"]

_LOOK_EVERY_S: Final = 0.05
_SHOWN: Final = 2_000


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A listener that this run started.

    Args:
        command: as typed in a shell; no shell reads it.
        variables: what the program finds in its environment beside ours.
        log: where its output goes.
        clock: for the patience.
        patience_s: how long it may take to answer after a start.
    """

    def __init__(
        self, command: str, variables: Mapping[str, str], log: Path, clock: Clock, *, patience_s: float
    ) -> None:
        self._words = shlex.split(command)
        if not self._words:
            raise ConfigError("--run: no command")
        self._variables = {**environment(), **variables}
        self._log, self._clock, self._patience_s = log, clock, patience_s
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, is_there: Callable[[], bool]) -> None:
        """Start it and wait until it answers.

        Raises:
            ConfigError: there is no such program.
            UnavailableError: it ended, or does not answer; shows the end of what it printed.
        """
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._words,
                    env=self._variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(f"--run {self._words[0]}: {error.strerror}") from error
        until = self._clock.monotonic() + self._patience_s
        pause = Event()
        while not is_there():
            if self._process.poll() is not None:
                raise UnavailableError(f"the listener ended with {self._process.returncode}: {self._end_of_log()}")
            if self._clock.monotonic() > until:
                raise UnavailableError(f"the listener does not answer: {self._end_of_log()}")
            pause.wait(_LOOK_EVERY_S)

    def kill(self) -> None:
        """Kill it and everything it started, now; returns when it is gone. Does nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it ended before
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:].strip() or "it printed nothing"
