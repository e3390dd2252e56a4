"""Rendering and reading the envelope: rules and properties."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import (
    Envelope,
    GapEntry,
    GapResolution,
    Resolution,
    delivery_id_text,
    is_json_type,
    render,
    render_gap_resolution,
)
from waybill.contracts.envelope_reader import parse
from waybill.kernel.clock import format_instant, truncate_to_ms
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant, delivery_id

MakeCommand = Callable[..., Command]
CRM = DestinationName("crm")

# Header values: whatever UTF-8 can carry.
texts = st.text(st.characters(codec="utf-8"), max_size=40)
maybe = st.none() | texts
instants = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis attaches the zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001 - hypothesis attaches the zone
    timezones=st.just(UTC),
)
numbers = st.integers(0, 2**31 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
# JSON as people write it: any value, any indentation, any white space around it.
json_bytes = st.builds(
    lambda value, indent, ascii_only, before, after: (
        before + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + after
    ).encode(),
    json_values,
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.text(" \t\r\n", max_size=3),
    st.text(" \t\r\n", max_size=3),
)
payloads = st.one_of(
    st.tuples(st.just(DataForm.CLEAR), st.sampled_from(["application/json", "application/a+json"]), json_bytes),
    st.tuples(st.just(DataForm.CLEAR), st.just("application/avro"), st.binary(max_size=60)),
    st.tuples(st.just(DataForm.SEALED), st.just("application/json"), st.binary(max_size=60)),
    st.tuples(st.just(DataForm.REFERENCE), st.just("application/json"), st.just(b"")),
)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    form, content_type, data = draw(payloads)
    return Command(
        command_id=CommandId(draw(st.uuids())),
        tenant=Tenant(draw(texts)),
        aggregate=Aggregate(draw(texts)),
        sequences={CRM: draw(st.integers(1, 2**31 - 1))},
        optional_destinations=frozenset({CRM} if draw(st.booleans()) else ()),
        source=draw(texts),
        command_type=draw(texts.filter(lambda text: text != "waybill.gap-resolution")),
        issued_at=draw(instants),
        expires_at=draw(instants),
        content_type=content_type,
        data_schema=draw(maybe),
        operation_id=draw(maybe),
        request_id=draw(maybe),
        request_size=draw(st.none() | st.integers(1, 2**31 - 1)),
        instruction_version=draw(numbers),
        replaces=draw(st.none() | st.uuids().map(CommandId)),
        config_version=draw(numbers),
        capability=draw(texts),
        capability_version=draw(numbers),
        legal_versions=draw(maybe),
        config_versions=draw(maybe),
        envelope_version=1,
        data_form=form,
        data_key_id=draw(maybe),
        data_ref=draw(maybe),
        data_digest=draw(maybe),
        traceparent=draw(maybe),
        data=data,
    )


@given(commands())
def test_whatever_was_rendered_reads_back_to_the_same(command: Command) -> None:
    envelope = parse(render(command, CRM))

    assert isinstance(envelope, Envelope)
    assert envelope.data == command.data
    assert envelope.issued_at == truncate_to_ms(command.issued_at)
    assert envelope.operation_id == (
        command.operation_id if command.operation_id is not None else str(envelope.delivery_id)
    )
    for name in ("tenant", "aggregate", "source", "command_type", "data_schema", "request_id", "request_size"):
        assert getattr(envelope, name) == getattr(command, name)
    for name in ("replaces", "capability", "legal_versions", "data_key_id", "data_ref", "data_digest", "traceparent"):
        assert getattr(envelope, name) == getattr(command, name)


@given(commands())
@pytest.mark.requirement("GW-2")
def test_the_body_is_a_pure_function(command: Command) -> None:
    assert render(command, CRM) == render(replace(command), CRM)


@given(commands())
def test_a_plain_json_parser_reads_what_the_strict_one_reads(command: Command) -> None:
    document = json.loads(render(command, CRM))

    assert document["tenant"] == command.tenant
    assert document["subject"] == command.aggregate
    assert document["id"] == str(delivery_id(command.command_id, CRM))
    if command.data_form is DataForm.CLEAR and is_json_type(command.content_type):
        assert document["data"] == json.loads(command.data)


@given(st.uuids(), texts)
def test_the_short_way_to_a_delivery_id_is_the_long_one(command: uuid.UUID, destination: str) -> None:
    name = DestinationName(destination)

    assert delivery_id_text(CommandId(command), name) == str(delivery_id(CommandId(command), name))


@given(st.datetimes(min_value=datetime(1000, 1, 2), timezones=st.timezones()))  # noqa: DTZ001
def test_instants_look_as_everywhere_else(instant: datetime) -> None:
    try:
        instant.astimezone(UTC)
    except OverflowError:
        return
    gap = GapResolution(
        resolution_id=DeliveryId(uuid.UUID(int=1)),
        tenant=Tenant("acme"),
        destination=CRM,
        aggregate=Aggregate("a/b"),
        source="s",
        issued_at=instant,
        config_version=1,
        entries=(GapEntry(sequence=1, delivery_id=DeliveryId(uuid.UUID(int=2)), resolution=Resolution.FINAL),),
    )

    assert json.loads(render_gap_resolution(gap))["time"] == format_instant(instant)


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("APPLICATION/JSON; charset=utf-8", True),
        ("application/problem+json", True),
        ("text/json", True),
        ("application/jsonl", False),
        ("application/x-ndjson", False),
        ("json", False),
        ("application/avro; x=+json", False),
        ("", False),
    ],
)
def test_a_media_type_says_json_by_its_subtype(content_type: str, is_json: bool) -> None:
    assert is_json_type(content_type) is is_json


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'1},"tenant":"other"', id="a value that closes the envelope"),
        pytest.param(b'{"a":1},"destination":"mail"', id="a value and one more attribute"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"  ", id="white space"),
        pytest.param(b"{} {}", id="two values"),
        pytest.param(b"NaN", id="not a number"),
        pytest.param(b"[Infinity]", id="infinity"),
        pytest.param(b"{'a':1}", id="single quotes"),
        pytest.param(b'"\x01"', id="a bare control character"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b"[" * 100_000, id="endless nesting"),
    ],
)
def test_data_that_are_not_one_json_value_are_never_spliced_in(make_command: MakeCommand, data: bytes) -> None:
    with pytest.raises(ContractError, match="not one JSON value"):
        render(make_command(data=data), CRM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequences": {"mail": 1}}, "does not name this destination"),
        ({"envelope_version": 2}, "envelope version 2 is unknown"),
        ({"data_form": DataForm.REFERENCE}, "data beside a reference"),
        ({"issued_at": datetime(2026, 1, 1)}, "without a time zone"),  # noqa: DTZ001
    ],
)
def test_a_command_that_has_no_body_is_refused(
    make_command: MakeCommand, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        render(make_command(**changes), CRM)


def test_numbers_keep_their_digits(make_command: MakeCommand) -> None:
    body = render(make_command(data=b'{"amount": 1.10}'), CRM)

    assert body.endswith(b',"data":{"amount": 1.10}}')


def test_an_instant_in_another_zone_is_the_same_instant(make_command: MakeCommand) -> None:
    here = datetime(2026, 1, 1, tzinfo=UTC)
    there = here.astimezone(timezone(timedelta(hours=9)))
    command = make_command(issued_at=here)

    assert render(replace(command, issued_at=there), CRM) == render(command, CRM)


@pytest.mark.parametrize("sequences", [[], [2, 1], [1, 1]], ids=["none", "descending", "twice"])
def test_a_gap_resolution_lists_ascending_sequences(sequences: list[int]) -> None:
    gap = GapResolution(
        resolution_id=DeliveryId(uuid.UUID(int=1)),
        tenant=Tenant("acme"),
        destination=CRM,
        aggregate=Aggregate("a/b"),
        source="s",
        issued_at=datetime(2026, 1, 1, tzinfo=UTC),
        config_version=1,
        entries=tuple(
            GapEntry(sequence=number, delivery_id=DeliveryId(uuid.UUID(int=number)), resolution=Resolution.FINAL)
            for number in sequences
        ),
    )

    with pytest.raises(ContractError, match="ascending"):
        render_gap_resolution(gap)
