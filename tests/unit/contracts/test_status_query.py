"""The question what became of a delivery, and what counts as an answer."""

import json
import uuid
from datetime import UTC, datetime

import pytest

from waybill.contracts.envelope_reader import parse
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.contracts.status_query import (
    Said,
    StatusAnswer,
    StatusQuery,
    parse_status_answer,
    render_status_answer,
    render_status_query,
    status_query_id,
)
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant

DELIVERY = DeliveryId(uuid.UUID("c2cf06e6-2b02-5e56-93a0-8f1e45542efa"))
QUERY = StatusQuery(
    query_id=status_query_id(DELIVERY, 1_800_000_000_000, "w"),
    tenant=Tenant("acme"),
    destination=DestinationName("crm"),
    aggregate=Aggregate('subject/"ä'),
    source="urn:waybill:outbox:acme:app",
    asked_at=datetime(2026, 1, 1, tzinfo=UTC),
    config_version=12,
    delivery_id=DELIVERY,
    operation_id='op "1"',
    body_sha256="0" * 64,
)
RECEIPT = Receipt(status=ReceiptStatus.DONE, source_version="7", count=0, evidence="crm:1")


def test_a_question_survives_the_wire() -> None:
    assert parse(render_status_query(QUERY)) == QUERY


def test_each_time_it_is_asked_the_question_has_another_id() -> None:
    assert len({status_query_id(DELIVERY, ms, who) for ms in (1, 2) for who in ("a", "b")}) == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b'"body_sha256":"' + b"0" * 64, b'"body_sha256":"' + b"0" * 63, id="a short digest"),
        pytest.param(b'"operation_id":', b'"operation":', id="no operation"),
        pytest.param(b'"operation_id":', b'"more":1,"operation_id":', id="something more"),
        pytest.param(b'"dataform":"clear"', b'"dataform":"sealed"', id="sealed"),
        pytest.param(b'"configversion":12', b'"configversion":12,"expiresat":"x"', id="an unknown attribute"),
        pytest.param(b"c2cf06e6-2b02", b"C2CF06E6-2B02", id="an id in another spelling"),
    ],
)
def test_a_question_that_is_not_exactly_one_is_refused(old: bytes, new: bytes) -> None:
    body = render_status_query(QUERY)
    assert body.count(old) == 1

    with pytest.raises(ContractError):
        parse(body.replace(old, new))


@pytest.mark.parametrize("receipt", [None, RECEIPT])
def test_an_answer_survives_the_wire(receipt: Receipt | None) -> None:
    answer = StatusAnswer(query_id="q", delivery_id=str(DELIVERY), said=Said.DONE, receipt=receipt)

    assert parse_status_answer(render_status_answer(answer)) == answer


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>not found</html>", id="a page"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"status":"not_done"}', id="an answer to nobody's question"),
        pytest.param(b'{"query_id":"q","delivery_id":"d","status":"unknown"}', id="a status of its own"),
        pytest.param(b'{"query_id":"q","delivery_id":"d","status":null}', id="no status"),
        pytest.param(b'{"query_id":"q","delivery_id":"d","status":"done","receipt":[]}', id="a receipt that is none"),
        pytest.param(json.dumps({"query_id": "q" * 70_000}).encode(), id="too large"),
    ],
)
def test_what_is_not_exactly_an_answer_is_refused(body: bytes) -> None:
    with pytest.raises(ContractError):
        parse_status_answer(body)
