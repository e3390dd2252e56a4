"""From bytes to facts: what is read, what becomes an anomaly, what no poison may do."""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from waybill.contracts.codec import OUTCOME, TASK_STATE, AvroReader, AvroWriter, schema_text
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.readmodel.core.records import AnomalyKind, AnomalyRow, DeliveryRow, OutcomeSeen, StateRow, Topic
from waybill.readmodel.decoder import RecordDecoder
from waybill.readmodel.ports import RawRecord

COMMAND = CommandId(uuid.UUID("0199f3c0-0000-7000-8000-000000000001"))
MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
AT = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS = {
    "ce_specversion": "1.0",
    "ce_id": str(COMMAND),
    "ce_source": "urn:waybill:acme:app",
    "ce_type": "subject.erase",
    "ce_subject": "subject/1",
    "ce_time": "2026-01-01T00:00:00.000Z",
    "content-type": "application/json",
    "ce_tenant": "acme",
    "ce_sequences": '{"crm": 4, "archive": 2}',
    "ce_optional": '["archive"]',
    "ce_instructionversion": "1",
    "ce_expiresat": "2026-01-08T00:00:00.000Z",
    "ce_configversion": "3",
    "ce_capability": "erase",
    "ce_capabilityversion": "1",
    "ce_envelopeversion": "1",
    "ce_dataform": "clear",
}


class Refusing:
    def decode(self, value: bytes) -> dict[str, Any]:
        raise ContractError("not readable")


def decoder(topic: Topic | None = None, name: str = TASK_STATE) -> RecordDecoder:
    if topic is None:
        return RecordDecoder({topic: Refusing() for topic in Topic})
    return RecordDecoder({topic: AvroReader(name, lambda _: schema_text(name))})


def command(changes: Mapping[str, str | None] | None = None, *, key: bytes = b"subject/1") -> RawRecord:
    headers = {**HEADERS, **(changes or {})}
    return RawRecord(
        topic="waybill.acme.commands",
        partition=2,
        offset=17,
        timestamp_ms=MS,
        key=key,
        headers=[(name, text.encode()) for name, text in headers.items() if text is not None],
        value=None,
    )


def value(topic: Topic, body: bytes | None) -> RawRecord:
    return RawRecord(
        topic=f"waybill.acme.{topic}", partition=0, offset=5, timestamp_ms=MS, key=b"k", headers=[], value=body
    )


def test_command_becomes_one_row_per_destination_with_the_ids_everybody_computes() -> None:
    archive, crm = decoder().decode(command(), "acme")

    assert isinstance(crm, DeliveryRow)
    assert isinstance(archive, DeliveryRow)
    assert (crm.destination, crm.sequence, crm.required) == ("crm", 4, True)
    assert (archive.destination, archive.sequence, archive.required) == ("archive", 2, False)
    assert crm.delivery_id == delivery_id(COMMAND, DestinationName("crm"))
    assert (crm.command_partition, crm.command_offset, crm.in_topic_at) == (2, 17, AT)


def test_tenant_is_the_topics_and_not_what_a_header_says() -> None:
    (first, _) = decoder().decode(command({"ce_tenant": "rival"}), "acme")

    assert first.tenant == "acme"  # type: ignore[union-attr]  # every fact of a command has one


def test_canary_names_no_destination_and_leaves_no_row() -> None:
    assert decoder().decode(command({"ce_sequences": "{}"}), "acme") == []


@pytest.mark.requirement("DC-22")
@pytest.mark.parametrize(
    "changes",
    [{"ce_time": "yesterday"}, {"ce_expiresat": None}, {"ce_type": "a\x00b"}, {"ce_requestid": "x" * 5000}],
    ids=["malformed time", "no expiry", "a NUL", "a request id that cannot be indexed"],
)
def test_command_with_a_broken_header_still_takes_its_numbers(changes: dict[str, str | None]) -> None:
    facts = decoder().decode(command(changes), "acme")

    assert [fact.sequence for fact in facts if isinstance(fact, DeliveryRow)] == [2, 4]


@pytest.mark.requirement("DC-22")
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"ce_sequences": "nonsense"}, b"subject/1"),
        ({"ce_sequences": None}, b"subject/1"),
        ({"ce_sequences": json.dumps({"Not A Name": 1})}, b"subject/1"),
        ({"ce_sequences": json.dumps({"x" * 5000: 1})}, b"subject/1"),
        ({"ce_id": "17"}, b"subject/1"),
        ({}, b"\xff\xfe"),
        ({}, b"sub\x00ject/1"),
    ],
)
def test_command_nobody_can_own_is_an_anomaly_with_its_place(changes: dict[str, str | None], key: bytes) -> None:
    (anomaly,) = decoder().decode(command(changes, key=key), "acme")

    assert isinstance(anomaly, AnomalyRow)
    assert (anomaly.kind, anomaly.topic, anomaly.partition, anomaly.offset) == (
        AnomalyKind.UNREADABLE,
        "commands",
        2,
        17,
    )


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x00\x01", b"\x01garbage"])
def test_value_that_cannot_be_read_is_an_anomaly(body: bytes) -> None:
    (anomaly,) = decoder(Topic.STATE).decode(value(Topic.STATE, body), "acme")

    assert isinstance(anomaly, AnomalyRow)


def test_tombstone_of_a_state_says_nothing() -> None:
    assert decoder().decode(value(Topic.STATE, None), "acme") == []


STATE_VALUE: dict[str, Any] = {
    "delivery_id": str(delivery_id(COMMAND, DestinationName("crm"))),
    "tenant": "acme",
    "destination": "crm",
    "command_id": str(COMMAND),
    "aggregate": "subject/1",
    "sequence": 4,
    "request_id": None,
    "required": True,
    "state": "retrying",
    "version": 2,
    "detail": "connect",
    "error_code": "TRANSIENT_NETWORK",
    "attempt": 3,
    "next_due": AT,
    "expires_at": AT,
    "owner": "privacy",
    "proof_level": None,
    "profile": "durable_idempotent",
    "config_version": 3,
    "command_partition": 2,
    "command_offset": 17,
    "command_type": "subject.erase",
    "updated_at": AT,
}


def test_state_is_read_through_its_frame() -> None:
    body = AvroWriter(TASK_STATE, 7).encode(STATE_VALUE)

    (row,) = decoder(Topic.STATE).decode(value(Topic.STATE, body), "acme")

    assert isinstance(row, StateRow)
    assert (row.state, row.version, row.next_due, row.error_code) == ("retrying", 2, AT, "TRANSIENT_NETWORK")


@pytest.mark.parametrize("changes", [{"sequence": 0}, {"delivery_id": "x"}, {"owner": "a\x00"}, {"version": -1}])
def test_state_the_database_would_refuse_is_an_anomaly(changes: dict[str, Any]) -> None:
    body = AvroWriter(TASK_STATE, 7).encode({**STATE_VALUE, **changes})

    (row,) = decoder(Topic.STATE).decode(value(Topic.STATE, body), "acme")

    assert isinstance(row, AnomalyRow)


def outcome(**changes: Any) -> RawRecord:
    record = {
        "outcome_id": None,
        "attempt_id": None,
        "delivery_id": STATE_VALUE["delivery_id"],
        "tenant": "acme",
        "destination": "crm",
        "command_id": str(COMMAND),
        "aggregate": "subject/1",
        "sequence": 4,
        "kind": "attempt",
        "state_before": "queued",
        "state_after": "acknowledged",
        "version": 1,
        "attempt": 1,
        "profile": "durable_idempotent",
        "config_version": 3,
        "body_sha256": "0" * 64,
        "started_at": AT,
        "ended_at": AT,
        "worker": "here-0",
        **changes,
    }
    return value(Topic.OUTCOMES, AvroWriter(OUTCOME, 8).encode(record))


@pytest.mark.parametrize(
    ("changes", "has_attempt", "has_move"),
    [
        ({"attempt_id": str(uuid.uuid4()), "outcome_id": str(uuid.uuid4())}, True, True),
        ({"attempt_id": str(uuid.uuid4()), "kind": "repeat"}, True, False),
        ({"outcome_id": str(uuid.uuid4()), "kind": "transition"}, False, True),
    ],
    ids=["a try that moved", "a repeat", "a move without a try"],
)
def test_outcome_is_a_try_a_move_or_both(changes: dict[str, Any], *, has_attempt: bool, has_move: bool) -> None:
    (seen,) = decoder(Topic.OUTCOMES, OUTCOME).decode(outcome(**changes), "acme")

    assert isinstance(seen, OutcomeSeen)
    assert (seen.attempt is not None, seen.move is not None) == (has_attempt, has_move)
