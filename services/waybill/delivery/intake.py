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
from typing import Final

from waybill.contracts.codec import DEAD_LETTER, AvroWriter
from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import peek
from waybill.contracts.envelope import delivery_id_text
from waybill.contracts.fabric import FabricConfig
from waybill.contracts.names import commands_topic, dead_letters_topic, intake_group
from waybill.delivery.committer import Committer
from waybill.delivery.ordered import CarriedPartition, Letter, OrderedGroup, Recorded, Seat, dead_letter
from waybill.delivery.ports import Clients
from waybill.infra.kafka import Outgoing, Record
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import CommandId, DestinationName, Tenant

__all__ = ["Intake", "IntakeSettings"]

_CONFIG_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """What intake needs to know."""

    tenant: Tenant
    bootstrap: str
    worker: str
    dead_letter_schema: int
    clients: Clients = field(default_factory=Clients)


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


class Intake(OrderedGroup):
    """One tenant's intake in this process."""

    def __init__(
        self, settings: IntakeSettings, committer: Committer, config: Callable[[], FabricConfig], clock: Clock
    ) -> None:
        tenant = settings.tenant
        super().__init__(
            Seat(
                tenant=tenant,
                group=intake_group(tenant),
                topic=commands_topic(tenant),
                bootstrap=settings.bootstrap,
                clients=settings.clients,
            ),
            committer,
        )
        self._settings, self._config, self._clock = settings, config, clock
        #: Dead letters by cause since the process began.
        self.letters: dict[str, int] = {}
        self._dead_letters = dead_letters_topic(tenant)
        self._writer = AvroWriter(DEAD_LETTER, settings.dead_letter_schema)

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

    async def settle(self, owner: CarriedPartition, batch: Sequence[Record]) -> None:
        """Bury what nobody can own."""
        for record in batch:
            config = await self._config_for(record, owner)
            if config is None:
                return
            for letter in judge(record, config, self._settings.tenant):
                self._bury(owner, record, letter, config.version)
            owner.position = record.offset + 1

    async def _config_for(self, record: Record, owner: CarriedPartition) -> FabricConfig | None:
        """Return a configuration that is new enough; None when the partition is gone meanwhile."""
        config = self._config()
        needed = needed_version(record)
        while config.version < needed and not owner.gone:
            await asyncio.sleep(_CONFIG_POLL_S)
            config = self._config()
        return None if owner.gone else config

    def _bury(self, owner: CarriedPartition, record: Record, letter: Letter, config_version: int) -> None:
        recorded = Recorded(
            tenant=self._settings.tenant,
            topic=self.seat.topic,
            by=self._settings.worker,
            at=self._clock.now(),
            config_version=config_version,
        )
        self.letters[letter.cause] = self.letters.get(letter.cause, 0) + 1
        self._log.warning("message.refused", partition=record.partition, offset=record.offset, cause=letter.cause)
        key = (letter.aggregate or "").encode() or record.key or b""
        value = self._writer.encode(dead_letter(record, letter, recorded))
        self._committer.add(owner, (Outgoing(self._dead_letters, record.partition, key, value),))
