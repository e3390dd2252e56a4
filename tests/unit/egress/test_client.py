"""A client connects to addresses that were judged, and to nothing else, whatever a name leads to a moment later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from waybill.egress import connections as module
from waybill.egress.client import GuardedClient
from waybill.egress.connections import PAUSE_S, RENEW_S
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import Answer, HttpLimits, Pin, PostError, PostFailure, Way

LIMITS = HttpLimits(connect_s=1.0, read_s=2.0, total_s=3.0, connections=1)
URL = "http://crm.example/commands"


class Wire:
    """What the HTTP clients that were made connect to."""

    def __init__(self) -> None:
        self.made: list[Pin | None] = []
        self.closed: list[Pin | None] = []
        self.sent: list[str] = []
        self.down: set[str] = set()

    def client(self, limits: HttpLimits, way: Way) -> "FakeHttp":
        self.made.append(way.pin)
        return FakeHttp(self, way.pin)


class FakeHttp:
    def __init__(self, wire: Wire, pin: Pin | None) -> None:
        self.wire, self.pin = wire, pin

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        address = self.pin.address if self.pin else "url"
        if address in self.wire.down:
            raise PostError(PostFailure.CONNECT)
        self.wire.sent.append(address)
        return Answer(200, b"", None)

    async def close(self) -> None:
        self.wire.closed.append(self.pin)


class Dns:
    """Answers in the order a test gives them; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers: Iterator[Sequence[str]] = iter(answers)
        self.last: Sequence[str] = ()
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked += 1
        await self.open.wait()
        self.last = next(self.answers, self.last)
        if not self.last:
            raise OSError("no such name")
        return self.last


class Bench:
    def __init__(self, wire: Wire, client: GuardedClient, now: list[float]) -> None:
        self.wire, self.client, self._now = wire, client, now

    async def post(self, after_s: float = 0.0) -> str:
        """Post once and return where it went, or why it did not."""
        self._now[0] += after_s
        try:
            await self.client.post(self.client.outbound.urls[0], [], b"{}")
        except PostError as error:
            return error.detail or error.failure.value
        finally:
            for _ in range(5):  # what goes on beside the request
                await asyncio.sleep(0)
        return self.wire.sent[-1]


@asynccontextmanager
async def bench(
    monkeypatch: pytest.MonkeyPatch,
    dns: Callable[[str], object],
    *networks: str,
    url: str = URL,
    limits: HttpLimits = LIMITS,
) -> AsyncIterator[Bench]:
    wire, now = Wire(), [100.0]
    monkeypatch.setattr(module, "HttpClient", wire.client)
    outbound = Outbound(destination="acme/crm", urls=(url,), limits=limits, allow_networks=networks)
    client = GuardedClient(outbound, resolver=dns, monotonic=lambda: now[0])  # type: ignore[arg-type] # a fake
    try:
        yield Bench(wire, client, now)
    finally:
        await client.close()
        assert len(wire.closed) == len(wire.made), "a client was left open"


async def test_a_name_is_looked_up_once_and_only_its_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = Dns(["8.8.8.8", "2600::1"])
    async with bench(monkeypatch, dns) as it:
        went = [await it.post() for _ in range(5)]

    assert went == ["8.8.8.8"] * 5
    assert it.wire.made == [Pin("crm.example", "8.8.8.8")]
    assert dns.asked == 1


async def test_a_name_that_leads_inside_is_refused_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(monkeypatch, Dns(["8.8.8.8", "10.0.0.5"])) as it:
        assert await it.post() == "egress_private"

    assert it.wire.made == []


async def test_a_name_that_is_rebound_is_refused_from_then_on_and_good_again_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns = Dns(["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8"])
    async with bench(monkeypatch, dns) as it:
        went = [await it.post(), await it.post(RENEW_S), await it.post(), await it.post(PAUSE_S)]

    # The look-up of the second request ends beside it: that one still goes to the address that was judged.
    assert went == ["8.8.8.8", "8.8.8.8", "egress_loopback", "8.8.8.8"]
    assert {pin.address for pin in it.wire.made if pin} == {"8.8.8.8"}


async def test_an_opened_network_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(monkeypatch, Dns(["10.1.2.3"]), "10.1.0.0/16") as it:
        assert await it.post() == "10.1.2.3"


async def test_while_requests_go_on_nobody_waits_for_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = Dns(["8.8.8.8"])
    async with bench(monkeypatch, dns) as it:
        await it.post()
        dns.open.clear()
        went = [await it.post(RENEW_S), await it.post(1.0)]
        dns.open.set()

    assert went == ["8.8.8.8"] * 2


async def test_an_address_stays_while_the_name_leads_to_it_or_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = Dns(["8.8.8.8"], ["9.9.9.9", "8.8.8.8"], [], ["9.9.9.9"])
    async with bench(monkeypatch, dns) as it:
        went = [await it.post(RENEW_S) for _ in range(5)]

    assert went == ["8.8.8.8"] * 4 + ["9.9.9.9"]
    assert len(it.wire.made) == 2


async def test_an_address_that_cannot_be_reached_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = Dns(["8.8.8.8", "9.9.9.9"])
    async with bench(monkeypatch, dns) as it:
        it.wire.down = {"8.8.8.8"}
        went = [await it.post(), await it.post(), await it.post(PAUSE_S), await it.post()]

    assert went == ["connect", "connect", "connect", "9.9.9.9"]
    assert dns.asked == 2  # not once for each failure


async def test_an_unknown_name_is_no_connection_and_is_not_asked_for_by_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns = Dns([])
    async with bench(monkeypatch, dns) as it:
        went = [await it.post(), await it.post(), await it.post(PAUSE_S)]

    assert went == ["name_not_resolved"] * 3
    assert dns.asked == 2


async def test_a_name_server_that_does_not_answer_costs_the_time_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns = Dns(["8.8.8.8"])
    dns.open.clear()
    async with bench(monkeypatch, dns, limits=replace(LIMITS, connect_s=0.02)) as it:
        first = await it.post()
        dns.open.set()
        went = [first, await it.post(), await it.post(PAUSE_S)]

    assert went == ["name_not_resolved", "name_not_resolved", "8.8.8.8"]


async def test_a_client_that_is_closed_while_a_name_is_looked_up_ends_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns = Dns(["8.8.8.8"])
    dns.open.clear()
    async with bench(monkeypatch, dns) as it:
        waiting = asyncio.ensure_future(it.post())
        await asyncio.sleep(0)
        await it.client.close()
        ended = await waiting

    assert ended == "name_not_resolved"


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://127.0.0.1:9/", "egress_loopback"),
        ("http://0x7f.1/", "egress_spelling"),
        ("http://metadata.google.internal/", "egress_metadata"),
    ],
)
async def test_a_url_that_says_enough_is_refused_without_asking_anybody(
    monkeypatch: pytest.MonkeyPatch, url: str, rule: str
) -> None:
    dns = Dns(["8.8.8.8"])
    async with bench(monkeypatch, dns, url=url) as it:
        assert await it.post() == rule

    assert (it.wire.made, dns.asked) == ([], 0)


async def test_an_address_in_the_url_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = Dns()
    async with bench(monkeypatch, dns, "127.0.0.1/32", url="http://127.0.0.1:9/") as it:
        assert [await it.post(RENEW_S) for _ in range(3)] == ["url"] * 3

    assert (it.wire.made, dns.asked) == ([None], 0)


async def test_a_request_for_another_url_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(monkeypatch, Dns(["8.8.8.8"])) as it:
        with pytest.raises(PostError) as caught:
            await it.client.post("http://other.example/", [], b"")

    assert caught.value.failure is PostFailure.UNBUILDABLE
    assert it.wire.sent == []
