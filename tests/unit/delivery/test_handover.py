"""What a hand-over in Kafka is: the bytes of a request in a record, taken but not proven, asked about together."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from waybill.contracts.fabric import DestinationConfig, ResultSource, Transport
from waybill.crypto.keys import Algorithm, KeyRecord, Secret
from waybill.crypto.signing import Signer
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.ownership import identify
from waybill.delivery.core.records import Recorder, SchemaIds
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.results.handover import MAX_BODY, handed_over, look_every_s
from waybill.delivery.core.retry import Await, End, History, decide
from waybill.delivery.core.stored import unpack_record
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.handover.listeners import ListenerOffsets
from waybill.delivery.sender import Target
from waybill.delivery.settler import Topics
from waybill.delivery.store import Unpublished
from waybill.infra.http_client import PostError, PostFailure
from waybill.infra.strand import ThreadStrand
from waybill.kernel.errors import ContractError, UnavailableError
from waybill.kernel.ids import DestinationName, Tenant

NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
EXPIRES = NOW + timedelta(hours=2)
TOPICS = Topics("commands", "outcomes", "states", "dead-letters", "deliveries.crm")


class Clock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class Client:
    """Keeps what it was given, and breaks."""

    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[tuple[str, str]], bytes]] = []

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Any:
        self.sent.append((headers, body))
        raise PostError(PostFailure.CONNECT)


def target(transport: Transport, client: Any = None) -> Target:
    config = DestinationConfig(
        tenant=Tenant("acme"),
        name=DestinationName("crm"),
        url="http://crm" if transport is Transport.HTTP else None,
        transport=transport,
        owner="o",
        results=ResultSource(keys=()),
    )
    key = KeyRecord(
        key_id="k",
        algorithm=Algorithm.ED25519,
        secret=Secret(bytes([7]) * 32),
        not_before=NOW - timedelta(days=1),
        not_after=None,
    )
    recorder = Recorder(config, 1, "w", SchemaIds(outcome=1, task_state=2, dead_letter=3))
    return Target(recorder, Signer([key]), client, Clock(), Failpoints())


def item(data: bytes = b'{"a":1.10}', expires_at: datetime = EXPIRES) -> Item:
    headers = {
        "ce_specversion": "1.0",
        "ce_id": "0193e1c7-0000-7000-8000-000000000001",
        "ce_source": "/s",
        "ce_type": "subject.erase",
        "ce_subject": "subject/ü",
        "ce_time": "2026-01-01T00:00:00Z",
        "content-type": "application/json",
        "ce_tenant": "acme",
        "ce_sequences": '{"crm":5}',
        "ce_instructionversion": "1",
        "ce_expiresat": expires_at.isoformat().replace("+00:00", "Z"),
        "ce_configversion": "1",
        "ce_capability": "erase",
        "ce_capabilityversion": "1",
        "ce_envelopeversion": "1",
        "ce_dataform": "clear",
        "ce_traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    record: Any = ("subject/ü".encode(), [(name, text.encode()) for name, text in headers.items()], data)
    found = Item(3, "subject/ü", 5, record)
    found.sequences = {DestinationName("crm"): 5}
    identify(found, tenant="acme", destination="crm", topic="commands", partition=0)
    return found


def test_a_record_holds_exactly_what_a_request_would_carry() -> None:
    client, one = Client(), item()
    posting, handing = target(Transport.HTTP, client), target(Transport.KAFKA)

    asyncio.run(posting.attempt(one, posting.body_of(one)))
    verdict, attempt = asyncio.run(handing.attempt(one, handing.body_of(one)))

    packed = handing.envelope(one, attempt, verdict)
    assert packed is not None
    key, headers, value = unpack_record(packed)
    ((sent_headers, sent_body),) = client.sent
    assert (key, value) == ("subject/ü".encode(), sent_body)
    assert [(name, (text or b"").decode()) for name, text in headers] == list(sent_headers)
    assert [name for name, _ in headers] == [
        "content-type", "webhook-id", "webhook-timestamp", "webhook-signature", "traceparent",
    ]  # fmt: skip


def test_only_an_attempt_that_came_to_it_hands_over() -> None:
    one, handing = item(), target(Transport.KAFKA)
    verdict, attempt = asyncio.run(handing.attempt(one, handing.body_of(one)))

    assert handing.envelope(one, attempt._replace(number=0), verdict) is None, "a result is no attempt"
    assert handing.envelope(one, attempt, None) is None
    assert target(Transport.HTTP).envelope(one, attempt, verdict) is None


@pytest.mark.requirement("RS-4")
def test_what_is_handed_over_is_not_proven_and_is_awaited_while_its_command_lives() -> None:
    one = item()
    verdict = handed_over(one, NOW)

    assert not verdict.is_proven
    assert _decide(target(Transport.KAFKA), verdict) == Await(due=EXPIRES)
    assert handed_over(item(expires_at=NOW - timedelta(seconds=1)), NOW).accepted_for_s == 0.0


def test_a_gap_resolution_is_settled_by_its_hand_over() -> None:
    told = item()
    told.is_resolution = True

    verdict = handed_over(told, NOW)

    assert verdict.is_proven
    assert isinstance(_decide(target(Transport.KAFKA), verdict), End)


def _decide(handing: Target, verdict: Verdict) -> object:
    history = History(
        delivery_id="d", attempts=0, sent=False, may_have_acted=False, expires_at=EXPIRES, is_row=False, fresh_from=NOW
    )
    return decide(handing.config.retry, RepeatRule.of(handing.config), history, verdict, NOW)


@pytest.mark.requirement("DC-22")
def test_what_no_record_can_hold_is_refused_before_anything_is_written() -> None:
    large = item(b'"' + b"x" * MAX_BODY + b'"')

    with pytest.raises(ContractError, match="cannot be handed over"):
        target(Transport.KAFKA).body_of(large)
    assert len(target(Transport.HTTP).body_of(large)) > MAX_BODY


def test_what_a_row_hands_over_is_published_as_it_was_kept() -> None:
    one, handing = item(), target(Transport.KAFKA)
    verdict, attempt = asyncio.run(handing.attempt(one, handing.body_of(one)))
    packed = handing.envelope(one, attempt, verdict)
    row = Unpublished("d", 1, one.aggregate, b"outcome", b"state", None, packed)
    places: list[int] = []

    handed, *told = TOPICS.of_row(4, one.aggregate, row, places.append)

    assert [(each.topic, each.partition) for each in (handed, *told)] == [
        ("deliveries.crm", 4),
        ("outcomes", 4),
        ("states", 4),
    ]
    assert (handed.key, handed.headers, handed.value) == unpack_record(packed or b"")
    assert handed.placed is not None
    handed.placed(17)
    assert places == [17]
    assert TOPICS.of_row(4, one.aggregate, row._replace(pending_envelope=None), places.append) == tuple(told)


@pytest.mark.parametrize(("wait_s", "every_s"), [(1.0, 0.25), (60.0, 3.0), (100.0, 5.0), (604_800.0, 5.0)])
def test_listeners_are_looked_after_often_enough_for_the_wait_and_never_too_often(
    wait_s: float, every_s: float
) -> None:
    assert look_every_s(wait_s) == every_s


class Offsets:
    """Answers once it may, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        self.asked.append(group)
        assert self.may_answer.wait(10)
        if group == "away":
            raise UnavailableError("not now")
        return {("t", 0): 7, ("t", 1): 9}


def test_all_partitions_of_a_destination_are_asked_about_in_one_request() -> None:
    offsets, broken = Offsets(), list[BaseException]()

    async def ask() -> list[int | None]:
        listeners = ListenerOffsets(lambda: offsets, ThreadStrand("test"), broken.append)  # type: ignore[arg-type,return-value] # a fake
        told: list[asyncio.Future[int | None]] = []
        for group, partition in (("g", 0), ("g", 1), ("g", 2), ("away", 0)):
            told.append(asyncio.get_running_loop().create_future())
            listeners.ask(group, ("t", partition), told[-1].set_result)
        offsets.may_answer.set()
        found = list(await asyncio.wait_for(asyncio.gather(*told), 10))
        listeners.close()
        return found

    assert asyncio.run(ask()) == [7, 9, None, None]
    assert offsets.asked == ["g", "away"]
    assert broken == []
