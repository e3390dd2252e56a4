"""Whose record it is, and what it is when it cannot be read.

Two headers alone decide: the aggregate (the key) and the destination → sequence map. What they name takes its
number at every destination, readable or not; what they do not even name is intake's (DC-22).
"""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from waybill.contracts.command import Command, parse_command, peek
from waybill.contracts.envelope import delivery_id_text
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.quick import quick_command
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import CommandId, DestinationName

__all__ = ["Claim", "identify", "record_id"]

_SEQUENCES: Final = "ce_sequences"
Headers = list[tuple[str, bytes | None]]
Record = tuple[int, int, bytes | None, Headers, bytes | None]


class Claim:
    """Answers for one destination which records name it."""

    __slots__ = ("_destination", "_needle", "_tenant", "_topic")

    def __init__(self, destination: str, *, tenant: str = "", topic: str = "") -> None:
        self._destination, self._tenant, self._topic = DestinationName(destination), tenant, topic
        self._needle = f'"{destination}"'.encode()

    def of(self, key: bytes | None, headers: Headers) -> tuple[str, int, Mapping[DestinationName, int]] | None:
        """Return aggregate, sequence here and all sequences when the record is this destination's."""
        raw = None
        for name, content in headers:
            if name == _SEQUENCES:
                raw = content
                break
        # A name may hide behind JSON escapes or another encoding: only the parser knows then.
        if raw is None or (self._needle not in raw and b"\\" not in raw and b"\0" not in raw):
            return None
        try:
            seen = peek(key, headers)
        except ContractError:
            return None
        sequence = seen.sequences.get(self._destination)
        return None if sequence is None else (seen.aggregate, sequence, seen.sequences)

    def take(self, records: Iterable[Record]) -> list[tuple[int, list[Item], int]]:
        """Return, by partition, the records that are this destination's, looked into, and the offset after the last one.

        All of a poll in one go takes half the time of one at a time when its turn comes (ADR 0085).

        Args:
            records: partition, offset, key, headers and value of each, in the order of offsets.
        """
        chosen: dict[int, list[Item]] = {}
        positions: dict[int, int] = {}
        claim, tenant, destination, topic = self.of, self._tenant, self._destination, self._topic
        for partition, offset, key, headers, value in records:
            if partition not in positions:
                chosen[partition] = []
            positions[partition] = offset + 1
            mine = claim(key, headers)
            if mine is not None:
                aggregate, sequence, sequences = mine
                item = Item(offset, aggregate, sequence, (key, headers, value))
                item.sequences = sequences
                identify(item, tenant=tenant, destination=destination, topic=topic, partition=partition)
                chosen[partition].append(item)
        return [(partition, chosen[partition], position) for partition, position in positions.items()]


def record_id(topic: str, partition: int, offset: int) -> uuid.UUID:
    """Return the identity of a record whose command id cannot be read: its place."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"waybill:record/{topic}/{partition}/{offset}")


def identify(item: Item, *, tenant: str, destination: str, topic: str, partition: int) -> None:
    """Look into a record once: its command and ids, or why it can never be sent."""
    if item.delivery_id is not None:
        return
    try:
        command = _plain(item) or parse_command(item.key, item.headers, item.value)
    except ContractError as error:
        item.poison = str(error)
        command_id = _readable_id(item.headers) or CommandId(record_id(topic, partition, item.offset))
        item.expires_at = item.expires_at or _readable_expiry(item.headers)
    else:
        _accept(item, command, tenant)
        command_id = command.command_id
    item.command_id = str(command_id)
    item.delivery_id = delivery_id_text(command_id, DestinationName(destination))


def _plain(item: Item) -> Command | None:
    if item.sequences is None:
        return None
    return quick_command(item.aggregate, item.sequences, item.headers, item.value)


def _accept(item: Item, command: Command, tenant: str) -> None:
    if command.tenant != tenant:
        item.poison = "header ce_tenant names another tenant than the topic"
    item.command = command
    item.expires_at = command.expires_at


def _readable_id(headers: Headers) -> CommandId | None:
    for name, raw in headers:
        if name == "ce_id" and raw is not None:
            try:
                return CommandId(uuid.UUID(raw.decode()))
            except ValueError:
                return None
    return None


def _readable_expiry(headers: Headers) -> datetime | None:
    for name, raw in headers:
        if name == "ce_expiresat" and raw is not None:
            try:
                return parse_instant(raw.decode())
            except ValueError:
                return None
    return None
