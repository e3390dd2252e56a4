"""A listener that takes each aggregate's deliveries in order, and what a gap resolution changes."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fixtures.fix_listener import CRM, Site, erase

from waybill.contracts.command import Command
from waybill.contracts.envelope import GapEntry, GapResolution, Resolution, delivery_id_text, render_gap_resolution
from waybill.crypto.keys import KeyRecord, jwks_document
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant
from waybill.listener import Limits, Listener

pytestmark = pytest.mark.postgres
FINAL, DEFERRED = Resolution.FINAL, Resolution.DEFERRED


@pytest.fixture
async def ordered(site: Site, signing_key: KeyRecord) -> AsyncIterator[Site]:
    """The same site, whose listener checks sequences."""
    listener = Listener(
        tenant="acme",
        destination="crm",
        keys=VerificationKeys.from_jwks(jwks_document([signing_key])),
        store=site.store,
        limits=Limits(in_order=True),
        clock=site.clock,
    )
    listener.on("subject.erase")(erase)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=listener), base_url="http://crm.example") as client:
        yield replace(site, listener=listener, client=client)


def command(site: Site, sequence: int, aggregate: str = "subject/1") -> Command:
    """One whose effect is its number."""
    return site.make_command(
        aggregate=Aggregate(aggregate), sequences={CRM: sequence}, data=b'{"subject":"%d"}' % sequence
    )


def delivery(of: Command) -> DeliveryId:
    return DeliveryId(uuid.UUID(delivery_id_text(of.command_id, CRM)))


def gap(site: Site, *entries: tuple[Command, Resolution], **changes: Any) -> GapResolution:
    """A resolution that lists commands."""
    listed = tuple(
        GapEntry(sequence=of.sequences[CRM], delivery_id=delivery(of), resolution=told) for of, told in entries
    )
    values: dict[str, Any] = {
        "resolution_id": DeliveryId(uuid.uuid4()),
        "tenant": Tenant("acme"),
        "destination": CRM,
        "aggregate": Aggregate("subject/1"),
        "source": "urn:waybill:worker:acme:crm",
        "issued_at": site.clock.now(),
        "config_version": 1,
        "entries": listed,
    }
    return GapResolution(**{**values, **changes})


async def tell(site: Site, resolution: GapResolution, **changes: str) -> httpx.Response:
    return await site.send_body(render_gap_resolution(resolution), str(resolution.resolution_id), **changes)


async def status_of(site: Site, sent: Command) -> tuple[int, int | None]:
    answer = await site.send(sent)
    return answer.status_code, answer.json().get("expected_sequence")


@pytest.mark.requirement("DC-13")
async def test_a_later_one_is_told_what_is_missing_and_both_are_executed_in_order(ordered: Site) -> None:
    first, second, third = (command(ordered, number) for number in (1, 2, 3))

    assert await status_of(ordered, third) == (425, 1)
    assert [await status_of(ordered, sent) for sent in (first, third)] == [(200, None), (425, 2)]
    assert [await status_of(ordered, sent) for sent in (second, third)] == [(200, None), (200, None)]
    assert await ordered.effects() == ["1", "2", "3"]


@pytest.mark.requirement("DC-12")
async def test_an_older_one_is_a_repeat_with_its_receipt_or_refused(ordered: Site) -> None:
    first, second = command(ordered, 1), command(ordered, 2)
    for sent in (first, second):
        await ordered.send(sent)

    again, stranger = await ordered.send(first), await ordered.send(command(ordered, 1))

    assert (again.status_code, again.headers["waybill-repeat"]) == (200, "true")
    assert (stranger.status_code, stranger.json()["reason"]) == (409, "older_sequence")
    assert await ordered.effects() == ["1", "2"]


@pytest.mark.requirement("DC-13")
async def test_each_aggregate_has_numbers_of_its_own(ordered: Site) -> None:
    sent = [command(ordered, 1, f"subject/{number}") for number in range(3)]

    assert [await status_of(ordered, one) for one in sent] == [(200, None)] * 3


@pytest.mark.requirement("DC-13")
async def test_what_is_told_is_passed_over_and_remembered(ordered: Site) -> None:
    first, second, third, fourth = (command(ordered, number) for number in (1, 2, 3, 4))
    await ordered.send(first)

    told_ahead = await tell(ordered, gap(ordered, (third, FINAL)))
    assert told_ahead.status_code == 200
    assert await status_of(ordered, fourth) == (425, 2), "the second is still missing"
    await tell(ordered, gap(ordered, (second, FINAL)))

    assert await status_of(ordered, fourth) == (200, None)
    assert await ordered.effects() == ["1", "4"]
    assert await ordered.rows("SELECT sequence FROM gap") == [], "what has passed for good is not kept"


@pytest.mark.requirement("DC-12", "DC-13")
@pytest.mark.parametrize(("told", "status"), [(DEFERRED, 200), (FINAL, 409)])
async def test_an_older_one_is_executed_only_where_it_was_deferred(
    ordered: Site, told: Resolution, status: int
) -> None:
    first, second = command(ordered, 1), command(ordered, 2)
    await tell(ordered, gap(ordered, (first, told)))
    await ordered.send(second)

    late = await ordered.send(first)

    assert late.status_code == status
    assert await ordered.effects() == (["2", "1"] if told is DEFERRED else ["2"])


@pytest.mark.requirement("DC-13")
async def test_two_of_one_aggregate_at_once_are_executed_in_order(ordered: Site) -> None:
    sent = [command(ordered, number) for number in (1, 2, 3, 4)]

    for _ in range(len(sent)):
        await asyncio.gather(*(ordered.send(one) for one in reversed(sent)))

    assert await ordered.effects() == ["1", "2", "3", "4"]


FORGERIES: dict[str, Callable[[GapResolution, Command], tuple[GapResolution, dict[str, str]]]] = {
    "a signature of nobody": lambda it, _: (it, {"webhook_signature": "v1a,AAAA"}),
    "the signature of another body": lambda it, of: (
        replace(it, entries=(replace(it.entries[0], sequence=of.sequences[CRM]),)),
        {},
    ),
    "for another tenant": lambda it, _: (replace(it, tenant=Tenant("globex")), {}),
    "for another destination": lambda it, _: (replace(it, destination=DestinationName("erp")), {}),
    "under another id than signed": lambda it, _: (it, {"webhook_id": str(uuid.uuid4())}),
    "of another aggregate": lambda it, _: (replace(it, aggregate=Aggregate("subject/2")), {}),
}


@pytest.mark.requirement("DC-9", "DC-10", "DC-13")
@pytest.mark.parametrize("how", FORGERIES)
async def test_a_forged_resolution_releases_nothing(ordered: Site, how: str) -> None:
    first, second = command(ordered, 1), command(ordered, 2)
    forged, headers = FORGERIES[how](gap(ordered, (first, FINAL)), second)
    body = render_gap_resolution(forged)
    if how == "the signature of another body":
        signed = ordered.headers(render_gap_resolution(gap(ordered, (second, FINAL))), str(forged.resolution_id))
        headers = {"webhook_signature": signed["webhook-signature"]}

    signed_id = headers.pop("webhook_id", str(forged.resolution_id))
    await ordered.send_body(body, signed_id, **headers)

    assert await status_of(ordered, second) == (425, 1)
    assert await ordered.effects() == []


@pytest.mark.requirement("DC-13")
async def test_a_handler_that_fails_takes_no_turn(ordered: Site) -> None:
    broken = replace(command(ordered, 1), command_id=CommandId(uuid.uuid4()), data=b"[]")

    assert (await ordered.send(broken)).status_code >= 400
    assert await status_of(ordered, command(ordered, 2)) == (425, 1)
    assert await status_of(ordered, command(ordered, 1)) == (200, None)
