"""When a partition counts as stuck: work to do, nothing that forbids it, and nothing happens.

Lag alone is no sign: a destination may be paused, throttled, dead or slow. Stuck is what no reason explains: the
committed offset stands still while something of ours is not settled, a lane could go on, no attempt is under way and
none has ended. The engine never wedges without saying so (I4).
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["STUCK_S", "Sight", "Watch"]

#: So long nothing may happen for no reason. Longer than any lease, hand-over or wait for a database.
STUCK_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of one partition at one instant."""

    #: The offset that may be committed.
    base: int
    #: The offset after the last record read.
    position: int
    #: Records held in memory, and those of them that are neither settled nor stored.
    held: int
    unsettled: int
    #: Attempts under way.
    inflight: int
    #: A lane waits for no time and for nobody.
    has_live_lane: bool
    #: A known reason keeps attempts or rows back: a restricted destination, busy senders, no broker, no database.
    is_excused: bool


class Watch:
    """Looks at one partition again and again."""

    __slots__ = ("_seen", "_since")

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None
        self._since: float | None = None

    def look(self, sight: Sight, mono: float) -> bool:
        """Return whether it is stuck: work to do, no excuse and no progress for too long."""
        seen = (sight.base, sight.position, sight.held)
        has_moved, self._seen = seen != self._seen, seen
        if has_moved or sight.is_excused or sight.inflight > 0 or not sight.has_live_lane:
            self._since = None
            return False
        if self._since is None:
            self._since = mono
        return mono - self._since >= STUCK_S
