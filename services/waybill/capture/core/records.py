"""What is kept of one delivery that came in: as it came, what its signature is worth, what the listener answered."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

__all__ = ["Answered", "Captured", "Checked", "Failed", "Headers"]

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the verification says of it; `check`, `code` and `reason` are None where it may be believed."""

    is_believed: bool
    check: str | None = None
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the listener behind answered, and what that means."""

    status: int
    headers: Headers
    body: bytes
    took_ms: int
    meaning: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """No whole answer came from behind; `was_sent` where something may have been done there."""

    detail: str
    was_sent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One delivery."""

    number: int
    received_at: datetime
    headers: Headers
    body: bytes
    checked: Checked
    #: None while it is under way.
    ending: Answered | Failed | None = None
    #: The number of the one that this was sent again for.
    replay_of: int | None = None

    def header(self, name: str) -> str | None:
        """Return the first value under a name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)
