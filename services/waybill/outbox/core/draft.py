"""A command before it is issued, and what the database says once it is.

A draft is what the producer knows; everything else (id, numbers, times, configuration version) is fixed by the
insert. Two shapes of data are told apart by type alone: `bytes` travel as they are, everything else is rendered as
JSON here, once, so that the bytes in the outbox are the bytes that are signed.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from waybill.contracts.command import DataForm
from waybill.crypto.keys import KeyRecord
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, delivery_id

__all__ = ["CommandDraft", "Emitted", "emitted", "encode_commands", "encode_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDraft:
    """One command as its producer describes it. What is None or empty follows the route."""

    aggregate_type: str
    #: Opaque, never personal data: it is the Kafka key and stands in logs.
    aggregate_id: str
    command_type: str
    #: `bytes` travel as they are; anything else is rendered as JSON (a `str` becomes a JSON string). Never in `repr`.
    data: object = field(default=b"", repr=False)
    #: In place of the route's.
    destinations: tuple[str, ...] = ()
    #: Those of the destinations whose outcome the request does not wait for.
    optional: tuple[str, ...] = ()
    ttl: timedelta | None = None
    #: What the destination deduplicates on, when it is not the delivery id.
    operation_id: str | None = None
    request_id: str | None = None
    #: The number of commands of the request; give it on at least one of them, or the request is never complete.
    request_size: int | None = None
    instruction_version: int = 1
    #: The command this one corrects; its instruction_version is then above 1.
    replaces: CommandId | None = None
    content_type: str = "application/json"
    data_schema: str | None = None
    capability: str | None = None
    capability_version: int | None = None
    legal_versions: str | None = None
    config_versions: str | None = None
    traceparent: str | None = None
    #: Seal the data with this key before they reach the database (`waybill.crypto.sealing.load_sealing_keys`).
    seal_with: KeyRecord | None = None
    #: Data that are already sealed: the id of the key they were sealed with.
    data_key_id: str | None = None
    #: Where the data are, when they are not here; with `data_digest` (`sha256:` and hexadecimal digits).
    data_ref: str | None = None
    data_digest: str | None = None

    @property
    def form(self) -> DataForm:
        """How the data travel; it follows from which fields are set."""
        if self.data_ref is not None or self.data_digest is not None:
            return DataForm.REFERENCE
        if self.seal_with is not None or self.data_key_id is not None:
            return DataForm.SEALED
        return DataForm.CLEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """What the insert fixed. It is only true once the producer's transaction commits."""

    command_id: CommandId
    aggregate: Aggregate
    sequences: Mapping[DestinationName, int]
    issued_at: datetime
    expires_at: datetime

    @property
    def delivery_ids(self) -> dict[DestinationName, DeliveryId]:
        """Destination → the id under which it will be offered the command, on every attempt."""
        return {name: delivery_id(self.command_id, name) for name in self.sequences}


def encode_data(draft: CommandDraft) -> bytes:
    """Return the data as the bytes that will travel.

    Raises:
        ConfigError: they have no JSON form; names the Python type, never the value.
    """
    data = draft.data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"the data of a {draft.command_type} command have no JSON form ({type(data).__name__}): "
            "pass JSON values, or bytes with their content_type"
        ) from error


def encode_commands(drafts: Sequence[CommandDraft], payloads: Sequence[bytes]) -> str:
    """Return the JSON array `emit_many` takes; payloads travel in base64, which is the same for every driver."""
    return json.dumps([_options(draft, payload) for draft, payload in zip(drafts, payloads, strict=True)])


def _options(draft: CommandDraft, payload: bytes) -> dict[str, Any]:
    options: dict[str, Any] = {
        "aggregate_type": draft.aggregate_type,
        "aggregate_id": draft.aggregate_id,
        "command_type": draft.command_type,
        "content_type": draft.content_type,
        "instruction_version": draft.instruction_version,
        "data_form": draft.form.value,
        "data_key_id": draft.seal_with.key_id if draft.seal_with is not None else draft.data_key_id,
        "ttl_s": draft.ttl.total_seconds() if draft.ttl is not None else None,
        "replaces": str(draft.replaces) if draft.replaces is not None else None,
        "destinations": list(draft.destinations) or None,
        "optional": list(draft.optional) or None,
        "data_base64": b64encode(payload).decode("ascii"),
    }
    for name in _COPIED:
        options[name] = getattr(draft, name)
    return {name: value for name, value in options.items() if value is not None}


_COPIED = (
    "operation_id",
    "request_id",
    "request_size",
    "data_schema",
    "capability",
    "capability_version",
    "legal_versions",
    "config_versions",
    "traceparent",
    "data_ref",
    "data_digest",
)


def emitted(row: Sequence[Any]) -> Emitted:
    """Read one row of `emit_many` (place, id, aggregate, sequences, issued, expires); drivers differ in JSON and UUID."""
    _, command_id, aggregate, sequences, issued_at, expires_at = row
    numbers = json.loads(sequences) if isinstance(sequences, str | bytes) else sequences
    return Emitted(
        command_id=CommandId(command_id if isinstance(command_id, UUID) else UUID(str(command_id))),
        aggregate=Aggregate(aggregate),
        sequences={DestinationName(name): int(number) for name, number in numbers.items()},
        issued_at=issued_at,
        expires_at=expires_at,
    )
