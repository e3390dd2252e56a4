"""Following controls about destinations: asked every second, and what this worker decided itself is written down.

A worker starts nothing before it knows them once. While the database is away the last known ones are in force, and
what a guard of this worker decided is in force at once and written as soon as it can be.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from waybill.delivery.core.controls.standing import Control
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.kernel.errors import TransientError

__all__ = ["ControlSource", "Controls", "NoControls"]

_AGAIN_S: Final = 0.5

Place = tuple[str, str]


class ControlSource(Protocol):
    """Where controls lie. Both methods may raise TransientError."""

    async def load(self) -> Sequence[Control]:
        """Return what is in force, one for each destination that was ever decided about."""
        ...

    async def add(self, control: Control) -> None:
        """Add a control."""
        ...


class NoControls:
    """Nobody ever decides anything."""

    async def load(self) -> Sequence[Control]:
        """Return nothing."""
        return ()

    async def add(self, control: Control) -> None:
        """Forget it."""


class Controls:
    """What is in force, as far as this worker knows; lives on the loop."""

    def __init__(self, source: ControlSource) -> None:
        self._source = source
        self._loaded: Mapping[Place, Control] = {}
        #: Decided here and not written yet.
        self._unwritten: dict[Place, Control] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._log = get_logger("delivery")

    async def first(self, stop: asyncio.Event) -> None:
        """Wait until they are known, or until the worker is to stop."""
        while not stop.is_set() and not await self._round():  # noqa: ASYNC110 - facts without an event
            await asyncio.sleep(_AGAIN_S)

    def of(self, tenant: str, destination: str) -> Control | None:
        """Return what is in force."""
        place = (tenant, destination)
        return self._unwritten.get(place) or self._loaded.get(place)

    def add(self, control: Control) -> None:
        """Put a control of this worker into force and see to it that it is written."""
        self._unwritten[control.tenant, control.destination] = control
        self.refresh()

    def refresh(self) -> None:
        """Ask again, unless an answer is still on its way."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._refresh())
            self._task.add_done_callback(surface)

    async def stop(self) -> None:
        """Write what can be written now."""
        if self._task is not None:
            await self._task
        if self._unwritten:
            await self._round()

    async def _refresh(self) -> None:
        try:
            await self._round()
        finally:
            self._task = None

    async def _round(self) -> bool:
        try:
            for place, control in list(self._unwritten.items()):
                await self._source.add(control)
                if self._unwritten.get(place) is control:
                    del self._unwritten[place]
                    self._loaded = {**self._loaded, place: control}
            found = await self._source.load()
        except TransientError as error:
            if not self._is_away:
                self._log.warning("controls.waiting", reason=str(error))
            self._is_away = True
            return False
        self._loaded = {(control.tenant, control.destination): control for control in found}
        self._is_away = False
        return True
