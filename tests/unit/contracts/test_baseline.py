"""Rendering and reading a part of a baseline: rules and properties."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.baseline import (
    BaselinePart,
    LaneStart,
    render_baseline_part,
    render_lanes,
    statement_digest,
)
from waybill.contracts.envelope import GapEntry, Resolution
from waybill.contracts.envelope_reader import parse
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant

numbers = st.integers(1, 2**31 - 1)
told = st.builds(
    GapEntry, sequence=numbers, delivery_id=st.uuids().map(DeliveryId), resolution=st.sampled_from(Resolution)
)
lanes = st.builds(
    LaneStart,
    aggregate=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).map(Aggregate),
    next=numbers,
    told=st.lists(told, max_size=4, unique_by=lambda entry: entry.sequence).map(
        lambda entries: tuple(sorted(entries, key=lambda entry: entry.sequence))
    ),
).filter(lambda lane: lane.next not in {entry.sequence for entry in lane.told})
listed = st.lists(lanes, min_size=1, max_size=4, unique_by=lambda lane: lane.aggregate).map(
    lambda found: tuple(sorted(found, key=lambda lane: lane.aggregate))
)


def part_of(found: tuple[LaneStart, ...], **changes: Any) -> tuple[BaselinePart, bytes]:
    data = render_lanes(found)
    part = BaselinePart(
        part_id=uuid.UUID(int=2),
        baseline_id=uuid.UUID(int=1),
        tenant=Tenant("acme"),
        destination=DestinationName("crm"),
        source='urn:"é":',
        issued_at=datetime(2026, 1, 1, tzinfo=UTC),
        expires_at=datetime(2026, 1, 1, 4, tzinfo=UTC),
        config_version=3,
        nonce="n",
        part=2,
        parts=5,
        digest="0" * 64,
        lanes=found,
        data_sha256=sha256(data).hexdigest(),
    )
    return replace(part, **changes), data


@given(listed)
def test_a_part_reads_back_to_what_it_states(found: tuple[LaneStart, ...]) -> None:
    part, data = part_of(found)

    assert parse(render_baseline_part(part, data)) == part


ONE = LaneStart(aggregate=Aggregate("subject/1"), next=3)
ENTRY = GapEntry(sequence=3, delivery_id=DeliveryId(uuid.UUID(int=5)), resolution=Resolution.DEFERRED)


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (replace(ONE, aggregate=Aggregate("subject/2")), ONE),
        (ONE, ONE),
        (replace(ONE, next=0),),
        (replace(ONE, told=(ENTRY,)),),
        (replace(ONE, told=(replace(ENTRY, sequence=5), replace(ENTRY, sequence=4))),),
        (replace(ONE, told=(replace(ENTRY, sequence=2), replace(ENTRY, sequence=2))),),
    ],
)
def test_what_no_part_may_state_is_not_rendered(wrong: tuple[LaneStart, ...]) -> None:
    with pytest.raises(ContractError):
        render_lanes(wrong)


GOOD = '{"lanes":[{"aggregate":"subject/1","next":3,"told":[]}]}'


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"lanes":[]}',
        GOOD.replace('"next":3', '"next":0'),
        GOOD.replace('"next":3', '"next":true'),
        GOOD.replace('"next":3', '"next":3.0'),
        GOOD.replace('"next":3', f'"next":{2**31}'),
        GOOD.replace('"next":3', '"next":3,"next":4'),
        GOOD.replace('"told":[]', '"told":[{"sequence":2}]'),
        GOOD.replace('"told":[]', '"told":[],"more":1'),
        GOOD.replace('"aggregate":"subject/1",', ""),
        GOOD.replace("]}", '],"more":1}', 1),
    ],
)
def test_data_that_are_no_list_of_aggregates_are_refused(data: str) -> None:
    part, good = part_of((ONE,))
    assert good.decode() == GOOD

    with pytest.raises(ContractError):
        parse(render_baseline_part(part, data.encode()))


@pytest.mark.parametrize(
    "changes",
    [
        {"part": 0},
        {"part": 6},
        {"parts": 100_001, "part": 1},
        {"digest": "0" * 63},
        {"digest": "A" * 64},
    ],
)
def test_a_part_that_is_none_of_its_statement_is_refused(changes: dict[str, Any]) -> None:
    part, data = part_of((ONE,), **changes)

    with pytest.raises(ContractError):
        parse(render_baseline_part(part, data))


@pytest.mark.parametrize("name", ["baselineid", "nonce", "part", "parts", "digest", "expiresat", "tenant", "time"])
def test_a_part_without_one_of_its_attributes_is_refused(name: str) -> None:
    part, data = part_of((ONE,))
    document = json.loads(render_baseline_part(part, data))
    del document[name]

    with pytest.raises(ContractError):
        parse(json.dumps(document, separators=(",", ":")).encode())


def test_the_digest_depends_on_every_part_and_their_order() -> None:
    first, second = (sha256(text).hexdigest() for text in (b"1", b"2"))

    assert len({statement_digest(parts) for parts in ([first, second], [second, first], [first], [second])}) == 4
