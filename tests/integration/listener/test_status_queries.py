"""What a listener says when it is asked what became of a delivery."""

import asyncio
import uuid
from datetime import timedelta
from hashlib import sha256

import pytest
from fixtures.fix_listener import CRM, Site, erase
from psycopg import AsyncConnection

from waybill.contracts.command import Command
from waybill.contracts.envelope import delivery_id_text, render
from waybill.contracts.receipt import parse_receipt
from waybill.contracts.status_query import (
    Said,
    StatusAnswer,
    StatusQuery,
    parse_status_answer,
    render_status_query,
    status_query_id,
)
from waybill.kernel.ids import DeliveryId, Tenant
from waybill.listener import Done, Received

pytestmark = pytest.mark.postgres


def question(site: Site, command: Command, *, tenant: str = "acme") -> StatusQuery:
    delivery = DeliveryId(uuid.UUID(delivery_id_text(command.command_id, CRM)))
    return StatusQuery(
        query_id=status_query_id(delivery, int(site.clock.now().timestamp() * 1000), "test"),
        tenant=Tenant(tenant),
        destination=CRM,
        aggregate=command.aggregate,
        source=command.source,
        asked_at=site.clock.now(),
        config_version=1,
        delivery_id=delivery,
        operation_id=command.operation_id or str(delivery),
        body_sha256=sha256(render(command, CRM)).hexdigest(),
    )


async def ask(site: Site, command: Command) -> StatusAnswer:
    query = question(site, command)
    answer = await site.send_body(render_status_query(query), str(query.query_id))
    assert answer.status_code == 200
    said = parse_status_answer(answer.content)
    assert (said.query_id, said.delivery_id) == (str(query.query_id), str(query.delivery_id))
    return said


@pytest.mark.requirement("AM-2")
async def test_what_was_done_is_told_with_its_receipt_also_after_its_expiry(site: Site) -> None:
    command = site.make_command()
    receipt = parse_receipt((await site.send(command)).content)
    site.clock.advance(timedelta(days=8).total_seconds())

    answer = await ask(site, command)

    assert (answer.said, answer.receipt) == (Said.DONE, receipt)
    assert await site.effects() == ["8f14e45f"]


@pytest.mark.requirement("AM-2")
async def test_what_never_came_is_not_done_and_asking_records_nothing(site: Site) -> None:
    command = site.make_command()

    assert (await ask(site, command)).said is Said.NOT_DONE
    assert (await site.records(), await site.effects()) == ([], [])
    assert (await site.send(command)).status_code == 200
    assert "waybill-repeat" not in (await site.send(site.make_command())).headers, "it was a first one"


@pytest.mark.requirement("AM-2")
async def test_what_is_being_done_is_in_progress(bare_site: Site) -> None:
    site, inside, go_on = bare_site, asyncio.Event(), asyncio.Event()

    @site.listener.on("subject.erase")
    async def slow(command: Received, transaction: AsyncConnection) -> Done:
        inside.set()
        await go_on.wait()
        return await erase(command, transaction)

    command = site.make_command()
    sending = asyncio.create_task(site.send(command))
    await inside.wait()
    during = await ask(site, command)
    go_on.set()
    await sending

    assert during.said is Said.IN_PROGRESS
    assert (await ask(site, command)).said is Said.DONE


async def test_another_delivery_of_the_same_operation_does_not_answer_for_this_one(site: Site) -> None:
    await site.send(site.make_command(operation_id="op-4711"))

    assert (await ask(site, site.make_command(operation_id="op-4711"))).said is Said.NOT_DONE


async def test_a_delivery_that_was_executed_with_another_body_is_a_conflict(site: Site) -> None:
    command = site.make_command()
    await site.send(command)
    query = question(site, command)
    other = render_status_query(query).replace(query.body_sha256.encode(), b"0" * 64)

    answer = await site.send_body(other, str(query.query_id))

    assert (answer.status_code, answer.json()["reason"]) == (409, "body_differs")


@pytest.mark.requirement("DC-9")
@pytest.mark.requirement("DC-10")
async def test_a_question_is_verified_like_a_delivery(site: Site) -> None:
    command = site.make_command()
    query = question(site, command)
    body = render_status_query(query)
    foreign = question(site, command, tenant="other")

    forged = await site.send_body(body, str(query.query_id), webhook_signature="v1a,AAAA")
    renamed = await site.send_body(body, str(query.delivery_id))
    for_another = await site.send_body(render_status_query(foreign), str(foreign.query_id))

    assert [(answer.status_code, answer.json()["reason"]) for answer in (forged, renamed, for_another)] == [
        (401, "signature_mismatch"),
        (400, "id_mismatch"),
        (403, "tenant"),
    ]
