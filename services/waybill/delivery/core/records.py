"""What is written about a delivery: outcomes, states and dead letters as Avro bytes.

The happy path writes two records per delivery, so their bytes are put together by hand from constant parts; a
test compares them with what the schemas' own encoder writes. Everything else goes through `AvroWriter`.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha1, sha256
from typing import Any, Final, NamedTuple

from waybill.contracts.codec import DEAD_LETTER, OUTCOME, TASK_STATE, AvroWriter
from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import Command
from waybill.contracts.envelope import GAP_RESOLUTION_TYPE
from waybill.contracts.fabric import DestinationConfig, Profile, Proof
from waybill.contracts.states import BY_PEOPLE, State
from waybill.delivery.core.classify import Proven, Verdict
from waybill.delivery.core.lanes import Item

__all__ = [
    "Event",
    "Place",
    "Recorder",
    "SchemaIds",
    "Try",
    "attempt_id_text",
    "dead_letter_id",
    "millis",
    "outcome_id_text",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def millis(instant: datetime) -> int:
    """Return milliseconds since 1970."""
    return (instant - _EPOCH) // _MS


def _uuid5_text(namespace: bytes, name: str) -> str:
    """Return `str(uuid.uuid5(namespace, name))` in a fraction of its time."""
    h = sha1(namespace + name.encode(), usedforsecurity=False).hexdigest()
    return f"{h[:8]}-{h[8:12]}-5{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:32]}"


def outcome_id_text(delivery: str, version: int) -> str:
    """Return `kernel.ids.outcome_id` as text."""
    return _uuid5_text(bytes.fromhex(delivery.replace("-", "")), f"state/{version}")


def attempt_id_text(delivery: str, place: "Place", offset: int, attempt: int) -> str:
    """Return `kernel.ids.attempt_id` as text."""
    name = f"attempt/{place.partition}/{offset}/{place.epoch}/{attempt}"
    return _uuid5_text(bytes.fromhex(delivery.replace("-", "")), name)


class Place(NamedTuple):
    """Where records of one assignment come from."""

    topic: str
    partition: int
    epoch: str


class Try(NamedTuple):
    """One attempt, as far as it is recorded."""

    number: int
    started_ms: int
    ended_ms: int
    body_sha256: str
    #: The assignment it was made under, when it is told by another one.
    epoch: str = ""


def _long(value: int) -> bytes:
    n = (value << 1) ^ (value >> 63)
    if n < _SMALL:
        return _BYTES[n]
    out = bytearray()
    while n > 127:
        out.append((n & 127) | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


#: Numbers of one and two bytes are looked up.
_SMALL: Final = 16_384
_BYTES: Final = tuple(bytes((n,)) if n < 128 else bytes(((n & 127) | 128, n >> 7)) for n in range(_SMALL))


def _string(text: str) -> bytes:
    raw = text.encode()
    return _long(len(raw)) + raw


def _maybe_string(text: str | None) -> bytes:
    return b"\x00" if text is None else b"\x02" + _string(text)


def _maybe_long(value: int | None) -> bytes:
    return b"\x00" if value is None else b"\x02" + _long(value)


_ID_LENGTH: Final = _long(36)
_SOME_ID: Final = b"\x02" + _ID_LENGTH
_STATES: Final = {state: _long(index) for index, state in enumerate(State)}
_PROFILES: Final = {profile: _long(index) for index, profile in enumerate(Profile)}
_PROOFS: Final = {Proof.RECEIPT: b"\x02\x00", Proof.STATUS: b"\x02\x02"}
#: kind attempt, queued, acknowledged, version 1.
_DIRECT: Final = b"\x00" + _STATES[State.QUEUED] + _STATES[State.ACKNOWLEDGED] + b"\x02"
_SHA_LENGTH: Final = _long(64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaIds:
    """Registry ids of the three record schemas."""

    outcome: int
    task_state: int
    dead_letter: int


class Recorder:
    """Encodes what happens at one destination under one applied configuration."""

    def __init__(self, config: DestinationConfig, config_version: int, worker: str, ids: SchemaIds) -> None:
        self.config, self.config_version, self.worker = config, config_version, worker
        self._outcome = AvroWriter(OUTCOME, ids.outcome)
        self._state = AvroWriter(TASK_STATE, ids.task_state)
        self._dead_letter = AvroWriter(DEAD_LETTER, ids.dead_letter)
        self._names = _string(config.tenant) + _string(config.name) + _ID_LENGTH
        proof = _PROOFS[config.proof]
        profile = _PROFILES[config.profile] + _long(config_version)
        self._outcome_middle = proof + profile + _SHA_LENGTH
        self._outcome_end = _string(worker)
        self._state_owner = _string(config.owner) + proof + profile

    def acknowledged(self, item: Item, place: Place, attempt: Try, verdict: Verdict) -> tuple[bytes, bytes]:
        """Encode outcome and state of a first, proven delivery that never became a row."""
        delivery, command = item.delivery_id, item.command
        assert delivery is not None
        assert command is not None
        assert item.command_id is not None
        raw = delivery.encode()
        command_id = item.command_id.encode()
        namespace = bytes.fromhex(delivery.replace("-", ""))
        number = f"attempt/{place.partition}/{item.offset}/{attempt.epoch or place.epoch}/{attempt.number}"
        aggregate = _string(item.aggregate)
        tries = _long(attempt.number)
        proven = verdict.proven or _NOTHING
        ended = _long(attempt.ended_ms)
        outcome = b"".join(
            (
                self._outcome.prefix,
                _SOME_ID,
                _uuid5_text(namespace, "state/1").encode(),
                _SOME_ID,
                _uuid5_text(namespace, number).encode(),
                _ID_LENGTH,
                raw,
                self._names,
                command_id,
                aggregate,
                _long(item.sequence),
                _DIRECT,
                tries,
                b"\x02\x04\x02",  # phase after_sending, then the status that is there
                _long(verdict.http_status or 0),
                b"\x00\x00",  # no code, no detail
                _maybe_string(proven.status),
                _maybe_string(proven.source_version),
                _maybe_long(proven.count),
                _maybe_string(proven.digest),
                _maybe_string(proven.evidence),
                self._outcome_middle,
                attempt.body_sha256.encode(),
                _long(attempt.started_ms),
                ended,
                self._outcome_end,
            )
        )
        head = b"".join((self._state.prefix, _ID_LENGTH, raw, self._names, command_id, aggregate))
        return outcome, self._acknowledged_state(item, command, place, (head, tries, ended))

    def _acknowledged_state(
        self, item: Item, command: Command, place: Place, parts: tuple[bytes, bytes, bytes]
    ) -> bytes:
        head, tries, ended = parts
        return b"".join(
            (
                head,
                _long(item.sequence),
                _maybe_string(command.request_id),
                b"\x00" if self.config.name in command.optional_destinations else b"\x01",
                _STATES[State.ACKNOWLEDGED],
                b"\x02\x00\x00",  # version 1, no detail, no code
                tries,
                b"\x00",
                _long(millis(command.expires_at)),
                self._state_owner,
                _long(place.partition),
                _long(item.offset),
                _string(command.command_type),
                ended,
            )
        )

    def outcome(self, item: Item, place: Place, event: "Event") -> bytes:
        """Encode one audited fact about an item that stands where it stands after the event."""
        verdict, attempt = event.verdict, event.attempt
        proven = (verdict.proven if verdict else None) or _NOTHING
        delivery = item.delivery_id or ""
        tried = event.kind != "transition"
        return self._outcome.encode(
            {
                "outcome_id": outcome_id_text(delivery, item.version) if event.has_moved else None,
                "attempt_id": attempt_id_text(delivery, place, item.offset, attempt.number) if tried else None,
                **self._head(item),
                "kind": event.kind,
                "state_before": event.before.value,
                "state_after": item.state.value,
                "version": item.version,
                "attempt": attempt.number,
                "phase": verdict.phase.value if verdict else None,
                "http_status": verdict.http_status if verdict else None,
                "error_code": _code(verdict.code if verdict else item.code),
                "detail": verdict.detail if verdict else item.detail,
                "receipt_status": proven.status,
                "source_version": proven.source_version,
                "count": proven.count,
                "digest": event.digest if proven.digest is None else proven.digest,
                "evidence": event.evidence if proven.evidence is None else proven.evidence,
                "proof_level": self.config.proof.value if verdict and verdict.is_proven else None,
                "profile": self.config.profile.value,
                "config_version": self.config_version,
                "body_sha256": attempt.body_sha256,
                "started_at": attempt.started_ms,
                "ended_at": attempt.ended_ms,
                "worker": self.worker,
            }
        )

    def state(self, item: Item, place: Place, now_ms: int) -> bytes:
        """Encode where an item stands."""
        command = item.command
        proven = item.state is State.ACKNOWLEDGED and item.detail != BY_PEOPLE
        return self._state.encode(
            {
                **self._head(item),
                "request_id": command.request_id if command else None,
                "required": command is None or self.config.name not in command.optional_destinations,
                "state": item.state.value,
                "version": item.version,
                "detail": item.detail,
                "error_code": _code(item.code),
                "attempt": item.attempts,
                "next_due": millis(item.next_due) if item.next_due and item.state in _DUE else None,
                "expires_at": millis(item.expires_at) if item.expires_at else now_ms,
                "owner": self.config.owner,
                "proof_level": self.config.proof.value if proven else None,
                "profile": self.config.profile.value,
                "config_version": self.config_version,
                "command_partition": place.partition,
                "command_offset": item.offset,
                "command_type": _type_of(item),
                "updated_at": now_ms,
            }
        )

    def dead_letter(self, item: Item, place: Place, cause: str, now_ms: int) -> bytes:
        """Encode that an item of ours can never be sent."""
        value = item.value or b""
        return self._dead_letter.encode(
            {
                "dead_letter_id": dead_letter_id(place.topic, place.partition, item.offset, self.config.name),
                "tenant": self.config.tenant,
                "topic": place.topic,
                "partition": place.partition,
                "offset": item.offset,
                "destination": self.config.name,
                "delivery_id": item.delivery_id,
                "aggregate": item.aggregate,
                "sequence": item.sequence,
                "code": ErrorCode.VALIDATION.value,
                "cause": cause,
                "detail": item.poison or "",
                "value_sha256": sha256(value).hexdigest(),
                "value_bytes": len(value),
                "owner": self.config.owner,
                "config_version": self.config_version,
                "recorded_by": self.worker,
                "recorded_at": now_ms,
            }
        )

    def _head(self, item: Item) -> Mapping[str, Any]:
        return {
            "delivery_id": item.delivery_id,
            "tenant": self.config.tenant,
            "destination": self.config.name,
            "command_id": item.command_id,
            "aggregate": item.aggregate,
            "sequence": item.sequence,
        }


_NOTHING: Final = Proven()
#: Where a delivery is when something of it has a time.
_DUE: Final = frozenset({State.RETRYING, State.DELIVERED})


class Event(NamedTuple):
    """What just happened to an item; the item already stands where it led."""

    #: `attempt`, `transition` or `repeat`.
    kind: str
    before: State
    has_moved: bool
    #: Number 0 means that nothing was tried.
    attempt: Try
    #: What the try came to; None without one.
    verdict: Verdict | None
    #: Where the proof of it lies, when it is not the listener's.
    evidence: str | None = None
    #: Of what lies there.
    digest: str | None = None


def dead_letter_id(topic: str, partition: int, offset: int, destination: str) -> str:
    """Return the identity of a dead letter: recording the same record twice makes one."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"waybill:dead-letter/{topic}/{partition}/{offset}/{destination}"))


def _type_of(item: Item) -> str:
    if item.is_resolution:
        return GAP_RESOLUTION_TYPE
    return item.command.command_type if item.command else ""


def _code(code: ErrorCode | None) -> str | None:
    return None if code is None else code.value
