"""What an owner knows of the past of its database: the newest beacon it wrote there.

A beacon is a random id written in the same statement as rows or intents, in turn: the next statement of the same
partition begins when the one before is known to be committed. So whoever finds a beacon finds every row that was
written before it. The committed offset names the newest that was known before its transaction began; a database
that lacks it was set back, and what its owner knows of rows is no longer so.

What breaks otherwise: the owner of a restored database finds no rows, and goes on as if everything below the offset
were settled.
"""

import asyncio
from datetime import datetime
from uuid import UUID

from waybill.kernel.clock import format_instant
from waybill.kernel.errors import UnavailableError

__all__ = ["Beacons", "RewoundError"]


class RewoundError(UnavailableError):
    """The control database lacks what a partition's committed offset names; the message says what to run."""

    code = "rewound"

    @classmethod
    def of(cls, tenant: str, destination: str, partition: int, newest: datetime | None) -> "RewoundError":
        """Say it of a partition; `newest` is when the database last heard of it."""
        known = f"knows nothing later than {format_instant(newest)}" if newest else "knows nothing"
        return cls(
            f"the control database {known} of {tenant}/{destination}[{partition}] and lacks what was written since: it "
            "was restored or failed over with a loss. Nothing of the partition is delivered and its offset stays until "
            f"`waybill tasks rebuild --tenant {tenant} --destination {destination} --partition {partition}` has run"
        )


class Beacons:
    """The beacons of one assignment of one partition; lives on the loop."""

    __slots__ = ("_promised", "committed", "named", "newest", "turn")

    def __init__(self) -> None:
        #: Whoever writes one holds it from before the statement until its end is known.
        self.turn = asyncio.Lock()
        #: The newest known to be committed: without it the database is another one.
        self.newest: UUID | None = None
        #: The newest a committed offset names: older ones are of no use to anybody.
        self.named: UUID | None = None
        self._promised: UUID | None = None
        #: The offset committed last: no later owner begins below it.
        self.committed = 0

    def begin(self, named: UUID | None, committed: int) -> None:
        """Begin where the committed offset and its note say."""
        self.newest = self.named = self._promised = named
        self.committed = committed

    def promise(self) -> UUID | None:
        """Return what the next transaction names."""
        self._promised = self.newest
        return self._promised

    def carried(self, committed: int) -> None:
        """Learn that the transaction that named it committed this offset."""
        self.named, self.committed = self._promised, committed
