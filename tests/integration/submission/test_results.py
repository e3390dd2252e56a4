"""Results over HTTP: published as they came, refused and written down when they are not the destination's own."""

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from fixtures.fix_submission import Api, running
from fixtures.posted_results import CRM, by_another, post, result, signed
from typer.testing import CliRunner

from waybill.catalog import apply_topics, load_topics, topics_of
from waybill.cli.app import root
from waybill.contracts.receipt import Receipt, ReceiptStatus
from waybill.crypto.verifying import VerificationKeys
from waybill.delivery.core.results.believing import Arrived, Heard, hear, signature_of
from waybill.devstack import Stack
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.results import SignedResult

pytestmark = pytest.mark.postgres


def refused(api: Api) -> list[dict[str, Any]]:
    environ = {"WAYBILL_CONTROL_DSN": api.control_dsn}
    words = ["api", "refused", api.database.tenant, "--json"]
    done = CliRunner().invoke(root, words, env=environ, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["refused"]
    return found


def changed(api: Api) -> SignedResult:
    true = signed(api, result(api))
    return replace(true, body=true.body.replace(b"crm:1", b"crm:2"))


@pytest.mark.parametrize(
    ("forge", "status", "reason"),
    [
        (by_another, 403, "signature_mismatch"),
        (changed, 403, "signature_mismatch"),
        (lambda api: signed(api, replace(result(api), tenant=Tenant("acme"))), 403, "tenant"),
        (lambda api: signed(api, replace(result(api), destination=DestinationName("erp"))), 403, "destination"),
        (
            lambda api: signed(api, replace(result(api), receipt=Receipt(status=ReceiptStatus.DONE))),
            422,
            "receipt_without_source_version",
        ),
    ],
    ids=[
        "another destination's key",
        "changed",
        "another tenant",
        "another destination",
        "a receipt that proves nothing",
    ],
)
@pytest.mark.requirement("GW-19", "HS-2")
def test_a_forged_result_is_refused_and_written_down(
    api: Api, forge: Callable[[Api], SignedResult], status: int, reason: str
):
    forged = forge(api)

    answer = post(api, forged)

    assert (answer.status_code, answer.json()["reason"]) == (status, reason)
    newest = refused(api)[0]
    assert (newest["principal"], newest["reason"]) == ("crm", reason)
    assert newest["key_id"] in api.keys["crm"]
    assert newest["result_id"] == dict(forged.headers)["webhook-id"].decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"webhook-signature": ""}, 400), ({"webhook-timestamp": "soon"}, 400), ({"content-type": "text/plain"}, 415)],
)
def test_what_is_not_signed_at_all_is_no_result(api: Api, headers: dict[str, str], status: int):
    assert post(api, signed(api, result(api)), **headers).status_code == status


def test_a_result_that_was_heard_is_refused_when_it_is_said_again(api: Api):
    said = result(api)
    heard = (
        "INSERT INTO delivery.result (tenant, destination, partition, record_offset, result_id, delivery_id, aggregate,"
        " weighed, key_id, is_quarantined, said, body, body_sha256, arrived_at)"
        " VALUES (%s, 'crm', 0, %s, %s, %s, %s, 'waiting', 'k', false, '{}', '', repeat('0', 64), now())"
    )
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        place = (said.tenant, uuid.uuid4().int % 2**40, said.result_id, said.delivery_id, said.aggregate)
        connection.execute(heard.encode(), place)

    answer = post(api, signed(api, said))

    assert (answer.status_code, answer.json()["reason"]) == (409, "replayed")
    assert refused(api)[0]["reason"] == "replayed"


def test_a_result_about_another_aggregates_delivery_is_refused(api: Api, fresh_subject: str):
    said = result(api, f"subject/{fresh_subject}")
    known = (
        "INSERT INTO read.delivery (tenant, delivery_id, command_id, destination, aggregate, sequence, state)"
        " VALUES (%s, %s, gen_random_uuid(), 'crm', 'subject/elsewhere', 1, 'delivered')"
    )
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        connection.execute(known.encode(), (said.tenant, said.delivery_id))
        answer = post(api, signed(api, said))
        connection.execute("DELETE FROM read.delivery WHERE delivery_id = %s", (said.delivery_id,))

    assert (answer.status_code, answer.json()["reason"]) == (403, "another_delivery")


def test_a_key_speaks_for_the_destination_its_principal_is_named_after_only(api: Api):
    answers = [post(api, signed(api, result(api)), who) for who in ("both", "shop")]

    assert [(each.status_code, each.json()["reason"]) for each in answers] == [
        (422, "results_not_declared"),
        (403, "missing_scope"),
    ]


def test_what_was_refused_stays_written_down(api: Api):
    post(api, by_another(api))

    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection, pytest.raises(psycopg.Error):
        connection.execute("DELETE FROM submission.refused_result")


def test_without_brokers_it_is_to_be_posted_again(api: Api):
    answer = post(api, signed(api, result(api)))

    assert (answer.status_code, answer.json()["reason"]) == (503, "brokers_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.stack
@pytest.mark.requirement("GW-19")
def test_a_result_is_published_as_it_came_where_its_command_lies(api: Api, stack: Stack, fresh_subject: str):
    tenant, partitions = Tenant(api.database.tenant), 6
    admin = KafkaAdmin(stack.kafka, SystemClock())
    apply_topics(admin, tenant, partitions, declared=topics_of(load_topics(), ("crm",)))
    said = [signed(api, result(api, f"subject/{fresh_subject}-{number}")) for number in range(20)]

    with running(api.control_dsn, api.database.dsn("postgres"), stack.kafka) as (at, process):
        mine = replace(api, url=at["url"], process=process)
        answers = [post(mine, each) for each in said]

    assert {each.status_code for each in answers} == {202}
    assert [each.json()["resultId"] for each in answers] == [dict(each.headers)["webhook-id"].decode() for each in said]
    records = read_all(stack.kafka, said[0].topic, partitions, len(said))
    keys = VerificationKeys.from_text(api.results_key.public_text())
    for each in said:
        partition, value, headers = records[each.key]
        assert partition == murmur2(each.key) % partitions
        assert (value, headers) == (each.body, list(each.headers))
        arrived = Arrived(offset=0, signed=signature_of(headers), body=value, at=datetime.now(UTC))
        assert isinstance(hear(arrived, keys, tenant, CRM), Heard)


def read_all(
    bootstrap: str, topic: str, partitions: int, count: int
) -> dict[bytes, tuple[int, bytes, list[tuple[str, bytes]]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[bytes, tuple[int, bytes, list[tuple[str, bytes]]]] = {}
    deadline = SystemClock().monotonic() + 60
    while len(found) < count and SystemClock().monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            headers: Any = message.headers()
            key, value, partition = message.key(), message.value(), message.partition()
            assert isinstance(key, bytes)
            assert value is not None
            assert partition is not None
            found[key] = (partition, bytes(value, "utf-8") if isinstance(value, str) else value, headers)
    consumer.close()
    return found


def murmur2(data: bytes) -> int:
    """Java's partitioner, written down once more from its source: the number a partition is chosen by."""
    mask, mix, state = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        state = state * mix & mask ^ word
    if rest := data[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * mix & mask
    state = (state ^ state >> 13) * mix & mask
    return (state ^ state >> 15) & 0x7FFFFFFF
