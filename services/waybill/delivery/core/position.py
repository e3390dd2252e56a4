"""What travels in the metadata of a partition's committed offset: who wrote it, and whether it was let go.

The broker keeps the string beside the offset and gives it to the next owner before anything is consumed. Empty
metadata is a start offset that no worker ever owned. A version this code does not know is refused: guessing
could let two owners act at once.
"""

import uuid
from dataclasses import dataclass
from typing import Final

from waybill.kernel.errors import ContractError

__all__ = ["MAX_METADATA", "Position"]

#: What the broker takes, one character below its `offset.metadata.max.bytes`: the client adds a trailing NUL.
MAX_METADATA: Final = 4095
_VERSION: Final = "waybill1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The note beside a committed offset."""

    epoch: uuid.UUID | None
    #: The owner stopped, drained and let go: nobody has to wait its lease out.
    released: bool

    def encode(self) -> str:
        """Return the metadata string."""
        return f"{_VERSION};epoch={self.epoch};released={int(self.released)}"

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
        if parts[0] != _VERSION or fields.get("released") not in {"0", "1"}:
            raise ContractError(
                "the committed offset carries metadata of an unknown form: was the group reset by hand?"
            )
        try:
            epoch = uuid.UUID(fields.get("epoch", ""))
        except ValueError as error:
            raise ContractError("the committed offset carries an unreadable epoch") from error
        return cls(epoch=epoch, released=fields["released"] == "1")
