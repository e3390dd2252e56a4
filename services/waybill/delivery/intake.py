"""The group of a tenant that answers for records no destination can own (DC-22).

It reads every command and dead-letters two kinds: a record whose aggregate or sequences cannot be read, and, per
delivery, a named destination that is not live in the configuration the command was resolved against. Whatever
else is wrong with a record is the named destination's to end in its own lane. A partition waits while the
configuration a record names is not known here yet: judging by an older one would bury live work.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from waybill.contracts.codec import DEAD_LETTER, AvroWriter
from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import peek
from waybill.contracts.envelope import delivery_id_text
from waybill.contracts.fabric import FabricConfig
from waybill.contracts.names import commands_topic, dead_letters_topic, intake_group
from waybill.delivery.committer import Committer
from waybill.delivery.core.position import Position
from waybill.delivery.core.records import dead_letter_id, millis
from waybill.delivery.ports import Clients
from waybill.delivery.reader import ReaderThread
from waybill.infra.kafka import GroupReader, Listener, OffsetMove, Outgoing, Record
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError, TransientError
from waybill.kernel.ids import CommandId, DestinationName, Tenant

__all__ = ["Intake", "IntakeSettings"]

_MAX_WAITING: Final = 2000
_CONFIG_POLL_S: Final = 0.1
_NO_VALUE: Final = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """What intake needs to know."""

    tenant: Tenant
    bootstrap: str
    worker: str
    dead_letter_schema: int
    clients: Clients = field(default_factory=Clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Why a record, or one delivery of it, ends here."""

    code: ErrorCode
    cause: str
    detail: str
    destination: str | None = None
    delivery_id: str | None = None
    aggregate: str | None = None
    sequence: int | None = None


def judge(record: Record, config: FabricConfig, tenant: Tenant) -> list[Letter]:
    """Return what of a record nobody can own under a configuration; pure."""
    try:
        seen = peek(record.key, record.headers)
    except ContractError as error:
        return [Letter(code=ErrorCode.VALIDATION, cause="unreadable", detail=str(error))]
    letters = []
    for name, sequence in seen.sequences.items():
        if config.destination(tenant, name) is None:
            command_id = _command_id(record)
            letters.append(
                Letter(
                    code=ErrorCode.VALIDATION,
                    cause="unknown_destination",
                    detail="the command names a destination that is not configured",
                    destination=name,
                    delivery_id=delivery_id_text(command_id, DestinationName(name)) if command_id else None,
                    aggregate=seen.aggregate,
                    sequence=sequence,
                )
            )
    return letters


def needed_version(record: Record) -> int:
    """Return the configuration version a record was resolved against; 0 when it does not say."""
    text = _header(record, "ce_configversion")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 18 else 0


def is_plain(record: Record, live: Collection[str], version: int) -> bool:
    """Whether a record surely needs no letter under a configuration, told quickly; False asks `judge`.

    Args:
        record: as it was read.
        live: the destinations of the tenant in the configuration.
        version: the configuration's.
    """
    if needed_version(record) > version:
        return False
    try:
        seen = peek(record.key, record.headers)
    except ContractError:
        return False
    return all(name in live for name in seen.sequences)


def _command_id(record: Record) -> CommandId | None:
    with suppress(ValueError):
        return CommandId(uuid.UUID(_header(record, "ce_id") or ""))
    return None


def _header(record: Record, wanted: str) -> str | None:
    for name, raw in record.headers:
        if name == wanted and raw is not None:
            with suppress(ValueError):
                return raw.decode()
    return None


class _Partition:
    """One assigned partition of the intake."""

    def __init__(self, topic: str, partition: int, group_metadata: object) -> None:
        self.partition = partition
        self.epoch = uuid.uuid4()
        self.position = -1
        self.waiting: list[Record] = []
        self.after = -1
        self.is_working = False
        self.is_held = False
        self.gone = False
        self.is_dropped = False
        self.released = False
        self.committed = -1
        self._topic, self._group_metadata = topic, group_metadata

    def offset_move(self) -> OffsetMove:
        note = Position(epoch=self.epoch, released=self.released).encode()
        return OffsetMove(self._group_metadata, self._topic, self.partition, self.position, note)

    def carried(self, started: float, move: OffsetMove) -> None:
        self.committed = move.offset

    def refused(self) -> None:
        self.gone = self.is_dropped = True


class Intake:
    """One tenant's intake in this process."""

    def __init__(
        self, settings: IntakeSettings, committer: Committer, config: Callable[[], FabricConfig], clock: Clock
    ) -> None:
        self._settings, self._committer, self._config, self._clock = settings, committer, config, clock
        self.name = intake_group(settings.tenant)
        self.problem: str | None = None
        self.has_ended = asyncio.Event()
        #: Dead letters by cause since the process began.
        self.letters: dict[str, int] = {}
        self._topic = commands_topic(settings.tenant)
        self._dead_letters = dead_letters_topic(settings.tenant)
        self._writer = AvroWriter(DEAD_LETTER, settings.dead_letter_schema)
        self._partitions: dict[int, _Partition] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger("delivery").bind(tenant=settings.tenant, group=self.name)
        strand = settings.clients.strand(f"reader {self.name}")
        self._reader = ReaderThread(self._make_reader, self, self.name, strand)

    def start(self) -> None:
        """Join the group."""
        self._reader.start()

    async def stop(self) -> None:
        """Give everything back and leave the group."""
        await self._reader.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tick(self) -> None:
        """Carry positions that moved; called a few times a second."""
        for partition in self._partitions.values():
            if not partition.gone and partition.position > partition.committed:
                self._committer.carry(partition)

    def _make_reader(self, listener: Listener) -> GroupReader:
        return self._settings.clients.reader(self._settings.bootstrap, self.name, self._topic, listener)

    # Receiver

    def assign(self, partition: int, group_metadata: object) -> _Partition:
        """Make the owner of a partition, on the reader's thread."""
        return _Partition(self._topic, partition, group_metadata)

    def select(self, records: Sequence[Record]) -> list[tuple[int, Sequence[Record], int]]:
        """Pick out the records that may need a letter; all others are done, on the reader's thread."""
        config = self._config()
        tenant = config.tenant(self._settings.tenant)
        live = {destination.name for destination in tenant.destinations} if tenant else frozenset()
        found: dict[int, list[Record]] = {}
        positions: dict[int, int] = {}
        for record in records:
            partition = record.partition
            positions[partition] = record.offset + 1
            if not is_plain(record, live, config.version):
                found.setdefault(partition, []).append(record)
        return [(partition, found.get(partition, []), position) for partition, position in positions.items()]

    def assigned(self, owner: _Partition) -> None:
        """Find where to begin, then read."""
        self._partitions[owner.partition] = owner
        self._spawn(self._begin(owner))

    def accept(self, batches: list[tuple[_Partition, Sequence[Record], int]]) -> None:
        """Judge what was picked out, one batch of a partition after the other."""
        for owner, records, position in batches:
            if owner.gone:
                continue
            owner.waiting.extend(records)
            owner.after = position
            if len(owner.waiting) > _MAX_WAITING and not owner.is_held:
                owner.is_held = True
                self._reader.tell(lambda reader, p=owner.partition: reader.pause(p))  # type: ignore[misc]
            if owner.waiting and not owner.is_working:
                owner.is_working = True
                self._spawn(self._work(owner))
            elif not owner.is_working:
                owner.position = position

    async def give_back(self, owners: Sequence[_Partition]) -> None:
        """Say how far it got and let go."""
        for owner in owners:
            owner.gone = True
            if owner.position >= 0:
                owner.released = True
                await self._committer.carried(owner, 3.0)
            self._partitions.pop(owner.partition, None)

    def dropped(self, owners: Sequence[_Partition]) -> None:
        """Forget partitions."""
        for owner in owners:
            owner.gone = owner.is_dropped = True
            self._partitions.pop(owner.partition, None)

    def ended(self, error: BaseException | None) -> None:
        """Note that the group is left."""
        if error is not None:
            self.problem = str(error)
            self._log.error("group.ended", reason=str(error), error=type(error).__name__)
        self.dropped(list(self._partitions.values()))
        self.has_ended.set()

    async def _begin(self, owner: _Partition) -> None:
        while not owner.gone:
            try:
                found = await self._reader.ask(lambda reader: reader.committed(owner.partition, 0.5))
            except TransientError:
                await asyncio.sleep(0.3)
                continue
            if found is None:
                self.problem = f"no committed offset on {self._topic}[{owner.partition}]: run `waybill apply`"
                self._log.error("partition.not_taken", partition=owner.partition, reason=self.problem)
                self._reader.leave()
                return
            owner.position = owner.committed = found[0]
            self._reader.tell(lambda reader: None if owner.gone else reader.resume(owner.partition, owner.position))
            return

    async def _work(self, owner: _Partition) -> None:
        try:
            while owner.waiting and not owner.gone:
                batch, owner.waiting = owner.waiting, []
                for record in batch:
                    config = await self._config_for(record, owner)
                    if config is None:
                        return
                    for letter in judge(record, config, self._settings.tenant):
                        self._bury(owner, record, letter, config.version)
                    owner.position = record.offset + 1
                if owner.is_held and len(owner.waiting) * 2 < _MAX_WAITING:
                    owner.is_held = False
                    self._reader.tell(
                        lambda reader: None if owner.gone else reader.resume(owner.partition, owner.position)
                    )
            if not owner.gone:
                owner.position = owner.after
        finally:
            owner.is_working = False

    async def _config_for(self, record: Record, owner: _Partition) -> FabricConfig | None:
        """Return a configuration that is new enough; None when the partition is gone meanwhile."""
        config = self._config()
        needed = needed_version(record)
        while config.version < needed and not owner.gone:
            await asyncio.sleep(_CONFIG_POLL_S)
            config = self._config()
        return None if owner.gone else config

    def _bury(self, owner: _Partition, record: Record, letter: Letter, config_version: int) -> None:
        value = record.value or _NO_VALUE
        document: dict[str, Any] = {
            "dead_letter_id": dead_letter_id(self._topic, record.partition, record.offset, letter.destination or ""),
            "tenant": self._settings.tenant,
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "destination": letter.destination,
            "delivery_id": letter.delivery_id,
            "aggregate": letter.aggregate,
            "sequence": letter.sequence,
            "code": letter.code.value,
            "cause": letter.cause,
            "detail": letter.detail,
            "value_sha256": sha256(value).hexdigest(),
            "value_bytes": len(value),
            "owner": None,
            "config_version": config_version,
            "recorded_by": self._settings.worker,
            "recorded_at": millis(self._clock.now()),
        }
        self.letters[letter.cause] = self.letters.get(letter.cause, 0) + 1
        self._log.warning("message.refused", partition=record.partition, offset=record.offset, cause=letter.cause)
        key = (letter.aggregate or "").encode() or record.key or b""
        self._committer.add(
            owner, (Outgoing(self._dead_letters, record.partition, key, self._writer.encode(document)),)
        )

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
