"""What the owners of partitions share, and what they are to each other: the seams inside the component."""

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from waybill.contracts.decision import Decision
from waybill.delivery.committer import Committer, Fenced
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.freshness import Signed
from waybill.delivery.core.lanes import Item, Lane, Limits, PartitionLanes
from waybill.delivery.core.records import Place, Try
from waybill.delivery.core.repeats import Outcome
from waybill.delivery.core.results.believing import Arrived
from waybill.delivery.handover.listeners import ListenerOffsets
from waybill.delivery.rows import RowTools
from waybill.delivery.sender import Target
from waybill.delivery.store import Owned
from waybill.infra.kafka import GroupReader
from waybill.infra.topic_feed import TopicFeed
from waybill.kernel.ids import Tenant

__all__ = ["Desk", "Feeds", "Given", "Owner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """What a process reads for all its owners."""

    decisions: TopicFeed[Decision]
    results: TopicFeed[Arrived]
    #: How far the listeners of those who take deliveries from Kafka have read.
    listeners: ListenerOffsets

    async def close(self) -> None:
        """End all of them."""
        self.listeners.close()
        await self.decisions.close()
        await self.results.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An assignment, as the reader's thread captured it."""

    partition: int
    group_metadata: object
    epoch: uuid.UUID
    #: Boot-time seconds.
    assigned_at: float
    #: An owner before was refused: the brokers are asked before anybody is shut out.
    is_doubted: bool = False


class Careful(Protocol):
    """Attempts that are written down first."""

    async def attempt(self, item: Item) -> Outcome | None:
        """Make an attempt that is written down first; None when the partition is somebody else's.

        Raises:
            ContractError: it can never be sent; nothing was written.
        """
        ...

    async def may_have_sent(self, item: Item) -> bool:
        """Whether a byte of a delivery may have left, as far as attempts are written down first."""
        ...

    def conclude(self, lane: Lane, item: Item, outcome: Outcome | None) -> None:
        """Go on after such an attempt."""
        ...

    async def sends(self, item: Item) -> tuple[int, datetime | None]:
        """Return how many attempts of a delivery may have left a byte, and the first of them."""
        ...

    async def disprove(self, item: Item, verdict: Verdict, attempt: Try) -> None:
        """Answer the last attempt, if nobody did: it was not done."""
        ...


class Settles(Protocol):
    """What ends attempts."""

    def finished(self, lane: Lane, item: Item, verdict: Verdict, attempt: Try) -> None:
        """Record what an attempt came to and move on."""
        ...

    def poisoned(self, lane: Lane, item: Item) -> None:
        """End a delivery that can never be sent."""
        ...


class Owner(Fenced, Protocol):
    """The owner of one partition, as its settler and its destination see it."""

    partition: int
    owned: Owned
    place: Place
    lanes: PartitionLanes
    #: Somebody else's, or nobody's: results are dropped.
    gone: bool
    #: Attempts under way.
    inflight: int
    #: Nothing of it is dispatched any more.
    is_closing: bool

    @property
    def settler(self) -> Settles:
        """What attempts come to is brought here."""
        ...

    @property
    def intents(self) -> Careful:
        """How attempts are made at a destination that cannot bear every repeat."""
        ...

    def next(self, lane: Lane) -> Item | None:
        """Return the lane's head when it may be attempted now; otherwise see to it that it will be."""
        ...

    def slow(self, lane: Lane, item: Item, deadline: datetime) -> None:
        """Give an attempt that takes long its row while it is in flight."""
        ...

    def pump(self) -> None:
        """Pass on what the lanes made ready or want to read."""
        ...

    def remember(self, delivery_id: str) -> None:
        """Know from now on that a row of this delivery exists."""
        ...


class Desk(Protocol):
    """What a destination does for the owners of its partitions."""

    tenant: Tenant
    target: Target
    committer: Committer
    feeds: Feeds
    tools: RowTools
    limits: Limits
    worker: str
    #: Results that were weighed, by what became of them.
    results: Counter[str]
    #: Aggregates with an attempt of a former owner in this process.
    ghosts: dict[str, int]
    #: What was signed in this second.
    signed: Signed

    def offer(self, owner: Owner, lane: Lane) -> None:
        """Put a lane in the queue of those that may be attempted."""
        ...

    def is_under_way(self, lane: Lane) -> bool:
        """Whether an attempt of a lane's head is under way."""
        ...

    def later(self, due: datetime, owner: Owner, lane: Lane) -> None:
        """Offer a lane again at an instant."""
        ...

    def hold_reading(self, owner: Owner, *, hold: bool) -> None:
        """Pause or resume reading its partition."""
        ...

    async def committed(self, partition: int) -> tuple[int, str | None] | None:
        """Return the group's committed offset and metadata."""
        ...

    @property
    def ask(self) -> "Callable[[Callable[[GroupReader], int]], Awaitable[int]]":
        """Runs an errand on the reader's thread and returns its answer."""
        ...

    def count(self, owner: Owner, verdict: Verdict, item: Item) -> None:
        """Count one attempt."""
        ...

    def refused(self, item: Item) -> None:
        """Note a delivery that can never be sent."""
        ...

    def lost(self, owner: Owner) -> None:
        """Learn that somebody else owns the partition."""
        ...
