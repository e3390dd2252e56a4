"""What travels in the metadata of a partition's committed offset: who wrote it, what of it, and whether it was let go.

The broker keeps the string beside the offset and gives it to the next owner before anything is consumed. Empty
metadata is a start offset that no worker ever owned. A version this code does not know is refused: guessing
could let two owners act at once.
"""

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from waybill.kernel.errors import ContractError

__all__ = ["MAX_METADATA", "MAX_UNSETTLED", "Position"]

#: What the broker takes, one character below its `offset.metadata.max.bytes`: the client adds a trailing NUL.
MAX_METADATA: Final = 4095
#: Offsets a note lists; any more, and `settled_to` ends before them. With five bytes each they still fit.
MAX_UNSETTLED: Final = 500
_VERSION: Final = "waybill1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The note beside a committed offset."""

    epoch: uuid.UUID | None
    #: The owner stopped, drained and let go: nobody has to wait its lease out.
    released: bool
    #: No record at or above it was ever attempted; offsets of the commands topic (`core.reach`).
    sent_to: int = 0
    #: Records below it are settled or stored, but for `unsettled`: ascending offsets, at most `MAX_UNSETTLED`.
    settled_to: int = 0
    unsettled: tuple[int, ...] = ()
    #: Decisions of the partition below it are judged; an owner of before decisions leaves none.
    decided_to: int = 0
    #: Results of the destination on this partition below it are written down; an owner of before results leaves none.
    heard_to: int = 0
    #: The newest mark its owner had left in the database when the transaction began; None before the first.
    beacon: uuid.UUID | None = None

    def encode(self) -> str:
        """Return the metadata string."""
        return (
            f"{_VERSION};epoch={self.epoch};released={int(self.released)};sent_to={self.sent_to}"
            f";decided_to={self.decided_to};heard_to={self.heard_to};settled_to={self.settled_to};unsettled={_pack(self.unsettled)}"
            f";beacon={self.beacon or ''}"
        )

    @classmethod
    def decode(cls, metadata: str | None) -> "Position":
        """Read what an owner left.

        Raises:
            ContractError: the string is not one of ours or of a version this code does not know.
        """
        if not metadata:
            return cls(epoch=None, released=True)
        parts = metadata.split(";")
        fields = dict(part.split("=", 1) for part in parts[1:] if "=" in part)
        sent_to, settled_to = fields.get("sent_to", ""), fields.get("settled_to", "")
        decided_to, heard_to = fields.get("decided_to", "0"), fields.get("heard_to", "0")
        are_numbers = all(text.isdigit() for text in (sent_to, settled_to, decided_to, heard_to))
        is_whole = are_numbers and "unsettled" in fields
        is_ours = parts[0] == _VERSION and fields.get("released") in {"0", "1"} and is_whole
        if not is_ours:
            raise ContractError(
                "the committed offset carries metadata of an unknown form: was the group reset by hand?"
            )
        try:
            epoch = uuid.UUID(fields.get("epoch", ""))
            unsettled = _unpack(fields["unsettled"])
            beacon = uuid.UUID(fields["beacon"]) if fields.get("beacon") else None
        except ValueError as error:
            raise ContractError("the committed offset carries an unreadable epoch, offsets or beacon") from error
        return cls(
            epoch=epoch,
            released=fields["released"] == "1",
            sent_to=int(sent_to),
            settled_to=int(settled_to),
            decided_to=int(decided_to),
            heard_to=int(heard_to),
            unsettled=unsettled,
            beacon=beacon,
        )

    def is_past(self, offset: int, record: int) -> bool:
        """Whether the record is settled or stored, in a transaction that succeeded, beside a committed offset."""
        return record < offset or (record < self.settled_to and record not in self.unsettled)


def _pack(offsets: Sequence[int]) -> str:
    """Return ascending offsets as text: their differences in groups of seven bits, in base 64."""
    packed, before = bytearray(), 0
    for offset in offsets:
        step, before = offset - before, offset
        while step > 127:
            packed.append((step & 127) | 128)
            step >>= 7
        packed.append(step)
    return urlsafe_b64encode(packed).decode().rstrip("=")


def _unpack(text: str) -> tuple[int, ...]:
    """Return what `_pack` was given.

    Raises:
        ValueError: it is not such a text.
    """
    found, offset, step, shift = [], 0, 0, 0
    for byte in urlsafe_b64decode(text + "=" * (-len(text) % 4)):
        step |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            offset += step
            found.append(offset)
            step = shift = 0
    if shift:
        raise ValueError("an offset is cut off")
    return tuple(found)
