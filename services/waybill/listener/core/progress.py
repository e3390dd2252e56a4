"""How far one partition has come: up to where everything was answered, whatever was answered out of turn behind it."""

import heapq
from dataclasses import dataclass, field

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """The records of one partition that were read and are not settled yet.

    `base` is what may be committed: never past a record whose answer is not safe, so that whoever reads on from there
    misses nothing. Records between two settled ones may be read again; the delivery record recognises them.
    """

    #: Behind the last record that was read; None before the first.
    position: int | None = None
    _open: set[int] = field(default_factory=set)
    _order: list[int] = field(default_factory=list)

    def read(self, offset: int) -> bool:
        """Take note of a record; False when it is here already.

        One that was settled and comes again, since the log was cut or the client went back, is worked off again.
        """
        if offset in self._open:
            return False
        self.position = max(offset + 1, self.position or 0)
        self._open.add(offset)
        heapq.heappush(self._order, offset)
        return True

    def settle(self, offset: int) -> None:
        """Take note that a record needs nothing more."""
        self._open.discard(offset)
        while self._order and self._order[0] not in self._open:
            heapq.heappop(self._order)

    @property
    def base(self) -> int | None:
        """The offset below which everything is settled; None when nothing was read."""
        return self._order[0] if self._order else self.position
