"""The ways to run a stack behind one small interface: processes here, containers, or addresses somebody gives.

A back end decides ports and addresses (`prepare`), makes the services work (`start`), tells how they are
(`status`), ends what it started (`stop`) and deletes what it put outside the stack's folder (`forget`). All of
them are idempotent; names, locks and the state file are the launcher's.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from waybill.devstack.stack import Stack, Wanted
from waybill.kernel.errors import ConfigError

__all__ = ["BACKENDS", "Backend", "backend_for"]


class Backend(Protocol):
    """What the launcher needs of a way to run a stack."""

    def prepare(self, asked: Wanted, former: Stack | None) -> Stack:
        """Decide every port, address and password; keep those of `former` where they still hold."""

    def start(self, stack: Stack, services: Sequence[str]) -> None:
        """Make the named services work; return when they do."""

    def status(self, stack: Stack) -> list[dict[str, object]]:
        """Return one record per service."""

    def stop(self, stack: Stack | None) -> list[str]:
        """End what this back end started for the folder, also when no state is known; return the names."""

    def forget(self) -> None:
        """Delete data this back end keeps outside the stack's folder."""


#: name → (module, class); a module is imported when its back end is used.
BACKENDS: Final = {
    "process": ("waybill.devstack.backends.process", "ProcessBackend"),
    "containers": ("waybill.devstack.backends.containers", "ContainersBackend"),
    "external": ("waybill.devstack.backends.external", "ExternalBackend"),
}


def backend_for(name: str, folder: Path, progress: Callable[[str], None]) -> Backend:
    """Return the back end of that name for the stack in `folder`.

    Raises:
        ConfigError: there is no such back end.
    """
    if name not in BACKENDS:
        raise ConfigError(f"no back end is called {name!r}: expected one of {', '.join(BACKENDS)}")
    module, kind = BACKENDS[name]
    backend: Backend = getattr(importlib.import_module(module), kind)(folder, progress)
    return backend
