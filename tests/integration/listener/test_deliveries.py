"""A listener on a real PostgreSQL: what is executed, once, and what is answered."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fixtures.fix_listener import CRM, Site, erase
from psycopg import AsyncConnection

from waybill.contracts.command import DataForm
from waybill.contracts.envelope import (
    GapEntry,
    GapResolution,
    Resolution,
    delivery_id_text,
    render,
    render_gap_resolution,
)
from waybill.contracts.receipt import parse_receipt
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant
from waybill.listener import Done, ErrorCode, Received, Refuse
from waybill.testing.waiting import eventually_async

pytestmark = pytest.mark.postgres


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    """Return status, code and reason of a problem answer."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    return answer.status_code, document["type"].removeprefix("urn:waybill:error:"), document["reason"]


@pytest.mark.requirement("GW-6")
@pytest.mark.requirement("DC-17")
async def test_a_delivery_is_executed_recorded_and_receipted(site: Site) -> None:
    command = site.make_command()

    answer = await site.send(command)

    receipt = parse_receipt(answer.content)
    assert answer.status_code == 200
    assert "waybill-repeat" not in answer.headers
    assert receipt.complete()
    assert receipt.delivery_id == receipt.operation_id == delivery_id_text(command.command_id, CRM)
    assert (receipt.source_version, receipt.evidence, receipt.count) == ("contacts-1", "crm:erasure/8f14e45f", 1)
    assert await site.effects() == ["8f14e45f"]
    assert [str(found) for found in await site.records()] == [receipt.delivery_id]


@pytest.mark.requirement("DC-16")
@pytest.mark.requirement("GW-4")
@pytest.mark.requirement("AT-2")
async def test_five_attempts_have_one_effect_and_one_receipt(site: Site) -> None:
    command = site.make_command()

    answers = []
    for _ in range(5):
        answers.append(await site.send(command))
        site.clock.advance(60)

    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.content for answer in answers}) == 1
    assert [answer.headers.get("waybill-repeat") for answer in answers] == [None, "true", "true", "true", "true"]
    assert await site.effects() == ["8f14e45f"]


@pytest.mark.requirement("GW-5")
async def test_the_same_id_with_another_body_is_a_conflict(site: Site) -> None:
    command = site.make_command()
    await site.send(command)

    answer = await site.send(replace(command, data=b'{"subject":"somebody else"}'))

    assert refusal(answer) == (409, "VERSION_CONFLICT", "body_differs")
    assert await site.effects() == ["8f14e45f"]


@pytest.mark.requirement("DC-16")
async def test_another_delivery_of_the_same_operation_reports_the_same_result(site: Site) -> None:
    first = site.make_command(operation_id="op-4711")
    second = site.make_command(operation_id="op-4711", instruction_version=2)
    await site.send(first)

    answer = await site.send(second)

    receipt = parse_receipt(answer.content)
    assert answer.status_code == 200
    assert answer.headers["waybill-repeat"] == "true"
    assert (receipt.operation_id, receipt.delivery_id) == ("op-4711", delivery_id_text(second.command_id, CRM))
    assert receipt.complete()
    assert await site.effects() == ["8f14e45f"]


async def test_another_delivery_that_takes_the_operation_for_something_else_is_a_conflict(site: Site) -> None:
    await site.send(site.make_command(operation_id="op-4711"))

    answer = await site.send(site.make_command(operation_id="op-4711", data=b'{"subject":"somebody else"}'))

    assert refusal(answer) == (409, "VERSION_CONFLICT", "operation_differs")
    assert await site.effects() == ["8f14e45f"]


@pytest.mark.requirement("DC-16")
async def test_duplicates_at_once_are_one_execution_and_equal_answers(bare_site: Site) -> None:
    """The others wait for the first one instead of answering something else."""
    site, inside, go_on = bare_site, asyncio.Event(), asyncio.Event()
    executions = 0

    @site.listener.on("subject.erase")
    async def slow(command: Received, transaction: AsyncConnection) -> Done:
        nonlocal executions
        executions += 1
        inside.set()
        await go_on.wait()
        return await erase(command, transaction)

    command = site.make_command()
    first = asyncio.create_task(site.send(command))
    await inside.wait()
    others = [asyncio.create_task(site.send(command)) for _ in range(4)]
    await waiting_for_locks(site, 4)
    go_on.set()
    answers = await asyncio.gather(first, *others)

    assert executions == 1
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert await site.effects() == ["8f14e45f"]


async def waiting_for_locks(site: Site, count: int) -> None:
    """Wait until so many sessions of this listener wait for another one's transaction."""
    query = """
        SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'waybill-listener' AND wait_event_type = 'Lock'
    """

    async def are_waiting() -> bool:
        return bool((await site.rows(query))[0] >= count)

    await eventually_async(are_waiting, within_s=20)


@pytest.mark.requirement("GW-6")
async def test_when_the_first_of_two_fails_the_second_executes(bare_site: Site) -> None:
    site, inside, go_on = bare_site, asyncio.Event(), asyncio.Event()

    @site.listener.on("subject.erase")
    async def first_fails(command: Received, transaction: AsyncConnection) -> Done:
        done = await erase(command, transaction)
        if not inside.is_set():
            inside.set()
            await go_on.wait()
            raise RuntimeError("the first one breaks after its writes")
        return done

    command = site.make_command()
    first = asyncio.create_task(site.send(command))
    await inside.wait()
    second = asyncio.create_task(site.send(command))
    await waiting_for_locks(site, 1)
    go_on.set()

    assert refusal(await first) == (500, "SOURCE_UNAVAILABLE", "handler_failed")
    assert (await second).status_code == 200
    assert "waybill-repeat" not in (await second).headers
    assert await site.effects() == ["8f14e45f"]


@pytest.mark.requirement("DC-8")
async def test_an_expired_delivery_is_not_executed(site: Site) -> None:
    command = site.make_command()
    site.clock.jump(command.expires_at)

    assert refusal(await site.send(command)) == (422, "POLICY_BLOCK", "expired")
    assert await site.effects() == []
    assert await site.records() == []


async def test_a_repeat_after_expiry_still_reports_what_was_done(site: Site) -> None:
    command = site.make_command()
    first = await site.send(command)
    site.clock.jump(command.expires_at + timedelta(hours=1))

    again = await site.send(command)

    assert (again.status_code, again.content) == (200, first.content)
    assert refusal(await site.send(replace(command, data=b"{}")))[1] == "VERSION_CONFLICT"


@pytest.mark.requirement("DC-10")
@pytest.mark.parametrize(
    ("changes", "destination", "reason"),
    [({"tenant": "other"}, "crm", "tenant"), ({"sequences": {"mail": 1}}, "mail", "destination")],
)
async def test_what_was_signed_for_somebody_else_is_refused(
    site: Site, changes: dict[str, Any], destination: str, reason: str
) -> None:
    body = render(site.make_command(**changes), DestinationName(destination))
    webhook_id = delivery_id_text(CommandId(uuid.UUID(_attribute(body, "commandid"))), DestinationName(destination))

    assert refusal(await site.send_body(body, webhook_id)) == (403, "AUTHZ", reason)
    assert await site.effects() == []


def _attribute(body: bytes, name: str) -> str:
    import json

    return str(json.loads(body)[name])


@pytest.mark.requirement("DC-11")
async def test_what_no_handler_declares_is_refused(bare_site: Site) -> None:
    site = bare_site
    site.listener.on("subject.erase", capability="erase", versions=(2, 3))(erase)

    async def outcome(**changes: Any) -> tuple[int, str, str]:
        return refusal(await site.send(site.make_command(**changes)))

    assert await outcome(command_type="subject.export") == (422, "PERMANENT_UNSUPPORTED", "command_type")
    assert await outcome(capability="export", capability_version=2) == (422, "PERMANENT_UNSUPPORTED", "capability")
    for version in (1, 4):
        assert (await outcome(capability="erase", capability_version=version))[2] == "capability"
    assert await site.effects() == []
    assert (await site.send(site.make_command(capability="erase", capability_version=3))).status_code == 200


@pytest.mark.requirement("DC-15")
async def test_of_many_faults_the_first_check_is_named(bare_site: Site) -> None:
    """One body with all faults; they are mended one by one, in the order of the checks."""
    site = bare_site
    command = site.make_command(tenant="other", sequences={"crm": 1, "mail": 1})
    site.clock.jump(command.expires_at)
    mail = DestinationName("mail")
    body = render(command, mail)

    named = [refusal(await site.send_body(body, delivery_id_text(command.command_id, mail), webhook_timestamp="1"))[1:]]
    named.append(refusal(await site.send_body(body, delivery_id_text(command.command_id, mail)))[1:])
    named.append(
        refusal(
            await site.send_body(
                render(replace(command, tenant=Tenant("acme")), mail), delivery_id_text(command.command_id, mail)
            )
        )[1:]
    )
    mended = replace(command, tenant=Tenant("acme"))
    named.append(refusal(await site.send(mended))[1:])
    named.append(refusal(await site.send(replace(mended, expires_at=site.clock.now() + timedelta(days=1))))[1:])

    assert named == [
        ("AUTH", "timestamp_too_old"),
        ("AUTHZ", "tenant"),
        ("AUTHZ", "destination"),
        ("POLICY_BLOCK", "expired"),
        ("PERMANENT_UNSUPPORTED", "command_type"),
    ]


@pytest.mark.requirement("DC-9")
async def test_a_changed_request_has_no_effect(site: Site) -> None:
    """One bit in body, each signed header, and the signature: AUTH, no call, no record."""
    command = site.make_command()
    body, webhook_id = render(command, CRM), delivery_id_text(command.command_id, CRM)
    good = site.headers(body, webhook_id)
    requests = [(bytes([body[0] ^ 1]) + body[1:], good), (body[:-2] + bytes([body[-2] ^ 4]) + body[-1:], good)]
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        value = good[name]
        for position in (0, len(value) // 2, len(value) - 1):
            flipped = value[:position] + chr(ord(value[position]) ^ 1) + value[position + 1 :]
            requests.append((body, {**good, name: flipped}))
        requests.append((body, {key: text for key, text in good.items() if key != name}))

    answers = [await site.client.post("/", content=sent, headers=headers) for sent, headers in requests]

    assert {refusal(answer)[:2] for answer in answers} == {(401, "AUTH")}
    assert await site.effects() == []
    assert await site.records() == []
    assert (await site.client.post("/", content=body, headers=good)).status_code == 200


async def test_a_header_that_comes_twice_proves_nothing(site: Site) -> None:
    command = site.make_command()
    body = render(command, CRM)
    headers = list(site.headers(body, delivery_id_text(command.command_id, CRM)).items())

    answer = await site.client.post("/", content=body, headers=[*headers, ("webhook-id", "another")])

    assert refusal(answer) == (401, "AUTH", "missing_header")


async def test_a_signed_id_that_is_not_the_bodys_is_refused(site: Site) -> None:
    body = render(site.make_command(), CRM)

    assert refusal(await site.send_body(body, str(uuid.uuid4()))) == (400, "VALIDATION", "id_mismatch")


async def test_a_signed_body_that_is_no_envelope_is_refused(site: Site) -> None:
    assert refusal(await site.send_body(b'{"specversion":"1.0"}', "x")) == (400, "VALIDATION", "envelope")


async def test_a_handler_that_refuses_leaves_nothing_and_may_accept_later(bare_site: Site) -> None:
    site, is_held = bare_site, True

    @site.listener.on("subject.erase")
    async def hold(command: Received, transaction: AsyncConnection) -> Done:
        done = await erase(command, transaction)
        if is_held:
            raise Refuse(ErrorCode.POLICY_BLOCK, "legal_hold", detail="ask the registrar")
        return done

    command = site.make_command()
    answer = await site.send(command)

    assert refusal(answer) == (422, "POLICY_BLOCK", "legal_hold")
    assert answer.json()["detail"] == "ask the registrar"
    assert (await site.effects(), await site.records()) == ([], [])

    is_held = False

    assert (await site.send(command)).status_code == 200
    assert await site.effects() == ["8f14e45f"]


async def test_a_handler_may_ask_for_time(bare_site: Site) -> None:
    @bare_site.listener.on("subject.erase")
    async def busy(command: Received, transaction: AsyncConnection) -> Done:
        raise Refuse(ErrorCode.RATE_LIMIT, "busy", retry_after=timedelta(seconds=2.5))

    answer = await bare_site.send(bare_site.make_command())

    assert refusal(answer) == (429, "RATE_LIMIT", "busy")
    assert answer.headers["retry-after"] == "3"


@pytest.mark.requirement("ET-5")
async def test_a_handler_that_breaks_leaves_nothing_and_tells_nothing(
    bare_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site = bare_site

    @site.listener.on("subject.erase")
    async def broken(command: Received, transaction: AsyncConnection) -> Done:
        await erase(command, transaction)
        raise RuntimeError(f"cannot erase {command.json()['subject']}")

    answer = await site.send(site.make_command())

    assert refusal(answer) == (500, "SOURCE_UNAVAILABLE", "handler_failed")
    assert "8f14e45f" not in answer.text
    assert "8f14e45f" not in caplog.text
    assert any(getattr(record, "error", None) == "RuntimeError" for record in caplog.records)
    assert (await site.effects(), await site.records()) == ([], [])


@pytest.mark.requirement("DC-3")
@pytest.mark.requirement("DC-17")
@pytest.mark.parametrize(
    "result",
    [
        lambda: None,
        lambda: {"status": "done"},
        lambda: Done(source_version="", evidence="e", count=1),
        lambda: Done(source_version="v", evidence="", count=1),
        lambda: Done(source_version="v", evidence="e"),
    ],
    ids=["nothing", "a mapping", "no version", "no evidence", "neither count nor digest"],
)
async def test_a_handler_without_proof_is_rolled_back(bare_site: Site, result: Callable[[], Any]) -> None:
    site = bare_site

    @site.listener.on("subject.erase")
    async def careless(command: Received, transaction: AsyncConnection) -> Done:
        await erase(command, transaction)
        found: Done = result()
        return found

    assert refusal(await site.send(site.make_command())) == (500, "SOURCE_UNAVAILABLE", "handler_failed")
    assert (await site.effects(), await site.records()) == ([], [])


async def test_a_handler_cannot_commit_by_itself(bare_site: Site) -> None:
    site = bare_site

    @site.listener.on("subject.erase")
    async def hasty(command: Received, transaction: AsyncConnection) -> Done:
        done = await erase(command, transaction)
        await transaction.commit()
        return done

    assert refusal(await site.send(site.make_command())) == (500, "SOURCE_UNAVAILABLE", "handler_failed")
    assert await site.effects() == []


async def test_a_gap_resolution_is_acknowledged_once(site: Site) -> None:
    gap = GapResolution(
        resolution_id=DeliveryId(uuid.uuid4()),
        tenant=Tenant("acme"),
        destination=CRM,
        aggregate=Aggregate("subject/8f14e45f"),
        source="urn:waybill:worker",
        issued_at=site.clock.now(),
        config_version=1,
        entries=(GapEntry(sequence=7, delivery_id=DeliveryId(uuid.uuid4()), resolution=Resolution.FINAL),),
    )

    answers = [await site.send_body(render_gap_resolution(gap), str(gap.resolution_id)) for _ in range(2)]

    assert parse_receipt(answers[0].content).complete()
    assert answers[0].content == answers[1].content
    assert answers[1].headers["waybill-repeat"] == "true"
    assert await site.effects() == []


@pytest.mark.requirement("GW-8")
async def test_a_repeat_is_recognised_through_the_retention(site: Site) -> None:
    command = site.make_command(expires_at=site.clock.now() + timedelta(days=60))
    await site.send(command)

    site.clock.advance(timedelta(days=30) - timedelta(seconds=1))
    assert await site.listener.purge() == 0
    assert (await site.send(command)).headers["waybill-repeat"] == "true"

    site.clock.advance(timedelta(days=29))
    assert await site.listener.purge() == 0, "not before the command has expired"
    assert (await site.send(command)).headers["waybill-repeat"] == "true"

    site.clock.advance(timedelta(days=2))
    assert await site.listener.purge() == 1
    assert refusal(await site.send(command)) == (422, "POLICY_BLOCK", "expired")
    assert await site.effects() == ["8f14e45f"]


async def test_data_of_every_form_reach_the_handler(bare_site: Site) -> None:
    site = bare_site
    seen: dict[str, object] = {}

    @site.listener.on("*")
    async def take(command: Received, transaction: AsyncConnection) -> Done:
        envelope = command.envelope
        seen[envelope.command_type] = (envelope.data_form, command.data, envelope.data_ref)
        return Done(source_version="1", evidence="e", count=0)

    sent = [
        site.make_command(command_type="json", data=b' {"a":1.10} '),
        site.make_command(command_type="bytes", content_type="application/avro", data=b"\x00\xff"),
        site.make_command(command_type="elsewhere", data_form=DataForm.REFERENCE, data_ref="s3://x", data=b""),
    ]
    assert [(await site.send(command)).status_code for command in sent] == [200, 200, 200]
    assert seen == {
        "json": (DataForm.CLEAR, b' {"a":1.10} ', None),
        "bytes": (DataForm.CLEAR, b"\x00\xff", None),
        "elsewhere": (DataForm.REFERENCE, b"", "s3://x"),
    }
