"""One destination in this process: its consumer group, the owners of its partitions, its senders."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from waybill.contracts.names import commands_topic, delivery_group
from waybill.delivery.actor import PartitionActor
from waybill.delivery.beacons.known import RewoundError
from waybill.delivery.committer import Committer
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Item, Lane, Limits
from waybill.delivery.core.ownership import Claim
from waybill.delivery.desk import Feeds, Given, Owner
from waybill.delivery.ports import Clients
from waybill.delivery.reader import ReaderThread
from waybill.delivery.rows import RowTools, surface
from waybill.delivery.sender import Target
from waybill.delivery.senders import Senders
from waybill.delivery.takeover import NotTakenError
from waybill.infra.kafka import GroupReader, Listener, Record
from waybill.infra.log import get_logger, is_debug
from waybill.infra.patience import Patience
from waybill.kernel.errors import ContractError, FencedError, TransientError

__all__ = ["DestinationGroup", "GroupSettings"]

_RETAKE_S: Final = (0.2, 0.5, 1.0, 2.0)
_COMMITTED_S: Final = 0.5
#: How often a partition whose database was set back is looked at.
_REWOUND_S: Final = 2.0
#: How often a destination is looked at that has nothing under way and waits for no time.
_QUIET_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What all groups of a worker share."""

    bootstrap: str
    worker: str
    limits: Limits
    #: Seconds that attempts may take to end when a partition is given back.
    drain_s: float = 5.0
    clients: Clients = field(default_factory=Clients)
    #: How many destinations the process works for.
    among: int = 1
    #: What people decided and destinations said, for all groups.
    feeds: Feeds


class DestinationGroup:
    """A destination's deliveries in this process."""

    def __init__(self, target: Target, committer: Committer, tools: RowTools, settings: GroupSettings) -> None:
        self.target, self.committer, self.tools = target, committer, tools
        self.tenant = target.config.tenant
        self.name = delivery_group(target.config.tenant, target.name)
        self.limits, self.worker, self.feeds = settings.limits.copy(), settings.worker, settings.feeds
        self.senders = Senders(self, tools.clock)
        self.ghosts, self.signed = self.senders.ghosts, self.senders.signed
        self.actors: dict[int, PartitionActor] = {}
        #: Attempts that ended by result, `ok`, `accepted` or an error code, since the process began.
        self.counts: Counter[str] = Counter()
        self.results: Counter[str] = Counter()  # by what became of them
        #: Why it cannot work, in words for people; None while it can.
        self.problem: str | None = None
        self.has_ended = asyncio.Event()
        self._settings = settings
        self._topic = commands_topic(self.tenant)
        self._claim = Claim(target.name, tenant=self.tenant, topic=self._topic)
        self._takers: set[asyncio.Task[None]] = set()
        #: Partitions of which we were told that they are somebody else's.
        self._doubted, self._look_at = set[int](), 0.0
        self._log = get_logger("delivery").bind(tenant=self.tenant, destination=target.name)
        strand = settings.clients.strand(f"reader {self.name}")
        self._reader = ReaderThread(self._make_reader, self, self.name, strand)
        self.ask = self._reader.ask

    def start(self) -> None:
        """Join the group and start sending."""
        self._reader.start()

    async def stop(self) -> None:
        """Drain, give everything back, leave the group, close its connections."""
        await self._reader.stop()
        for task in self._takers:
            task.cancel()
        await asyncio.gather(self.senders.stop(), *self._takers, return_exceptions=True)
        await self.target.client.close()

    def retarget(self, target: Target) -> None:
        """Use another configuration from the next attempt on."""
        self.target = target
        self.senders.wake(target.config.concurrency)

    def tick(self) -> None:
        """Do what time asks for; called some twenty times a second, while nothing happens it looks twice a second."""
        mono = self.tools.clock.monotonic()
        if mono < self._look_at and self.senders.is_quiet and self.target.config.results is None:
            return
        self._look_at = mono + _QUIET_S
        self.senders.tick(self.tools.clock.now(), mono)
        for actor in list(self.actors.values()):
            actor.tick(mono)

    def _make_reader(self, listener: Listener) -> GroupReader:
        settings = self._settings
        return settings.clients.reader(settings.bootstrap, self.name, self._topic, listener, settings.among)

    # Receiver: what the reader tells

    def assign(self, partition: int, group_metadata: object) -> PartitionActor:
        """Make the owner of a partition, on the reader's thread."""
        given = Given(
            partition=partition,
            group_metadata=group_metadata,
            epoch=uuid.uuid4(),
            assigned_at=self.tools.clock.monotonic(),
            is_doubted=partition in self._doubted,
        )
        self._doubted.discard(partition)
        return PartitionActor(self, given)

    def select(self, records: Sequence[Record]) -> Sequence[tuple[int, Sequence[Any], int]]:
        """Pick out the records that name this destination, and look into them."""
        return self._claim.take(records)

    def assigned(self, owner: PartitionActor) -> None:
        """Start to take a partition."""
        self.actors[owner.partition] = owner
        self._spawn(self._take(owner))

    def accept(self, batches: list[tuple[PartitionActor, Sequence[Item], int]]) -> None:
        """Pass on what was read."""
        for actor, claimed, position in batches:
            actor.accept(claimed, position)

    async def give_back(self, owners: Sequence[PartitionActor]) -> None:
        """Finish with partitions side by side."""
        await asyncio.gather(*(owner.give_back(self._settings.drain_s) for owner in owners))
        self._forget(owners)

    def dropped(self, owners: Sequence[PartitionActor]) -> None:
        """Forget partitions that belong to somebody else."""
        for owner in owners:
            owner.drop()
        self._forget(owners)

    def ended(self, error: BaseException | None) -> None:
        """Note that the group is left; whoever runs it starts another."""
        if error is not None:
            self.problem = str(error)
            self._log.error("group.ended", reason=str(error), error=type(error).__name__)
        self.dropped(list(self.actors.values()))
        self.has_ended.set()

    def _forget(self, owners: Sequence[PartitionActor]) -> None:
        self.senders.forget(owners)
        for owner in owners:
            if self.actors.get(owner.partition) is owner:
                del self.actors[owner.partition]

    async def _take(self, actor: PartitionActor) -> None:
        patience = Patience(_RETAKE_S)
        while not actor.gone:
            try:
                await actor.take()
            except TransientError as error:
                self._log.info("partition.waiting", partition=actor.partition, reason=str(error))
                await patience.wait()
            except FencedError:  # somebody took it meanwhile: whose it is the brokers say
                actor.refused()
                return
            except RewoundError as error:
                self._say_rewound(actor, error)
                await asyncio.sleep(_REWOUND_S)
            except (NotTakenError, ContractError) as error:
                self.problem = str(error)
                self._log.error("partition.not_taken", partition=actor.partition, reason=str(error))
                self._reader.leave()
                return
            else:
                self.problem = actor.problem = None
                actor.is_held = self.limits.is_closed
                if not actor.is_held:
                    self._reader.tell(_resuming(actor))
                return

    def _say_rewound(self, actor: PartitionActor, error: RewoundError) -> None:
        """Say once what people must do; the partition is taken when they have."""
        if actor.problem is None:
            self._log.error("partition.rewound", partition=actor.partition, reason=str(error))
        actor.problem = str(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._takers.add(task)
        task.add_done_callback(self._takers.discard)
        task.add_done_callback(surface)

    # Desk: what the owners of partitions ask for

    def offer(self, owner: Owner, lane: Lane) -> None:
        """Put a lane in the queue of those that may be attempted."""
        self.senders.offer(owner, lane)

    def later(self, due: datetime, owner: Owner, lane: Lane) -> None:
        """Offer a lane again at an instant."""
        self.senders.later(due, owner, lane)

    def is_under_way(self, lane: Lane) -> bool:
        """Whether an attempt of a lane's head is under way."""
        return self.senders.is_under_way(lane)

    def hold_reading(self, owner: Owner, *, hold: bool) -> None:
        """Pause or resume a partition."""
        self._reader.tell(_pausing(owner) if hold else _resuming(owner))

    async def committed(self, partition: int) -> tuple[int, str | None] | None:
        """Ask the brokers; waits for open transactions on the offset."""
        return await self._reader.ask(lambda reader: reader.committed(partition, _COMMITTED_S))

    def count(self, owner: Owner, verdict: Verdict, item: Item) -> None:
        """Count an attempt; one that did not end well is an event of its own."""
        self.counts[_result(verdict)] += 1
        if verdict.code is not None:
            self.senders.valve.told(verdict, item.aggregate)
            self._log.info("delivery.attempted", **_wide(owner, verdict, item))
        elif is_debug():
            self._log.debug("delivery.attempted", **_wide(owner, verdict, item))

    def refused(self, item: Item) -> None:
        """Note a delivery that can never be sent."""
        self._log.warning("delivery.unreadable", delivery_id=item.delivery_id, offset=item.offset, reason=item.poison)
        self.senders.valve.refused()

    def lost(self, owner: Owner) -> None:
        """Take a partition again that the broker says is another's while the assignment still holds it."""
        if self.actors.get(owner.partition) is owner:
            self._doubted.add(owner.partition)
            self._reader.tell(lambda reader: self._reader.reassign(owner.partition, reader))


def _result(verdict: Verdict) -> str:
    if verdict.code is not None:
        return verdict.code.value
    return "ok" if verdict.is_proven else "accepted"


def _resuming(owner: Owner) -> Callable[[GroupReader], None]:
    def errand(reader: GroupReader) -> None:
        if not owner.gone:
            reader.resume(owner.partition, owner.lanes.position)

    return errand


def _pausing(owner: Owner) -> Callable[[GroupReader], None]:
    def errand(reader: GroupReader) -> None:
        if not owner.gone:
            reader.pause(owner.partition)

    return errand


def _wide(owner: Owner, verdict: Verdict, item: Item) -> dict[str, object]:
    return {
        "delivery_id": item.delivery_id,
        "partition": owner.partition,
        "offset": item.offset,
        "sequence": item.sequence,
        "attempt": item.attempts + 1,
        "code": verdict.code.value if verdict.code else None,
        "detail": verdict.detail,
        "phase": verdict.phase.value,
        "http_status": verdict.http_status,
    }
