"""What happened in a run, told so that a person can follow it; kept only when somebody will read it."""

from collections.abc import Callable
from hashlib import sha256

__all__ = ["Trace"]


class Trace:
    """Lines of one run; `is_kept` is asked where making a line costs."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.now: Callable[[], float] = lambda: 0.0
        self._lines: list[tuple[float, str, str]] = []

    def __call__(self, who: str, what: str) -> None:
        """Note that somebody did something."""
        if self.is_kept:
            self._lines.append((self.now(), who, what))

    def lines(self) -> list[str]:
        """Return one line per thing that happened, in order."""
        return [f"{when:9.3f}  {who:<10} {what}" for when, who, what in self._lines]

    def digest(self) -> str:
        """Return a fingerprint: the same seed gives the same one."""
        return sha256("\n".join(self.lines()).encode()).hexdigest()
