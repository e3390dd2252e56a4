"""What the executor asks of a dedup store.

A transaction of a store (`Work`) claims a delivery, lends the handler what it writes through, and completes the record
with the receipt; it commits as a whole or not at all. Two claims of one delivery, or of one operation, never both
succeed: the second waits for the first and then finds what it left. Where a store breaks this, an effect happens twice.

Where the effect lies outside the store (`Effect.ELSEWHERE`) nothing commits it together with the record. The claim is
then committed first, as *pending*; it is resumed under a lock that dies with its holder, and what is still pending
afterwards may have acted: the next attempt finds out before it begins anew (GW-6).
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from waybill.contracts.baseline import BaselinePart
from waybill.contracts.envelope import GapResolution
from waybill.contracts.fabric import Profile
from waybill.kernel.errors import ConfigError
from waybill.listener.core.baseline import Asked
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Pending, Stored
from waybill.listener.core.message import Received
from waybill.listener.core.verification import Binding, Lane

__all__ = [
    "Baselines",
    "DedupStore",
    "Effect",
    "Found",
    "Memory",
    "StoreBusyError",
    "UnderWayError",
    "Work",
    "check_promise",
]

#: What a claim meets: nothing, something executed, or something that may have acted.
Found: TypeAlias = Stored | Pending | None


class StoreBusyError(Exception):
    """The store did not get to it in time; nothing was done."""


class UnderWayError(Exception):
    """The delivery that is asked about is being executed."""


class Effect(StrEnum):
    """Where what a handler does becomes durable."""

    #: In the store's own transaction: it is there with the record or not at all.
    INSIDE = "inside"
    #: In another system: the record is pending meanwhile.
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a store remembers."""

    #: The strongest profile it makes true.
    profile: Profile
    #: How long a repeat is recognised; zero where it is not.
    retention: timedelta
    effect: Effect = Effect.INSIDE
    #: Whether it keeps how far each aggregate has come.
    has_lanes: bool = False


class Baselines(Protocol):
    """Baselines in the transaction of a `Work`."""

    async def ask(self, binding: Binding, nonce: str, at: datetime) -> None:
        """Remember that a baseline is asked for; what was asked for before counts no more."""
        ...

    async def asked(self, binding: Binding) -> Asked | None:
        """Lock the last time it was asked until the transaction ends, and say what has come since; None: never."""
        ...

    async def stage(self, part: BaselinePart, at: datetime) -> None:
        """Keep a part for what `asked` returned."""
        ...

    async def apply(self, binding: Binding, at: datetime) -> int:
        """Let all parts that were kept count; return how many lanes were moved on. A lane is never moved back."""
        ...


class Work(Protocol):
    """One transaction."""

    async def claim(self, claim: Claim) -> Found:
        """Record the delivery as being executed here, after waiting for whoever executes it; None: it is ours."""
        ...

    async def resume(self, claim: Claim) -> Stored | Pending:
        """Lock the record of a pending delivery until the transaction ends, and say what it is now."""
        ...

    async def complete(self, claim: Claim, receipt: bytes, executed_at: datetime) -> None:
        """Give the claimed record its receipt."""
        ...

    async def forget(self, claim: Claim) -> None:
        """Take a pending record back; one with a receipt stays."""
        ...

    async def lane(self, claim: Claim) -> Lane:
        """Lock the lane of the claim's aggregate until the transaction ends, and say how far it has come."""
        ...

    async def take_turn(self, claim: Claim, lane: Lane, sequence: int) -> None:
        """Take a delivery's turn in a lane that was read."""
        ...

    async def note(self, claim: Claim, gap: GapResolution) -> None:
        """Remember what a gap resolution says."""
        ...

    async def baselines(self) -> Baselines | None:
        """Return the baselines of this transaction; None where no lanes are kept."""
        ...

    async def call(self, function: Callable[[Received, Any], Any], command: Received) -> Any:
        """Call a handler with the command and what it may write through; in a thread when it is not `async`."""
        ...


class DedupStore(Protocol):
    """A store; safe for many tasks of one event loop."""

    @property
    def memory(self) -> Memory:
        """What it remembers."""
        ...

    async def open(self) -> None:
        """Make it ready; does nothing when it is. Raises UnavailableError or ConfigError."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...

    async def ping(self) -> None:
        """Give a sign of life; raises what `is_unavailable` knows."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Work]:
        """Open a transaction: committed at the end, rolled back by an exception."""
        ...

    async def look(self, claim: Claim) -> Found:
        """Say what was executed under the delivery's id or operation, without claiming it; raises UnderWayError."""
        ...

    async def purge(self, now: datetime) -> int:
        """Drop what is behind the retention; return how much."""
        ...

    def is_unavailable(self, error: Exception) -> bool:
        """Whether an error means that the store could not serve, so that nothing was done and a retry may succeed."""
        ...


#: What a profile promises, weakest first.
_STRENGTH: Final = (Profile.NON_IDEMPOTENT, Profile.BOUNDED_DEDUPLICATION, Profile.DURABLE_IDEMPOTENT)


def check_promise(memory: Memory, declared: Profile, retry_horizon: timedelta | None, *, in_order: bool) -> None:
    """Refuse a listener that declares more than its store keeps (GW-7, GW-8).

    Raises:
        ConfigError: says what is promised, what is kept, and what to change.
    """
    if _STRENGTH.index(declared) > _STRENGTH.index(memory.profile):
        raise ConfigError(
            f"the profile {declared.value} promises more than this store keeps: it makes {memory.profile.value} true; "
            "declare that, or take a store that remembers more"
        )
    if in_order and not memory.has_lanes:
        raise ConfigError("in_order needs a store that keeps how far each aggregate has come: PostgreSQL or SQLite")
    if retry_horizon is not None and declared is not Profile.NON_IDEMPOTENT and memory.retention < retry_horizon:
        raise ConfigError(
            f"the store recognises a repeat for {memory.retention}, but the sender repeats for {retry_horizon}, the "
            "longest ttl of a route to here: keep records at least as long, or shorten the ttl"
        )
