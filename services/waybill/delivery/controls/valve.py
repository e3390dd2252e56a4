"""The valve before a destination's senders: whether one more attempt may start now.

While nothing restricts a destination, two attributes are looked at per attempt and nothing is computed. What
restricts it is looked at again with every tick, some twenty times a second, and when an attempt ends. Restrictions
come from the destination's answers (429, failures, 410, refusals), from people, and from limits.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from waybill.contracts.codes import RETRIED, ErrorCode
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.controls.circuit import Circuit, CircuitState, is_sick
from waybill.delivery.core.controls.ramp import ramp
from waybill.delivery.core.controls.refusals import RefusalGuard
from waybill.delivery.core.controls.shares import Bucket
from waybill.delivery.core.controls.standing import Standing
from waybill.delivery.core.controls.throttle import Throttle
from waybill.delivery.sender import Target
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["Allowance", "Kept", "Pool", "Valve"]

#: The status and the table's word for a destination that is gone; a problem document speaks of one delivery instead.
_GONE: Final = (410, "gone")


class Kept(StrEnum):
    """Why no attempt starts at a destination."""

    #: People paused it, or the guard against mass dead-lettering did.
    PAUSED = "paused"
    #: People drained it, and what was read is finished.
    DRAINED = "drained"
    #: It answered 410.
    CLOSED = "closed"
    #: It answered 429: until the time it named, or a backoff, is over.
    THROTTLED = "throttled"
    #: Nearly everything failed there: one attempt at a time finds out whether it lives.
    DEAD = "dead"


_BY_STANDING: Final = {Standing.PAUSED: Kept.PAUSED, Standing.CLOSED: Kept.CLOSED}


@dataclass(slots=True)
class Pool:
    """What all destinations of a tenant may begin together."""

    bucket: Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A destination's limits in this process; None is no bound."""

    rate_per_s: float | None = None
    in_flight: int | None = None


class Gated(Protocol):
    """The destination as its valve sees it."""

    target: Target
    #: Attempts that ended by result, `ok` or an error code.
    counts: Counter[str]


class Queue(Protocol):
    """Who attempts what is ready."""

    @property
    def inflight(self) -> int:
        """How many attempts are under way."""
        ...

    def wake(self, most: int) -> None:
        """Begin up to so many attempts of what is ready."""
        ...


def _nobody(standing: Standing, reason: str) -> None:
    """Tell nobody."""


class Valve:
    """Restrictions of one destination in this process; lives on the loop."""

    def __init__(self, destination: Gated, queue: Queue, clock: Clock) -> None:
        self._destination, self._queue, self._clock = destination, queue, clock
        self._log = get_logger("delivery")
        #: Whether anything is to be asked before an attempt and told after it.
        self.is_limited = False
        #: Whether none may start now.
        self.is_shut = False
        #: Why none may start until something changes, probes apart; None while some may.
        self.why: Kept | None = None
        #: Since when that is so; boot-time seconds, as below.
        self.why_since = clock.monotonic()
        #: Since when attempts begin again slowly; None while they do not.
        self.reopened_at: float | None = None
        #: Told when an answer, or too many of them, ends all attempts until people resume them.
        self.on_stop: Callable[[Standing, str], None] = _nobody
        self.standing, self.is_drained = Standing.RUNNING, False
        self.throttle: Throttle | None = None
        self.circuit = Circuit()
        self._guard = RefusalGuard()
        self._sick = 0
        self._allowance, self._bucket = Allowance(), Bucket()
        # What a tenant's or the process's bound leaves to this destination until the next look.
        self._pool: Pool | None = None
        self._pool_left: int | None = None
        self._pool_most: int | None = None
        # Attempts that may be in flight, and those that may begin; None is no bound.
        self._most: int | None = None
        self._left: int | None = None

    # What the destination answers

    def told(self, verdict: Verdict, aggregate: str) -> None:
        """Learn of an attempt that did not end well, after it was counted."""
        if is_sick(verdict):
            self._sick += 1
            self.circuit.failed(aggregate, self._clock.monotonic(), self._alive())
        elif verdict.code is ErrorCode.RATE_LIMIT:
            self._throttle(verdict.retry_after_s)
        elif (verdict.http_status, verdict.detail) == _GONE:
            self._stop(Standing.CLOSED, "it answered 410 Gone")
        elif verdict.code not in RETRIED:
            self.refused()
        self._look()

    def refused(self) -> None:
        """Learn of a delivery that ended for good without being done."""
        if self._guard.refused(self._clock.monotonic(), self._destination.counts["ok"]):
            self._stop(Standing.PAUSED, f"{self._guard.told()}: paused before more end so")
            self._look()

    # What people and limits say

    def restrict(self, standing: Standing, allowance: Allowance, *, is_drained: bool) -> None:
        """Follow what is in force."""
        if standing is Standing.RUNNING and self.standing is not Standing.RUNNING:
            self.throttle = None
            self.circuit.close(self._clock.monotonic(), self._alive())
            self._guard.forget()
        self.standing, self._allowance, self.is_drained = standing, allowance, is_drained
        self._look()

    def share(self, pool: Pool | None, left: int | None, most: int | None) -> None:
        """Follow what is left of a bound that several destinations share."""
        if (pool, left, most) != (None, None, None) or self._pool_left is not None or self._pool_most is not None:
            self._pool, self._pool_left, self._pool_most = pool, left, most
            self._look()

    # What the senders ask and tell

    def spend(self) -> None:
        """Count an attempt that is about to start."""
        if self._allowance.rate_per_s is not None:
            self._bucket.spend()
        if self._pool is not None and self._pool_left is not None:
            self._pool.bucket.spend()
            self._pool_left -= 1
        if self._left is not None:
            self._left -= 1
        self.is_shut = _is_used_up(self._left) or _is_used_up(self._most, self._queue.inflight + 1)

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
            room = most - self._queue.inflight
            self._queue.wake(room if self._left is None else min(room, self._left))

    # Deciding

    def _alive(self) -> int:
        """Count the attempts whose end shows that the destination is there."""
        return sum(self._destination.counts.values()) - self._sick

    def _throttle(self, wait_s: float | None) -> None:
        target, before, at = self._destination.target, self.throttle, self._clock.now()
        good, policy = self._destination.counts["ok"], target.config.retry
        self.throttle = Throttle.after(before, target.name, policy, wait_s, at=at, good=good)

    def _stop(self, standing: Standing, reason: str) -> None:
        if self.standing is not Standing.RUNNING:
            return
        self.standing = standing
        config = self._destination.target.config
        names = {"tenant": config.tenant, "destination": config.name, "owner": config.owner}
        self._log.error("destination.stopped", standing=standing.value, reason=reason, **names)
        self.on_stop(standing, reason)

    def _look(self) -> None:
        """Work out anew what may start."""
        mono, why = self._clock.monotonic(), self._why(self._clock.now())
        if why is not self.why:
            self.why_since = mono
            self._tell(why)
        if why is not None:
            self.reopened_at = None
        elif self.why is not None:
            self.reopened_at = mono
        self.why = why
        is_probing = why is Kept.DEAD and self.circuit.state is CircuitState.HALF_OPEN
        self._most, self._left = self._bounds(mono, is_probing=is_probing)
        self.is_limited = why is not None or self._most is not None or self._left is not None
        is_kept = why is not None and not is_probing
        self.is_shut = is_kept or _is_used_up(self._left) or _is_used_up(self._most, self._queue.inflight)

    def _why(self, now: datetime) -> Kept | None:
        by_people = Kept.DRAINED if self.is_drained else _BY_STANDING.get(self.standing)
        if by_people is not None:
            return by_people
        if self.throttle is not None and now < self.throttle.until:
            return Kept.THROTTLED
        if self.circuit.state is CircuitState.CLOSED:
            return None
        is_open = self.circuit.look(self._clock.monotonic(), self._alive()) is CircuitState.CLOSED
        return None if is_open else Kept.DEAD

    def _bounds(self, mono: float, *, is_probing: bool) -> tuple[int | None, int | None]:
        """Return how many attempts may be in flight and how many may begin."""
        slowly = None
        if self.reopened_at is not None:
            slowly = ramp(mono - self.reopened_at, self._destination.target.config.concurrency)
            if slowly is None:
                self.reopened_at = None
        allowance = self._allowance
        paced = None if allowance.rate_per_s is None else self._bucket.fill(allowance.rate_per_s, mono)
        probes = 1 if is_probing else None
        return _least(slowly, probes, allowance.in_flight, self._pool_most), _least(paced, self._pool_left)

    def _tell(self, why: Kept | None) -> None:
        config = self._destination.target.config
        names = {"tenant": config.tenant, "destination": config.name}
        if why is None:
            self._log.info("destination.reopened", **names)
        elif why is Kept.THROTTLED and self.throttle is not None:
            self._log.info("destination.held_back", why=why.value, until=self.throttle.until.isoformat(), **names)
        else:
            self._log.warning("destination.held_back", why=why.value, owner=config.owner, **names)


def _least(*bounds: int | None) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known else None


def _is_used_up(bound: int | None, used: int = 0) -> bool:
    return bound is not None and used >= bound
