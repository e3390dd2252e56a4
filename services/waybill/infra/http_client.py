"""The door to HTTP for deliveries: one POST, told apart by how far it got.

Invariants: redirects are never followed (a signed body goes to the one address that was configured), no proxy of
the environment is used, no cookie is kept, nothing is decompressed, an answer is read up to a limit and no
further. A pinned name is connected to at its one address and nowhere else. Whatever goes wrong is a `PostError` with
the phase it happened in: only a failure before the first byte says that nothing can have happened at the other side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from pyreqwest import exceptions
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.http import Url

from waybill.kernel.errors import ConfigError, TransientError

__all__ = ["Answer", "HttpClient", "HttpLimits", "Pin", "PostError", "PostFailure", "Way", "host_of"]


class PostFailure(StrEnum):
    """How a request ended without a whole answer."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    POOL_TIMEOUT = "pool_timeout"
    REFUSED = "refused"
    UNBUILDABLE = "unbuildable"
    WRITE = "write"
    READ = "read"
    TIMEOUT = "timeout"
    ANSWER = "answer"
    UNKNOWN = "unknown"


class PostError(TransientError):
    """No whole answer came back."""

    code = "post_failed"

    def __init__(self, failure: PostFailure, detail: str | None = None) -> None:
        super().__init__(detail or failure.value)
        self.failure = failure
        #: A narrower word for the same failure.
        self.detail = detail


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    retry_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of one client's requests."""

    connect_s: float
    read_s: float
    total_s: float
    connections: int
    #: An answer above this is not read on.
    max_answer_bytes: int = 65_536


class Pin(NamedTuple):
    """A name and the one address its connections are made to; nobody is asked for it."""

    host: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What connections are made with and requests carry; what may be secret is never shown."""

    pin: Pin | None = None
    #: PEM certificates of authorities that are trusted beside the machine's.
    authorities: str = field(default="", repr=False)
    #: PEM certificate and private key of a client.
    identity: str = field(default="", repr=False)
    #: Carried by every request that does not set them itself.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


#: The client says `ConnectError` and `ConnectTimeoutError` also for a connection that broke or hung after the request
#: was written. Only this cause means that no connection was ever there; without it a byte may have left.
_NEVER_CONNECTED: Final = "client error (Connect)"

_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
#: What a cause says → the detail of a failure of TLS.
_TLS: Final[tuple[tuple[str, str], ...]] = (
    ("certificate expired", "tls_certificate_expired"),
    ("certificate not valid yet", "tls_certificate_not_yet_valid"),
    ("certificate not valid for name", "tls_certificate_of_another_name"),
    ("UnknownIssuer", "tls_authority_unknown"),
    ("invalid peer certificate", "tls_certificate_refused"),
    ("received fatal alert", "tls_refused_by_destination"),
    ("tls handshake eof", "tls_refused_by_destination"),
    ("received corrupt message", "tls_not_spoken"),
)

# The most special first: subclasses stand before their parents.
_FAILURES: Final[tuple[tuple[type[Exception], PostFailure], ...]] = (
    (exceptions.PoolTimeoutError, PostFailure.POOL_TIMEOUT),
    (exceptions.WriteError, PostFailure.WRITE),
    (exceptions.WriteTimeoutError, PostFailure.TIMEOUT),
    (exceptions.ReadTimeoutError, PostFailure.TIMEOUT),
    (exceptions.ReadError, PostFailure.READ),
    (exceptions.RequestTimeoutError, PostFailure.TIMEOUT),
    (exceptions.BuilderError, PostFailure.UNBUILDABLE),
    (exceptions.BodyDecodeError, PostFailure.READ),
    (exceptions.DecodeError, PostFailure.ANSWER),
    (exceptions.RedirectError, PostFailure.ANSWER),
    (exceptions.NetworkError, PostFailure.READ),
    (exceptions.TransportError, PostFailure.READ),
)


class HttpClient:
    """Posts to one destination over kept connections."""

    def __init__(self, limits: HttpLimits, way: Way | None = None) -> None:
        """Make a client; nothing is connected to yet.

        Raises:
            ConfigError: certificate, key or authorities cannot be used.
        """
        self._limit = limits.max_answer_bytes
        builder = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(False)
            .referer(False)
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
            .default_cookie_store(False)
            .http1_lower_case_headers()
            .user_agent("waybill")
            .timeout(timedelta(seconds=limits.total_s))
            .read_timeout(timedelta(seconds=limits.read_s))
            .connect_timeout(timedelta(seconds=limits.connect_s))
            .pool_timeout(timedelta(seconds=limits.connect_s))
            .pool_idle_timeout(timedelta(seconds=20))
            .pool_max_idle_per_host(limits.connections)
        )
        try:
            self._client: Client = (builder if way is None else _going(builder, way)).build()
        except (ValueError, exceptions.BuilderError):
            raise ConfigError(
                "expected a PEM certificate with its own private key, not encrypted, and PEM authorities"
            ) from None

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Send one request and return its answer.

        Raises:
            PostError: there is no whole answer; says how far it got.
        """
        try:
            request = (
                self._client.post(url)
                .headers(headers)
                .body_bytes(body)
                .streamed_read_buffer_limit(self._limit)
                .build_streamed()
            )
        except Exception as error:  # whatever the builder does not like, nothing was sent
            raise PostError(PostFailure.UNBUILDABLE) from error
        try:
            async with request as response:
                data = await response.body_reader.read(self._limit + 1)
                if data is not None and len(data) > self._limit:
                    raise PostError(PostFailure.ANSWER)
                return Answer(response.status, b"" if data is None else bytes(data), response.get_header("retry-after"))
        except exceptions.PyreqwestError as error:
            raise PostError(_failure_of(error), _tls_detail(error)) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


def _going(builder: ClientBuilder, way: Way) -> ClientBuilder:
    if way.pin is not None:
        builder = builder.resolve(way.pin.host, way.pin.address, 0)
    if way.authorities:
        if _CERTIFICATE not in way.authorities:  # passed over without a word otherwise
            raise ValueError("no certificate")
        builder = builder.add_root_certificate_pem(way.authorities.encode())
    if way.identity:
        builder = builder.identity_pem(way.identity.encode())
    return builder.default_headers(way.headers) if way.headers else builder


def host_of(url: str) -> str | None:
    """Return the host a request for a url goes to, as the client reads it; None when it cannot read it."""
    try:
        return Url(url).host_str
    except ValueError:
        return None


def _tls_detail(error: exceptions.PyreqwestError) -> str | None:
    if not isinstance(error, exceptions.DetailedPyreqwestError):
        return None
    said = [cause["message"] for cause in error.details.get("causes") or []]
    return next((detail for words, detail in _TLS if any(words in message for message in said)), None)


def _failure_of(error: exceptions.PyreqwestError) -> PostFailure:
    if isinstance(error, exceptions.ConnectTimeoutError | exceptions.ConnectError):
        causes = error.details.get("causes") or []
        timed_out = isinstance(error, exceptions.ConnectTimeoutError)
        if any(cause["message"] == _NEVER_CONNECTED for cause in causes):
            return PostFailure.CONNECT_TIMEOUT if timed_out else PostFailure.CONNECT
        return PostFailure.TIMEOUT if timed_out else PostFailure.READ
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return failure
    return PostFailure.UNKNOWN
