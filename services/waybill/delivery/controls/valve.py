"""The valve before a destination's senders: whether one more attempt may start now.

While nothing restricts a destination, two attributes are looked at per attempt and nothing is computed. What
restricts it is looked at again with every tick, some twenty times a second, and when an attempt ends.
"""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from waybill.contracts.codes import ErrorCode
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.controls.ramp import ramp
from waybill.delivery.core.controls.throttle import Throttle
from waybill.delivery.sender import Target
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["Kept", "Valve"]


class Kept(StrEnum):
    """Why no attempt starts at a destination."""

    #: It answered 429: until the time it named, or a backoff, is over.
    THROTTLED = "throttled"


class HasTarget(Protocol):
    """Who knows where to send to now."""

    target: Target


class Queue(Protocol):
    """Who attempts what is ready."""

    @property
    def inflight(self) -> int:
        """How many attempts are under way."""
        ...

    def wake(self, most: int) -> None:
        """Begin up to so many attempts of what is ready."""
        ...


class Valve:
    """Restrictions of one destination in this process; lives on the loop."""

    def __init__(self, destination: HasTarget, queue: Queue, clock: Clock) -> None:
        self._destination, self._queue, self._clock = destination, queue, clock
        self._log = get_logger("delivery")
        #: Whether anything is to be asked before an attempt and told after it.
        self.is_limited = False
        #: Whether none may start now.
        self.is_shut = False
        #: Why none may start until something changes; None while some may.
        self.why: Kept | None = None
        #: What the destination last asked for by 429, over or not.
        self.throttle: Throttle | None = None
        #: Attempts that may be in flight; None is no bound of ours.
        self._most: int | None = None
        #: Boot-time seconds; None once it is as open as ever.
        self._reopened_at: float | None = None

    def told(self, verdict: Verdict, good: int) -> None:
        """Learn of an attempt that did not end well; `good` counts those that did, so far."""
        if verdict.code is ErrorCode.RATE_LIMIT:
            self._throttle(verdict.retry_after_s, good)

    def spend(self) -> None:
        """Count an attempt that is about to start."""
        if self._most is not None and self._queue.inflight + 1 >= self._most:
            self.is_shut = True

    def ended(self) -> None:
        """Learn that an attempt ended."""
        self._look()

    def tick(self) -> None:
        """Look at what restricts the destination; costs nothing while nothing does."""
        if not self.is_limited:
            return
        self._look()
        if not self.is_shut:
            most = self._destination.target.config.concurrency if self._most is None else self._most
            self._queue.wake(most - self._queue.inflight)

    def _throttle(self, wait_s: float | None, good: int) -> None:
        target, before = self._destination.target, self.throttle
        at = self._clock.now()
        self.throttle = Throttle.after(before, target.name, target.config.retry, wait_s, at=at, good=good)
        self._look()
        if before is None or at >= before.until:
            until, strikes = self.throttle.until.isoformat(), self.throttle.strikes
            names = {"tenant": target.config.tenant, "destination": target.name}
            self._log.info("destination.throttled", **names, until=until, strikes=strikes)

    def _look(self) -> None:
        """Work out anew what may start."""
        mono, why = self._clock.monotonic(), self._why_shut(self._clock.now())
        if why is not None:
            self._reopened_at = None
        elif self.why is not None:
            self._reopened_at = mono
        self.why, self._most = why, None
        if self._reopened_at is not None:
            self._most = ramp(mono - self._reopened_at, self._destination.target.config.concurrency)
        if self._most is None:
            self._reopened_at = None
        self.is_limited = why is not None or self._most is not None
        self.is_shut = why is not None or (self._most is not None and self._queue.inflight >= self._most)

    def _why_shut(self, now: datetime) -> Kept | None:
        if self.throttle is not None and now < self.throttle.until:
            return Kept.THROTTLED
        return None
