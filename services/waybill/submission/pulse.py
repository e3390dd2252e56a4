"""Whether the process turns, and whether it can do its work: what an orchestrator asks.

An outbox that is away is no reason to be not ready: it concerns its tenants, and every other one is still served.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from waybill.kernel.clock import Clock

__all__ = ["Pulse"]

_BEAT_S: Final = 0.5
#: The loop did not turn for so long: no request is answered, none will be.
_DEAD_S: Final = 10.0
#: Configuration, keys and rules are read every second; older than this the control database is away.
_OLD_S: Final = 5.0


class Pulse:
    """Facts for `MetricsServer`; asked from another thread than the loop's."""

    def __init__(self, clock: Clock, config_age_s: Callable[[], float]) -> None:
        self._clock, self._config_age_s = clock, config_age_s
        self._beaten: float | None = None

    def beat(self) -> None:
        """Note that the loop turns."""
        self._beaten = self._clock.monotonic()

    async def keep_beating(self) -> None:
        """Beat as long as the loop turns."""
        while True:
            self.beat()
            await asyncio.sleep(_BEAT_S)

    def alive(self) -> Mapping[str, bool]:
        """Whether the loop turns; before it began it is not judged."""
        return {"loop": self._beaten is None or self._clock.monotonic() - self._beaten < _DEAD_S}

    def ready(self) -> Mapping[str, bool]:
        """Whether requests can be taken, by reason."""
        return {
            **self.alive(),
            "started": self._beaten is not None,
            "control_database": self._config_age_s() < _OLD_S,
        }
