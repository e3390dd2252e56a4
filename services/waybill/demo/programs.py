"""The fabric's own programs as the demonstration runs them: through the public command line, as processes.

Each writes its messages to a file of its own, is watched while the demonstration waits, and is asked to leave at the
end; what does not leave is ended. They run in sessions of their own, so that a Ctrl-C reaches the demonstration
first and it decides the order.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from waybill.devstack.ground import WAYBILL, tail
from waybill.infra.addresses import environment
from waybill.kernel.errors import UnavailableError

__all__ = ["Program"]

DRAIN_S: Final = 15.0


class Program:
    """One long-running `waybill …` process; a context manager."""

    def __init__(self, title: str, words: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.title = title
        self.log = folder / f"{title.replace(' ', '-').replace('/', '-')}.log"
        self._words, self._environ = words, environ
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*WAYBILL, *self._words],
                env={**environment(), **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            UnavailableError: it ended; shows its last words.
        """
        code = self._process.poll() if self._process else None
        if code is not None:
            raise UnavailableError(f"{self.title} ended with exit code {code}; {self.log} ends with:\n{tail(self.log)}")

    def ask_to_leave(self) -> None:
        """Send SIGTERM and wait for nothing, so that several can leave side by side."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask it to leave, end it when it does not."""
        process = self._process
        if process is None:
            return
        self.ask_to_leave()
        try:
            process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DRAIN_S)
