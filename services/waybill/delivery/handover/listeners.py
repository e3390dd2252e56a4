"""How far groups of listeners have committed: asked of the brokers for a whole group at a time, on a strand of its own.

What breaks otherwise: asked one by one, ten thousand deliveries that wait would be ten thousand requests; asked on the
loop, a broker that is away would hold up every destination.
"""

import asyncio
from collections.abc import Callable, Mapping

from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.log import get_logger
from waybill.infra.strand import Strand
from waybill.kernel.errors import UnavailableError

__all__ = ["ListenerOffsets"]

Place = tuple[str, int]
#: Told the committed offset of one partition; None while nobody knows, or nobody ever committed there.
Told = Callable[[int | None], None]


class ListenerOffsets:
    """Asks for everybody in the process; lives on the loop, asks on its strand."""

    def __init__(
        self, make: Callable[[], GroupOffsets], strand: Strand[str | None], on_broken: Callable[[BaseException], None]
    ) -> None:
        """Take what it needs.

        Args:
            make: connects; called on the strand, once somebody asks.
            strand: to ask on.
            on_broken: called on the loop when the strand ends by an error of ours.
        """
        self._make, self._strand, self._on_broken = make, strand, on_broken
        self._loop = asyncio.get_running_loop()
        self._asking: dict[str, list[tuple[Place, Told]]] = {}
        self._is_started = False
        self._log = get_logger("delivery")

    def ask(self, group: str, place: Place, told: Told) -> None:
        """Ask how far a group has committed a partition; those who ask together get one answer of the brokers."""
        if not self._is_started:
            self._is_started = True
            self._strand.start(self._work())
        if group not in self._asking:
            self._strand.give(group)
        self._asking.setdefault(group, []).append((place, told))

    def close(self) -> None:
        """Ask nothing more; what is asked now may take its time and is told to nobody."""
        self._asking.clear()
        if self._is_started:
            self._strand.give(None)

    def _tell(self, group: str, found: Mapping[Place, int]) -> None:
        for place, told in self._asking.pop(group, ()):
            told(found.get(place))

    # On the strand

    async def _work(self) -> None:
        try:
            await self._serve()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._on_broken, error)
            raise

    async def _serve(self) -> None:
        offsets = await self._strand.call(self._make)
        while (group := await self._strand.take()) is not None:
            try:
                found = await self._strand.call(offsets.committed, group)
            except UnavailableError as error:
                self._log.warning("listeners.unknown", group=group, reason=str(error))
                found = {}
            self._loop.call_soon_threadsafe(self._tell, group, found)
