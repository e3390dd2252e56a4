"""Processes a campaign starts, and what it may do to them: kill, freeze, thaw, ask to leave.

Each is known by the process id it was started with and nothing else. They run in sessions of their own, so that a
Ctrl-C reaches the campaign first, and are ended when their block ends, whatever happened to them meanwhile.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from waybill.devstack.ground import tail
from waybill.infra.addresses import environment
from waybill.kernel.errors import UnavailableError

__all__ = ["Program", "WitnessProgram"]

DRAIN_S: Final = 20.0


class Program:
    """One process that can be started again; safe to use from several threads."""

    def __init__(self, title: str, argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.title = title
        self.log = folder / f"{title.replace(' ', '-')}.log"
        self._argv, self._environ = argv, environ
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_wanted = False

    def start(self) -> None:
        """Start it; does nothing while it runs."""
        with self._lock:
            self._is_wanted = True
            if self._process is None or self._process.poll() is not None:
                self._spawn()

    def revive(self) -> int | None:
        """Start it again when it ended although it is wanted, as a supervisor does; return how it ended."""
        with self._lock:
            ended = self._process.poll() if self._process is not None and self._is_wanted else None
            if ended is not None:
                self._spawn()
            return ended

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                env={**environment(), **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=self._output(log),
                stderr=log,
                start_new_session=True,
                text=True,
            )

    def _output(self, log: Any) -> Any:
        return log

    def ports_to(self, targets: Collection[int]) -> list[int]:
        """Return its own ports of connections to some ports of this machine; none when it is gone."""
        with suppress(psutil.Error):
            if self._process is not None:
                found = psutil.Process(self._process.pid).net_connections("tcp")
                return sorted({each.laddr.port for each in found if getattr(each.raddr, "port", None) in targets})
        return []

    def kill(self) -> None:
        """End it as a crash does; it is not wanted until it is started again."""
        with self._lock:
            self._is_wanted = False
            self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self._signal(signal.SIGCONT)

    def ask_to_leave(self) -> None:
        """Send SIGTERM and wait for nothing, so that several can leave side by side."""
        self._is_wanted = False
        self.thaw()
        self._signal(signal.SIGTERM)

    def leave(self) -> None:
        """Ask it to leave and wait; end it when it does not."""
        with self._lock:
            self._is_wanted = False
            self.thaw()
            self._end(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self._signal(how)
        try:
            process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DRAIN_S)
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See it gone."""
        self.leave()


class WitnessProgram(Program):
    """Listener or proxy: prints one JSON line with its ports when it takes requests."""

    def __init__(self, module: str, settings: Mapping[str, Any], folder: Path) -> None:
        """Write its settings and prepare it; `module` is its name in this package."""
        path = folder / f"{module}.json"
        path.write_text(json.dumps(settings))
        super().__init__(module, (sys.executable, "-m", f"waybill.chaos.{module}", str(path)), {}, folder)

    def _output(self, log: Any) -> Any:
        return subprocess.PIPE

    def listening(self) -> dict[str, int]:
        """Return its ports by destination.

        Raises:
            UnavailableError: it ended instead.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"{self.title} did not start; {self.log} ends with:\n{tail(self.log)}")
        found: dict[str, int] = json.loads(line)
        return found
