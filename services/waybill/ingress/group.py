"""The group of a tenant that copies its ingress topic into the outbox.

A run of events goes into the outbox in one transaction; then position and dead letters move together, and the
committer makes them one transaction of Kafka. While a database does not answer, the partition stays where it is and
asks again; the others go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import psycopg

from waybill.contracts.codec import DEAD_LETTER, AvroWriter
from waybill.contracts.fabric import FabricConfig, TenantConfig
from waybill.contracts.names import dead_letters_topic, ingress_group, ingress_topic
from waybill.delivery.committer import Committer
from waybill.delivery.ordered import CarriedPartition, Letter, OrderedGroup, Recorded, Seat, dead_letter
from waybill.delivery.ports import Clients
from waybill.infra.kafka import Outgoing, Record
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.ingress.core.judging import Wanted, judge, letter_for
from waybill.ingress.taking import Taking
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, TransientError, UnavailableError
from waybill.kernel.ids import Tenant

__all__ = ["IngressGroup", "IngressSettings", "Judged", "runs"]

#: In one transaction of the outbox: it holds the lock of every aggregate in it.
_MAX_RUN: Final = 500
_MAX_RUN_BYTES: Final = 4 * 1024 * 1024
#: How long an outbox may take to answer; what it did then is found when it is asked again.
_ANSWER_S: Final = 30.0
#: Waits while it does not answer, seconds; the last repeats.
_WAITS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_LAG_S: Final = 0.5
_LOOK_S: Final = 0.05
#: How long what an outbox was asked may take when a partition is given back.
_FINISH_S: Final = 5.0
#: The brokers choose: by the key, where every record of an aggregate lies.
_BY_KEY: Final = -1

Judged = tuple[Record, Wanted | Letter]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """What the group needs to know."""

    tenant: Tenant
    bootstrap: str
    #: Who records dead letters: host name and slot.
    worker: str
    dead_letter_schema: int
    clients: Clients = field(default_factory=Clients)


def runs(judged: Sequence[Judged]) -> Iterator[Sequence[Judged]]:
    """Cut records into runs that one transaction takes: bounded, and no key twice in one."""
    run: list[Judged] = []
    keys: set[str] = set()
    size = 0
    for record, found in judged:
        key = found.key if isinstance(found, Wanted) else ""
        weight = len(record.value or b"")
        if run and (key in keys or len(run) >= _MAX_RUN or size + weight > _MAX_RUN_BYTES):
            yield run
            run, keys, size = [], set(), 0
        run.append((record, found))
        size += weight
        if key:
            keys.add(key)
    if run:
        yield run


class IngressGroup(OrderedGroup):
    """One tenant's ingress in this process."""

    def __init__(
        self,
        settings: IngressSettings,
        committer: Committer,
        taking: Taking,
        config: Callable[[], FabricConfig],
        clock: Clock,
    ) -> None:
        tenant = settings.tenant
        seat = Seat(
            tenant=tenant,
            group=ingress_group(tenant),
            topic=ingress_topic(tenant),
            bootstrap=settings.bootstrap,
            clients=settings.clients,
        )
        super().__init__(seat, committer)
        self._log = get_logger("ingress").bind(tenant=tenant)
        self._settings, self._taking, self._config, self._clock = settings, taking, config, clock
        self._writer = AvroWriter(DEAD_LETTER, settings.dead_letter_schema)
        self._dead_letters = dead_letters_topic(tenant)
        #: Events since the process began: taken, repeated, refused.
        self.events: Counter[str] = Counter()
        #: Dead letters by cause.
        self.letters: Counter[str] = Counter()
        #: Partition → since when its outbox does not answer, by the monotonic clock.
        self.blocked: dict[int, float] = {}

    def select(self, records: Sequence[Record]) -> list[tuple[int, Sequence[Record], int]]:
        """Hand over everything."""
        found: dict[int, list[Record]] = {}
        for record in records:
            found.setdefault(record.partition, []).append(record)
        return [(partition, listed, listed[-1].offset + 1) for partition, listed in found.items()]

    async def settle(self, owner: CarriedPartition, batch: Sequence[Record]) -> None:
        """Take each event, or bury it."""
        config = self._config()
        tenant = config.tenant(self._settings.tenant)
        if tenant is None or tenant.ingress is None:  # not asked for any more: what is there stays where it is
            while not owner.gone:  # noqa: ASYNC110 - a fact without an event
                await asyncio.sleep(_LOOK_S)
            return
        now = self._clock.now()
        judged = [(record, judge(record.headers, record.value, tenant, now)) for record in batch]
        for run in runs(judged):
            answers = await self._answers(owner, tenant, [found for _, found in run if isinstance(found, Wanted)])
            if answers is None:
                return
            letters: list[Outgoing] = []
            for record, found in run:
                letter = letter_for(answers[found.key], found) if isinstance(found, Wanted) else found
                if letter is not None:
                    letters.append(self._bury(record, letter, config.version))
                elif isinstance(found, Wanted):
                    self.events[answers[found.key]] += 1
            # In one step, so that no transaction carries the one without the other.
            owner.position = run[-1][0].offset + 1
            if letters:
                self._committer.add(owner, tuple(letters))

    async def give_back(self, owners: Sequence[CarriedPartition]) -> None:
        """Finish what an outbox was asked, say how far it got and let go."""
        for owner in owners:
            owner.gone = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_S):
                while any(owner.is_working and owner.partition not in self.blocked for owner in owners):  # noqa: ASYNC110 - a fact without an event
                    await asyncio.sleep(_LOOK_S)
        await super().give_back(owners)

    async def lag(self) -> int:
        """Return how many offsets of its partitions lie before it.

        Raises:
            TransientError: the brokers do not answer now.
        """
        topic, owners = self.seat.topic, [owner for owner in self.partitions.values() if owner.position >= 0]
        ends = await self._reader.ask(
            lambda reader: [reader.stable_end(topic, owner.partition, _LAG_S) for owner in owners]
        )
        return sum(max(end - owner.position, 0) for end, owner in zip(ends, owners, strict=True))

    async def _answers(
        self, owner: CarriedPartition, tenant: TenantConfig, wanted: Sequence[Wanted]
    ) -> dict[str, str] | None:
        """Ask until the outbox answers; None when the partition is gone meanwhile."""
        patience = Patience(_WAITS)
        while not owner.gone:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    found = await self._taking.take(tenant, wanted, self._clock.now())
            except (psycopg.Error, ConfigError, TransientError, UnavailableError, TimeoutError) as error:
                self._blocked_by(owner, error)
                await patience.wait()
            else:
                if self.blocked.pop(owner.partition, None) is not None:
                    self._log.info("ingress.goes_on", partition=owner.partition)
                return {each.key: answer for each, answer in zip(wanted, found, strict=True)}
        self.blocked.pop(owner.partition, None)
        return None

    def _blocked_by(self, owner: CarriedPartition, error: Exception) -> None:
        self.blocked.setdefault(owner.partition, self._clock.monotonic())
        # of our own errors only: a database may quote what it was given
        said = str(error) if isinstance(error, ConfigError | UnavailableError) else type(error).__name__
        state = getattr(error, "sqlstate", None)
        self._log.warning("ingress.blocked", partition=owner.partition, reason=said, sqlstate=state)

    def _bury(self, record: Record, letter: Letter, config_version: int) -> Outgoing:
        recorded = Recorded(
            tenant=self._settings.tenant,
            topic=self.seat.topic,
            by=self._settings.worker,
            at=self._clock.now(),
            config_version=config_version,
        )
        self.events["refused"] += 1
        self.letters[letter.cause] += 1
        self._log.warning("ingress.refused", partition=record.partition, offset=record.offset, cause=letter.cause)
        value = self._writer.encode(dead_letter(record, letter, recorded))
        if letter.aggregate is None:
            return Outgoing(self._dead_letters, record.partition, b"", value)
        return Outgoing(self._dead_letters, _BY_KEY, letter.aggregate.encode(), value)
