"""The HTTP edge: methods, sizes, media types, health, mounting, and keys that change while it runs."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fixtures.fix_listener import CRM, Site, erase
from starlette.applications import Starlette
from starlette.routing import Mount

from waybill.contracts.command import Command
from waybill.contracts.envelope import delivery_id_text, render
from waybill.crypto.keyring import ensure_signing, rotate_signing
from waybill.crypto.keys import jwks_path
from waybill.crypto.signing import Signer, load_signer
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import Tenant
from waybill.listener import FixedKeys, JwksFile, JwksUrl, KeySource, Limits, Listener, PostgresStore
from waybill.testing.clocks import MovableClock

pytestmark = pytest.mark.postgres

ACME = Tenant("acme")


async def test_only_posts_are_deliveries(site: Site) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await site.client.request(method, "/")

        assert (answer.status_code, answer.json()["reason"]) == (405, "method")
        assert answer.headers["allow"] == "POST"


async def test_a_body_over_the_limit_is_not_read_to_its_end(site: Site) -> None:
    pieces = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pieces
        while True:
            pieces += 1
            yield b"x" * 1000

    declared = await site.client.post("/", content=b"x" * 10_001)
    undeclared = await site.client.post("/", content=endless())

    for answer in (declared, undeclared):
        assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
    assert pieces == 11


async def test_another_media_type_is_refused(site: Site) -> None:
    answer = await site.send(site.make_command(), content_type="application/json")

    assert (answer.status_code, answer.json()["reason"]) == (415, "content_type")
    assert (await site.send(site.make_command(), content_type="Application/CloudEvents+JSON; charset=utf-8")).is_success


async def test_health_follows_the_database(site: Site, signing_keys: VerificationKeys) -> None:
    healthy = await site.client.get("/healthz")
    gone = Listener(
        tenant="acme",
        destination="crm",
        keys=signing_keys,
        store=PostgresStore("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2"),
        clock=site.clock,
    )
    gone.on("subject.erase")(erase)
    transport = httpx.ASGITransport(app=gone)
    async with httpx.AsyncClient(transport=transport, base_url="http://crm.example") as client:
        ill = await client.get("/healthz")
        body = render(command := site.make_command(), CRM)
        webhook_id = delivery_id_text(command.command_id, CRM)
        refused = await client.post("/", content=body, headers=site.headers(body, webhook_id))
        forged = await client.post("/", content=body + b" ", headers=site.headers(body, webhook_id))

    assert (healthy.status_code, healthy.json()) == (200, {"status": "ok"})
    assert (ill.status_code, ill.json()["status"]) == (503, "unavailable")
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:waybill:error:SOURCE_UNAVAILABLE")
    assert "retry-after" in refused.headers
    assert "nobody" not in refused.text
    assert forged.status_code == 401, "a forgery is told apart without the database"


@pytest.fixture
def signing_keys(signing_key: object) -> VerificationKeys:
    """The public half of the site's key."""
    from waybill.crypto.keys import KeyRecord, jwks_document

    assert isinstance(signing_key, KeyRecord)
    return VerificationKeys.from_jwks(jwks_document([signing_key]))


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_it_mounts_into_an_application(site: Site, framework: str) -> None:
    host: Starlette
    if framework == "starlette":
        host = Starlette(routes=[Mount("/waybill", app=site.listener)])
    else:
        host = FastAPI()
        host.mount("/waybill", site.listener)
    command = site.make_command()
    body = render(command, CRM)
    headers = site.headers(body, delivery_id_text(command.command_id, CRM))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://crm.example") as client:
        answer = await client.post("/waybill/", content=body, headers=headers)
        health = await client.get("/waybill/healthz")

    assert (answer.status_code, health.status_code) == (200, 200)
    assert await site.effects() == ["8f14e45f"]


async def sent(site: Site, keys: KeySource, signer: Signer, command: Command) -> int:
    """Send one command, signed by a signer, to a listener that has its keys from a source."""
    store = PostgresStore(site.dsn, schema=site.schema, max_connections=1)
    listener = Listener(tenant="acme", destination="crm", keys=keys, store=store, clock=site.clock)
    listener.on("subject.erase")(erase)
    body, stamp = render(command, CRM), int(site.clock.now().timestamp())
    webhook_id = delivery_id_text(command.command_id, CRM)
    headers = {**site.headers(body, webhook_id), "webhook-signature": signer.sign(webhook_id, stamp, body)}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=listener), base_url="http://x.example") as client:
        status = (await client.post("/", content=body, headers=headers)).status_code
    await listener.close()
    return status


@pytest.mark.requirement("GW-19")
async def test_a_key_file_is_followed_without_a_restart(site: Site, tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, site.clock.now())
    keys = JwksFile(jwks_path(tmp_path, ACME))
    command = site.make_command()
    assert await sent(site, keys, load_signer(tmp_path, ACME), command) == 200

    site.clock.advance(60)
    rotate_signing(tmp_path, ACME, site.clock.now(), timedelta(0))

    site.clock.advance(2)
    assert await sent(site, keys, load_signer(tmp_path, ACME), command) == 200

    jwks_path(tmp_path, ACME).write_text("half a fi")
    assert await sent(site, keys, load_signer(tmp_path, ACME), command) == 200, "the last good keys stay"


async def test_a_key_file_that_never_was_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a readable JSON Web Key Set"):
        await JwksFile(tmp_path / "jwks.json").current()


class KeyServer:
    """Serves a file as a key set and counts the requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests = 0
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator["KeyServer"]:
        server_self = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server_self.requests += 1
                body = server_self.path.read_bytes()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/jwks.json"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


@pytest.mark.requirement("GW-19")
async def test_a_key_url_is_asked_again_when_a_signature_finds_no_key(site: Site, tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, site.clock.now())
    with KeyServer(jwks_path(tmp_path, ACME)).serving() as server:
        keys = JwksUrl(server.url, site.clock)
        assert await sent(site, keys, load_signer(tmp_path, ACME), site.make_command()) == 200
        assert await sent(site, keys, load_signer(tmp_path, ACME), site.make_command()) == 200
        assert server.requests == 1, "fetched once, then kept"

        site.clock.advance(60)
        rotate_signing(tmp_path, ACME, site.clock.now(), timedelta(0))
        site.clock.advance(2)

        assert await sent(site, keys, load_signer(tmp_path, ACME), site.make_command()) == 200
        assert server.requests == 2

        stranger = tmp_path / "stranger"
        ensure_signing(stranger, ACME, site.clock.now())
        for _ in range(5):
            assert await sent(site, keys, load_signer(stranger, ACME), site.make_command()) == 401
        assert server.requests == 2, "forgeries do not become fetches"
    assert await sent(site, keys, load_signer(tmp_path, ACME), site.make_command()) == 200, "kept while it is away"


async def test_a_key_url_that_never_answered_is_an_error(clock: MovableClock) -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        await JwksUrl("http://127.0.0.1:1/jwks.json", clock).current()
    with pytest.raises(ConfigError, match="https://"):
        JwksUrl("file:///etc/passwd", clock)


async def test_fixed_keys_have_no_newer_ones(signing_keys: VerificationKeys) -> None:
    assert await FixedKeys(signing_keys).renewed() is None


def test_a_command_type_has_one_handler_and_a_window_is_a_window(site: Site) -> None:
    with pytest.raises(ConfigError, match="has a handler already"):
        site.listener.on("subject.erase")
    for tolerance in (timedelta(0), timedelta(seconds=-1), timedelta(days=2)):
        with pytest.raises(ConfigError, match="tolerance"):
            Limits(tolerance=tolerance)


async def test_the_answer_is_never_cached(site: Site) -> None:
    answer = await site.send(site.make_command())

    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(answer.content)["status"] == "done"
