"""The fabric's own programs as the demonstration runs them: through the public command line, as processes.

Each writes its messages to a file of its own, is watched while the demonstration waits, and is asked to leave at the
end; what does not leave is ended. They run in sessions of their own, so that a Ctrl-C reaches the demonstration
first and it decides the order.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from waybill.infra.addresses import environment
from waybill.kernel.errors import UnavailableError

__all__ = ["Program", "run_to_end", "tail"]

#: `waybill`, by the interpreter that runs this; works from a checkout, a wheel and a zip alike.
WAYBILL: Final = (sys.executable, "-c", "from waybill.cli import main; main()")
DRAIN_S: Final = 15.0
TAIL_LINES: Final = 12


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
