"""`waybill listen --forward-to` before a real HTTP listener: bytes there and back, what is shown, what is refused."""

import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fixtures.fake_listener import FakeListener, receipt
from fixtures.listen_process import listening
from typer.testing import CliRunner

from waybill.capture import Capture, CaptureSettings, Checker
from waybill.capture.forwarding import Forwarder
from waybill.cli.listen import app
from waybill.cli.send_test import app as send_test
from waybill.conformance.posting import Poster, listener_url
from waybill.conformance.program import free_port
from waybill.contracts.command import Command
from waybill.contracts.envelope import CONTENT_TYPE, delivery_id_text, render
from waybill.contracts.fabric import Level
from waybill.crypto.keys import KeyRecord, jwks_document
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.core.verification import Binding
from waybill.listener.key_source import FixedKeys

CRM = DestinationName("crm")


class Desk:
    """A capture server in this process, the listener behind it, and who sends."""

    def __init__(self, listener: FakeListener, key: KeyRecord, target: str | None = None) -> None:
        clock = SystemClock()
        self.listener, self.signer = listener, Signer([key])
        binding = Binding(tenant=Tenant("acme"), destination=CRM)
        keys = FixedKeys(VerificationKeys.from_jwks(jwks_document([key])))
        checker = Checker(binding=binding, keys=keys, signer=self.signer, clock=clock)
        url = target or listener.url
        forwarder = Forwarder(Poster(listener_url(url), clock), Level.L1)
        self.capture = Capture(CaptureSettings(target=url, keep=3), checker, forwarder, clock)
        transport = httpx.ASGITransport(app=self.capture)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")

    async def send(self, command: Command, **headers: str) -> httpx.Response:
        body, webhook_id = render(command, CRM), delivery_id_text(command.command_id, CRM)
        stamp = int(datetime.now(UTC).timestamp()) - 2
        signed = {
            "content-type": CONTENT_TYPE,
            "webhook-id": webhook_id,
            "webhook-timestamp": str(stamp),
            "webhook-signature": self.signer.sign(webhook_id, stamp, body),
        }
        return await self.client.post("/deliveries", content=body, headers={**signed, **headers})

    async def kept(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = (await self.client.get("/_waybill/deliveries")).json()["deliveries"]
        return found

    async def token(self) -> str:
        found: str = (await self.client.get("/_waybill/deliveries")).json()["replay_token"]
        return found


@pytest.fixture
async def desk(signing_key: KeyRecord) -> AsyncIterator[Desk]:
    with FakeListener(behave=lambda _: receipt(evidence="urn:1")).serving() as listener:
        found = Desk(listener, signing_key)
        yield found
        await found.client.aclose()


async def test_a_delivery_goes_on_byte_for_byte_and_its_answer_comes_back(
    desk: Desk, make_command: Callable[..., Command]
):
    command = make_command(data=b'{"amount":1.10, "who":"\xc3\xa9\xe2\x80\xa8"}')

    answer = await desk.send(command, **{"x-trace": "7"})

    (arrival,) = desk.listener.arrivals
    (kept,) = await desk.kept()
    assert arrival.body == render(command, CRM)
    assert arrival.headers["x-trace"] == "7"
    assert arrival.headers["webhook-id"] == str(kept["delivery_id"])
    assert answer.json()["evidence"] == "urn:1"
    assert kept["signature"] == {"believed": True, "check": None, "code": None, "reason": None}
    assert kept["answer"]["meaning"] == "receipt"  # type: ignore[index]
    assert "1.10" not in json.dumps(kept)


@pytest.mark.parametrize(
    ("changes", "headers", "check", "reason"),
    [
        ({}, {"webhook-signature": "v1a,bm90aGluZw=="}, "signature", "signature_mismatch"),
        ({}, {"webhook-timestamp": "7"}, "signature", "timestamp_too_old"),
        ({"tenant": Tenant("other")}, {}, "tenant", "tenant"),
    ],
)
@pytest.mark.requirement("DC-9", "DC-10")
async def test_what_may_not_be_believed_is_named_and_goes_on_all_the_same(
    desk: Desk,
    make_command: Callable[..., Command],
    changes: dict[str, object],
    headers: dict[str, str],
    check: str,
    reason: str,
):
    await desk.send(make_command(**changes), **headers)

    (kept,) = await desk.kept()
    page = (await desk.client.get("/")).text
    assert (kept["signature"]["check"], kept["signature"]["reason"]) == (check, reason)  # type: ignore[index]
    assert f"{check}: " in page
    assert len(desk.listener.arrivals) == 1


async def test_a_kept_delivery_is_sent_again_under_a_signature_of_now(desk: Desk, make_command: Callable[..., Command]):
    await desk.send(make_command())
    page = (await desk.client.get("/")).text
    token = re.findall(r'name="token" value="([^"]+)"', page)[0]

    done = await desk.client.post("/_waybill/deliveries/1/replay", data={"token": token})

    first, again = desk.listener.arrivals
    kept = await desk.kept()
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert (again.body, again.delivery_id) == (first.body, first.delivery_id)
    assert again.headers["webhook-timestamp"] > first.headers["webhook-timestamp"]
    assert [(each["number"], each["replay_of"]) for each in kept] == [(2, 1), (1, None)]
    assert all(each["signature"]["believed"] for each in kept)  # type: ignore[index]


async def test_nothing_is_sent_again_without_the_token_of_the_page(desk: Desk, make_command: Callable[..., Command]):
    await desk.send(make_command())

    refused = await desk.client.post("/_waybill/deliveries/1/replay", data={"token": "guess"})
    gone = await desk.client.post("/_waybill/deliveries/9/replay", data={"token": await desk.token()})

    assert (refused.status_code, gone.status_code, len(desk.listener.arrivals)) == (403, 404, 1)


@pytest.mark.parametrize("path", ["/", "/_waybill/deliveries"])
async def test_pages_are_answered_under_the_name_of_this_machine_only(desk: Desk, path: str):
    """A foreign name that leads to 127.0.0.1 would let its site read what deliveries carry."""
    rebound = await desk.client.get(path, headers={"host": "evil.example"})
    local = await desk.client.get(path, headers={"host": "localhost:8000"})

    assert (rebound.status_code, local.status_code) == (421, 200)


async def test_the_page_loads_nothing_and_keeps_no_more_than_it_says(desk: Desk, make_command: Callable[..., Command]):
    for _ in range(4):
        await desk.send(make_command())

    page = await desk.client.get("/")

    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert re.findall(r'<article id="delivery-(\d)"', page.text) == ["4", "3", "2"]


async def test_a_listener_that_is_away_is_told_as_nothing_sent(
    signing_key: KeyRecord, make_command: Callable[..., Command]
):
    desk = Desk(FakeListener(), signing_key, f"http://127.0.0.1:{free_port()}/")

    answer = await desk.send(make_command())

    (kept,) = await desk.kept()
    assert (answer.status_code, answer.json()["reason"]) == (503, "target_unreachable")
    assert kept["failure"]["was_sent"] is False  # type: ignore[index]
    await desk.client.aclose()


async def test_a_listener_that_breaks_off_leaves_it_open_whether_it_acted(
    signing_key: KeyRecord, make_command: Callable[..., Command]
):
    with FakeListener(behave=lambda _: None).serving() as listener:
        desk = Desk(listener, signing_key)
        answer = await desk.send(make_command())

    assert (answer.status_code, answer.json()["type"]) == (504, "urn:waybill:error:AMBIGUOUS_RESULT")
    await desk.client.aclose()


def test_the_command_stands_before_a_listener(tmp_path: Path):
    keys = tmp_path / "keys"
    with FakeListener().serving() as listener:
        first = CliRunner().invoke(send_test, [listener.url, "--keys-dir", str(keys)])  # makes the keys
        assert first.exit_code == 0
        with listening(tmp_path, f"--forward-to={listener.url}", "--keys-dir", str(keys)) as (_, url):
            ended = CliRunner().invoke(send_test, [url, "--keys-dir", str(keys)])
            (kept,) = httpx.get(f"{url}/_waybill/deliveries").json()["deliveries"]
            public = httpx.get(f"{url}/.well-known/waybill/keys")

    assert ended.exit_code == 0
    assert kept["signature"]["believed"] is True
    assert len(listener.arrivals) == 2
    assert public.json() == json.loads((keys / "conformance" / "jwks.json").read_bytes())
    assert public.headers["cache-control"] == "public, max-age=300"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], ConfigError, "--forward-to"),
        (["app:listener", "--forward-to", "http://127.0.0.1:1/"], ConfigError, "--forward-to"),
        (["--forward-to", "http://127.0.0.1:8000/", "--port", "8000"], ConfigError, "itself"),
        (["--forward-to", "http://127.0.0.1:1/", "--secret", "whsec_x"], ConfigError, "never the secret"),
        (["--forward-to", "http://127.0.0.1:1/", "--tenant", "No"], ConfigError, "lower case"),
    ],
)
def test_wrong_input_says_what_was_expected(tmp_path: Path, words: list[str], error: type[Exception], message: str):
    (tmp_path / "conformance").mkdir()
    CliRunner().invoke(send_test, ["http://127.0.0.1:9/", "--keys-dir", str(tmp_path)])  # makes the keys

    ended = CliRunner().invoke(app, [*words, "--keys-dir", str(tmp_path)])

    assert isinstance(ended.exception, error)
    assert message in str(ended.exception)
