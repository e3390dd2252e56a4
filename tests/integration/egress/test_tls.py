"""TLS to a destination is verified, always; what fails says what, and that nothing was sent."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fixtures.certificates import DAY, Authority, Signed

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.fabric import HeaderConfig, SecretRef, TlsConfig
from waybill.delivery.core.classify import Failure, judge_failure
from waybill.egress import connections as module
from waybill.egress.client import GuardedClient
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import HttpLimits, PostError

#: The name every test's destination has; only the tests' resolver knows it.
NAME = "crm.invalid"


class Server:
    """A TLS server on this machine, and what it was told by whom."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[bytes] = []
        self.clients: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                self.heads.append(head)
                peer = writer.get_extra_info("peercert")
                self.clients.append(dict(pair[0] for pair in peer["subject"])["commonName"] if peer else "nobody")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


class Ground:
    """An authority, and files for what a destination refers to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.stranger = Authority("ours"), Authority("a stranger")

    def file(self, name: str, text: str) -> SecretRef:
        (self.folder / name).write_text(text)
        return SecretRef(file=str(self.folder / name))

    def tls(self, client: Signed | None = None) -> TlsConfig:
        authorities = self.file("authorities.pem", self.stranger.pem + self.authority.pem)
        if client is None:
            return TlsConfig(authorities=authorities)
        return TlsConfig(
            authorities=authorities,
            certificate=self.file("client.pem", client.pem),
            key=self.file("client.key", client.key_pem),
        )

    @asynccontextmanager
    async def server(
        self, certificate: Signed, asks: Authority | None = None, most: ssl.TLSVersion | None = None
    ) -> AsyncIterator[Server]:
        """Serve with a certificate; `asks` wants one of the client's too."""
        chain = self.folder / "server.pem"
        chain.write_text(certificate.pem + certificate.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        if asks is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=asks.pem)
        if most is not None:
            context.maximum_version = most
        it = Server()
        server = await asyncio.start_server(it.serve, "127.0.0.1", 0, ssl=context)
        it.port = server.sockets[0].getsockname()[1]
        try:
            yield it
        finally:
            server.close()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def here(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def client(
    server: Server,
    tls: TlsConfig | None,
    headers: tuple[HeaderConfig, ...] = (),
    *,
    host: str = NAME,
    connect_s: float = 5.0,
) -> AsyncIterator[Callable[[], "asyncio.Future[str]"]]:
    outbound = Outbound(
        destination="acme/crm",
        urls=(f"https://{host}:{server.port}/x",),
        limits=HttpLimits(connect_s=connect_s, read_s=5.0, total_s=5.0, connections=4),
        allow_networks=("127.0.0.1/32",),
        tls=tls,
        headers=headers,
    )
    made = GuardedClient(outbound, here)

    async def post() -> str:
        try:
            answer = await made.post(outbound.urls[0], [("webhook-id", "x")], b"{}")
        except PostError as error:
            verdict = judge_failure(Failure(error.failure.value), error.detail)
            return f"{verdict.code} {verdict.phase} {verdict.detail}"
        return str(answer.status)

    try:
        yield lambda: asyncio.ensure_future(post())
    finally:
        await made.close()


async def test_an_authority_of_the_destination_is_trusted_beside_the_machines(ground: Ground) -> None:
    async with ground.server(ground.authority.sign(NAME)) as server, client(server, ground.tls()) as post:
        assert await post() == "200"


async def test_an_address_in_the_url_is_verified_as_well(ground: Ground) -> None:
    found = []
    for name in ("127.0.0.1", "127.0.0.2"):
        served = ground.server(ground.authority.sign(name))
        async with served as server, client(server, ground.tls(), host="127.0.0.1") as post:
            found.append(await post())

    assert found == ["200", "TRANSIENT_NETWORK before_sending tls_certificate_of_another_name"]


@pytest.mark.requirement("AM-5")
@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (lambda ground: ground.authority.sign(NAME, (-2 * DAY, -DAY)), "tls_certificate_expired"),
        (lambda ground: ground.authority.sign(NAME, (DAY, 2 * DAY)), "tls_certificate_not_yet_valid"),
        (lambda ground: ground.authority.sign("erp.invalid"), "tls_certificate_of_another_name"),
        (lambda _: Authority("nobody knows").sign(NAME), "tls_authority_unknown"),
        (lambda _: Authority("its own"), "tls_certificate_refused"),
    ],
)
async def test_a_certificate_that_cannot_be_verified_ends_before_anything_is_sent(
    ground: Ground, make: Callable[[Ground], Signed], detail: str
) -> None:
    async with ground.server(make(ground)) as server, client(server, ground.tls()) as post:
        assert await post() == f"{ErrorCode.TRANSIENT_NETWORK} {Phase.BEFORE_SENDING} {detail}"

    assert server.heads == []


@pytest.mark.requirement("AM-5")
async def test_a_handshake_that_never_ends_is_a_connection_that_was_not_made(ground: Ground) -> None:
    over = asyncio.Event()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    silent, it = await asyncio.start_server(listens, "127.0.0.1", 0), Server()
    it.port = silent.sockets[0].getsockname()[1]
    async with silent, client(it, ground.tls(), connect_s=0.3) as post:
        assert await post() == "TRANSIENT_NETWORK before_sending connect_timeout"
        over.set()


async def test_without_the_destinations_authority_its_certificate_is_unknown(ground: Ground) -> None:
    async with ground.server(ground.authority.sign(NAME)) as server, client(server, None) as post:
        assert await post() == "TRANSIENT_NETWORK before_sending tls_authority_unknown"

    assert server.heads == []


async def test_a_destination_that_asks_who_we_are_is_told(ground: Ground) -> None:
    tls = ground.tls(ground.authority.sign("waybill.acme"))
    served = ground.server(ground.authority.sign(NAME), ground.authority)
    async with served as server, client(server, tls) as post:
        assert await post() == "200"

    assert server.clients == ["waybill.acme"]


@pytest.mark.parametrize("who", ["nobody", "a stranger's"])
async def test_a_destination_that_does_not_know_us_hears_nothing_of_a_delivery(ground: Ground, who: str) -> None:
    tls = ground.tls(ground.stranger.sign("waybill.acme") if who != "nobody" else None)
    old, asks = ssl.TLSVersion.TLSv1_2, ground.authority
    # In TLS 1.2 the refusal comes before the request: nothing was sent, and that is said.
    async with ground.server(ground.authority.sign(NAME), asks, old) as server, client(server, tls) as post:
        assert await post() == "TRANSIENT_NETWORK before_sending tls_refused_by_destination"
    # In TLS 1.3 it comes after the first bytes: what is not known is not claimed.
    async with ground.server(ground.authority.sign(NAME), asks) as newer, client(newer, tls) as post:
        assert (await post()).startswith("TRANSIENT_NETWORK during_sending ")

    assert server.heads + newer.heads == []


async def test_a_renewed_certificate_and_a_renewed_header_are_used_without_a_restart(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.0)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    tls = ground.tls(ground.authority.sign("first"))
    headers = (HeaderConfig(name="authorization", secret=ground.file("token", "Bearer one\n")),)
    served = ground.server(ground.authority.sign(NAME), ground.authority)
    async with served as server, client(server, tls, headers) as post:
        await post()
        ground.file("token", "Bearer two\n")
        renewed = ground.authority.sign("second")
        ground.file("client.pem", renewed.pem)  # the key is still the former one's: kept as it was
        await post()
        ground.file("client.key", renewed.key_pem)
        answers = [await post() for _ in range(4)]

    assert answers == ["200"] * 4
    assert server.clients[:2] == ["first"] * 2
    assert server.clients[-1] == "second"
    assert b"authorization: Bearer one\r\n" in server.heads[0]
    assert b"authorization: Bearer two\r\n" in server.heads[-1]


async def test_declared_headers_go_with_every_request_and_ours_stay_ours(ground: Ground) -> None:
    headers = (
        HeaderConfig(name="x-tenant", value="acme"),
        HeaderConfig(name="x-api-key", secret=ground.file("key", "geheim\n")),
    )
    async with ground.server(ground.authority.sign(NAME)) as server, client(server, ground.tls(), headers) as post:
        assert [await post(), await post()] == ["200", "200"]

    for head in server.heads:
        lines = head.decode().split("\r\n")
        assert {"x-tenant: acme", "x-api-key: geheim", "webhook-id: x"} <= set(lines)
