"""What the worker writes: hand-made bytes equal the schema's, ids equal the kernel's, forms round-trip."""

import uuid
from datetime import UTC, datetime
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.contracts.codec import DEAD_LETTER, OUTCOME, TASK_STATE, AvroReader, schema_text
from waybill.contracts.codes import Phase
from waybill.contracts.command import HEADERS, parse_command
from waybill.contracts.fabric import DestinationConfig, Proof
from waybill.contracts.states import State
from waybill.delivery.core.classify import Proven, Verdict
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.ownership import Claim, identify
from waybill.delivery.core.position import MAX_METADATA, MAX_UNSETTLED, Position
from waybill.delivery.core.quick import quick_command
from waybill.delivery.core.records import (
    Event,
    Place,
    Recorder,
    SchemaIds,
    Try,
    attempt_id_text,
    outcome_id_text,
)
from waybill.delivery.core.stored import pack_record, unpack_record
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DeliveryId, DestinationName, Tenant, attempt_id, outcome_id

EPOCH = uuid.UUID("11111111-1111-4111-8111-111111111111")
PLACE = Place("waybill.acme.commands", 3, str(EPOCH))
TRY = Try(4, 1_767_225_600_123, 1_767_225_600_456, "ab" * 32)
MAYBE = st.none() | st.text(max_size=20)


def config(proof: Proof = Proof.RECEIPT) -> DestinationConfig:
    return DestinationConfig(
        tenant=Tenant("acme"), name=DestinationName("crm"), url="http://x", owner="team-ü", proof=proof
    )


def recorder(proof: Proof = Proof.RECEIPT) -> Recorder:
    return Recorder(config(proof), 300, "host-0", SchemaIds(outcome=1, task_state=70_000, dead_letter=3))


def headers(**more: str) -> list[tuple[str, bytes | None]]:
    texts = {
        "ce_specversion": "1.0",
        "ce_id": "0193e1c7-0000-7000-8000-000000000001",
        "ce_source": "/s",
        "ce_type": "subject.erase",
        "ce_subject": "subject/1",
        "ce_time": "2026-01-01T00:00:00Z",
        "content-type": "application/json",
        "ce_tenant": "acme",
        "ce_sequences": '{"crm":5,"dwh":9}',
        "ce_instructionversion": "1",
        "ce_expiresat": "2026-02-01T00:00:00.5Z",
        "ce_configversion": "2",
        "ce_capability": "erase",
        "ce_capabilityversion": "1",
        "ce_envelopeversion": "1",
        "ce_dataform": "clear",
        **more,
    }
    return [(name, text.encode()) for name, text in texts.items()]


def looked_into(sequence: int = 5, **more: str) -> Item:
    item = Item(77, "subject/1", sequence, (b"subject/1", headers(**more), b"{}"))
    identify(item, tenant="acme", destination="crm", topic=PLACE.topic, partition=3)
    return item


def read(name: str, value: bytes) -> dict[str, object]:
    return AvroReader(name, lambda _: schema_text(name)).decode(value)


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(1, 2**31 - 1),
    sequence=st.integers(1, 2**31 - 1),
    texts=st.tuples(MAYBE, MAYBE, MAYBE, MAYBE),
    count=st.none() | st.integers(0, 2**63 - 1),
    proof=st.sampled_from(Proof),
    request=st.sampled_from(["", "r-1"]),
    optional=st.booleans(),
)
def test_the_bytes_of_a_first_acknowledgement_are_those_of_the_schema(
    number: int,
    sequence: int,
    texts: tuple[str | None, ...],
    count: int | None,
    proof: Proof,
    request: str,
    optional: bool,
) -> None:
    more = ({"ce_requestid": request} if request else {}) | ({"ce_optional": '["crm"]'} if optional else {})
    item = looked_into(sequence, **more)
    status, version, digest, evidence = texts
    proven = Proven(status=status, source_version=version, count=count, digest=digest, evidence=evidence)
    verdict = Verdict(code=None, phase=Phase.AFTER_SENDING, http_status=200, proven=proven)
    attempt = Try(number, TRY.started_ms, TRY.ended_ms, TRY.body_sha256)
    writer = recorder(proof)

    outcome, state = writer.acknowledged(item, PLACE, attempt, verdict)

    item.state, item.version, item.attempts = State.ACKNOWLEDGED, 1, number
    event = Event("attempt", State.QUEUED, True, attempt, verdict)
    assert read(OUTCOME, outcome) == read(OUTCOME, writer.outcome(item, PLACE, event))
    assert outcome == writer.outcome(item, PLACE, event)
    assert state == writer.state(item, PLACE, TRY.ended_ms)


@pytest.mark.requirement("RS-1", "ET-1")
def test_a_ninth_state_or_a_fifteenth_code_cannot_be_written() -> None:
    from waybill.contracts.codec import AvroWriter

    item = looked_into()
    good = read(TASK_STATE, recorder().state(item, PLACE, 0))
    for field in ("state", "error_code"):
        with pytest.raises(ValueError, match=r"invented|not"):
            AvroWriter(TASK_STATE, 1).encode({**good, field: "invented"})


@given(delivery=st.uuids(), version=st.integers(0, 99), offset=st.integers(0, 2**40), number=st.integers(0, 99))
def test_ids_as_text_equal_the_kernels(delivery: uuid.UUID, version: int, offset: int, number: int) -> None:
    known = DeliveryId(delivery)
    attempt = attempt_id(known, partition=3, offset=offset, epoch=EPOCH, attempt=number)

    assert outcome_id_text(str(delivery), version) == str(outcome_id(known, version))
    assert attempt_id_text(str(delivery), PLACE, offset, number) == str(attempt)


@given(
    key=st.none() | st.binary(max_size=9),
    value=st.none() | st.binary(max_size=99),
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=5),
)
def test_a_stored_record_comes_back_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    assert unpack_record(pack_record(key, headers, value)) == (key, headers, value)


@given(cut=st.integers(0, 60))
def test_a_damaged_stored_record_is_refused(cut: int) -> None:
    packed = pack_record(b"subject/1", [("a", b"b")], b"value")

    with pytest.raises(ContractError):
        unpack_record(packed[: min(cut, len(packed) - 1)])


@given(
    released=st.booleans(),
    sent_to=st.integers(0, 2**40),
    steps=st.lists(st.integers(1, 2**33), max_size=MAX_UNSETTLED) | st.just([2**34] * MAX_UNSETTLED),
)
def test_a_position_comes_back_and_fits(released: bool, sent_to: int, steps: list[int]) -> None:
    offsets = tuple(accumulate(steps))
    position = Position(epoch=EPOCH, released=released, sent_to=sent_to, settled_to=sent_to, unsettled=offsets)

    assert Position.decode(position.encode()) == position
    assert len(position.encode()) <= MAX_METADATA


def test_empty_metadata_is_a_start_that_nobody_owned() -> None:
    assert Position.decode("").released
    assert Position.decode(None).released


#: What an owner writes.
WHOLE = f"waybill1;epoch={EPOCH};released=1;sent_to=7;settled_to=5;unsettled="


@pytest.mark.parametrize(
    "text",
    [
        "other",
        WHOLE.replace("waybill1", "waybill2"),
        WHOLE.replace(";released=1", ""),
        WHOLE.replace("released=1", "released=2"),
        WHOLE.replace(str(EPOCH), "x"),
        WHOLE.replace("sent_to=7", "sent_to=-7"),
        WHOLE.replace(";settled_to=5", ""),
        WHOLE.replace("unsettled=", "unsettled=gA"),  # an offset that is cut off
    ],
)
def test_metadata_of_an_unknown_form_is_refused(text: str) -> None:
    assert Position.decode(WHOLE).sent_to == 7
    with pytest.raises(ContractError):
        Position.decode(text)


@pytest.mark.requirement("DC-22")
@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ('{"crm":5}', ("subject/1", 5, {"crm": 5})),
        ('{"dwh":9}', None),
        ('{"\\u0063rm":5}', ("subject/1", 5, {"crm": 5})),  # a name behind an escape is still the name
        ('{"dwh":9,"note":"crm"}', None),  # unreadable as sequences: intake's
        ("crm", None),
        ('{"xcrm":5}', None),
    ],
)
def test_two_headers_decide_whose_record_it_is(
    sequences: str, expected: tuple[str, int, dict[str, int]] | None
) -> None:
    assert Claim("crm").of(b"subject/1", [("ce_sequences", sequences.encode())]) == expected


@pytest.mark.requirement("DC-22")
def test_a_record_of_ours_that_cannot_be_parsed_has_an_identity_and_a_reason() -> None:
    bad = looked_into(ce_expiresat="soon")
    worse = looked_into(ce_id="x")
    foreign = looked_into(ce_tenant="other")

    assert bad.delivery_id == looked_into().delivery_id
    assert worse.delivery_id not in {None, bad.delivery_id}
    assert [bad.poison, worse.poison] == ["header ce_expiresat is malformed", "header ce_id is malformed"]
    assert foreign.poison is not None
    letter = read(DEAD_LETTER, recorder().dead_letter(bad, PLACE, "unreadable", 0))
    assert (letter["topic"], letter["partition"], letter["offset"]) == (PLACE.topic, 3, 77)
    assert letter["recorded_at"] == datetime(1970, 1, 1, tzinfo=UTC)


BROKEN = st.sampled_from([None, b"", b"x", b"1", b"-1", b"\xff", b"2026-01-01T00:00:00+01:00", b"2026-01-01", b"[]"])


@settings(max_examples=300, deadline=None)
@given(data=st.data(), value=st.none() | st.binary(max_size=9))
def test_reading_quickly_says_the_same_as_reading_carefully_or_nothing(
    data: st.DataObject, value: bytes | None
) -> None:
    found = dict(headers())
    others = [field.header for field in HEADERS if field.header != "ce_sequences"]  # those were read before
    for header in data.draw(st.lists(st.sampled_from(others), max_size=3)):
        found[header] = data.draw(BROKEN)
    for header in data.draw(st.lists(st.sampled_from(sorted({*found} - {"ce_sequences"})), max_size=1)):
        del found[header]
    listed = list(found.items())

    quick = quick_command("subject/1", {DestinationName("crm"): 5, DestinationName("dwh"): 9}, listed, value)

    if quick is not None:
        assert quick == parse_command(b"subject/1", listed, value)


def test_a_plain_command_is_read_quickly_also_beside_absent_and_unknown_headers() -> None:
    listed = [*headers(), ("ce_requestid", None), ("__debezium.context", b"1"), ("ce_optional", None)]

    quick = quick_command("subject/1", {DestinationName("crm"): 5, DestinationName("dwh"): 9}, listed, b"{}")

    assert quick == parse_command(b"subject/1", listed, b"{}")
