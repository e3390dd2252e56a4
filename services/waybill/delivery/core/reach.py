"""How far into a partition attempts may have gone, so that the next owner knows what nobody sent.

Beside the committed offset stands `sent_to`: no attempt of a record at or above it was ever begun. It is raised ahead
of the attempts by a window, and an attempt beyond what the last successful transaction said waits for the next one.
A record first read below what a former owner left may have been sent: its end is never reported as "not executed".

The offset itself waits for the slowest record. So the note also says which records above it are settled or stored;
they are passed over when they are read again, not sent again, and never told twice.
"""

from collections.abc import Collection, Sequence
from typing import Final

from waybill.delivery.core.position import MAX_UNSETTLED

__all__ = ["NARROW", "WINDOW", "Reach"]

#: Offsets a transaction allows beyond what was read: more than are attempted between two transactions, few enough
#: that a crash leaves little in doubt.
WINDOW: Final = 2_000
#: The same where every attempt is written down: should that be lost, what lies below is ambiguous, and the wait for a
#: transaction is nothing beside the wait for the database.
NARROW: Final = 100


class Reach:
    """One owner's account of one partition, in offsets of its commands."""

    __slots__ = ("_attempted", "_former", "_granted", "_promised", "_settled_to", "_unsettled", "_window")

    def __init__(
        self, former: int = 0, settled_to: int = 0, unsettled: Collection[int] = (), window: int = WINDOW
    ) -> None:
        """Take over what the former owner left; zeros are nothing.

        Args:
            former: its `sent_to`.
            settled_to: below this everything was settled or stored,
            unsettled: but for these.
            window: how far a transaction allows attempts beyond what was read.
        """
        self._window = window
        self._former = self._promised = former
        self._granted = self._attempted = 0
        self._settled_to, self._unsettled = settled_to, frozenset(unsettled)

    def is_settled(self, offset: int) -> bool:
        """Whether a former owner settled or stored the record at an offset, in a transaction that succeeded."""
        return offset < self._settled_to and offset not in self._unsettled

    def is_doubtful(self, offset: int) -> bool:
        """Whether a former owner may have sent the record at an offset."""
        return offset < self._former

    def settled(self, unsettled: Sequence[int], settled_to: int, position: int) -> tuple[tuple[int, ...], int]:
        """Return what the next transaction says of settled records: ours, and the former owner's of those not read yet.

        Args:
            unsettled: what of ours is neither settled nor stored, ascending, complete below `settled_to`.
            settled_to: at most the offset after the last record read.
            position: the offset after the last record read.
        """
        if settled_to < position or self._settled_to <= position:
            return tuple(unsettled), settled_to
        listed = (*unsettled, *sorted(offset for offset in self._unsettled if offset >= position))
        if len(listed) > MAX_UNSETTLED:
            return listed[:MAX_UNSETTLED], listed[MAX_UNSETTLED]
        return listed, self._settled_to

    def allows(self, offset: int) -> bool:
        """Whether the record at an offset may be attempted under the last successful transaction."""
        return offset < self._granted

    def note(self, offset: int) -> None:
        """Remember that the record at an offset is attempted."""
        self._attempted = max(self._attempted, offset + 1)

    def promise(self, position: int, *, is_released: bool) -> int:
        """Return what the next transaction says.

        Args:
            position: the offset after the last record read.
            is_released: whether nothing is attempted any more: then it says how far attempts really went.
        """
        if is_released:
            self._promised = max(self._former, self._attempted)
        else:
            self._promised = max(self._promised, position + self._window)
        return self._promised

    def carried(self) -> None:
        """Learn that the transaction that said it succeeded."""
        self._granted = self._promised
