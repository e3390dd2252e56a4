"""One POST to a listener, told apart by how it ended.

One connection per request, no redirect followed, no proxy of the environment used, an answer read up to a limit and a
time. TLS is always verified. What did not come back as a whole answer is a `NotPosted` that says why, and whether a
byte of the request may have arrived: only then may something have been done at the other side.
"""

import http.client
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError

__all__ = ["NotPosted", "Posted", "Poster", "Trouble", "connect", "listener_url", "target_of"]

_CHUNK: Final = 65_536


class Trouble(StrEnum):
    """Why no whole answer came."""

    #: The name has no address.
    NAME = "name"
    #: Nobody listens there.
    REFUSED = "refused"
    #: The address is not reached.
    UNREACHABLE = "unreachable"
    #: The certificate is not believed, or this is no TLS.
    TLS = "tls"
    #: Not connected, or not answered, in time.
    TIMEOUT = "timeout"
    #: Ended amid the exchange, or no HTTP.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """An answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    took_ms: int
    #: The body was longer than what is read.
    is_cut: bool = False

    def header(self, name: str) -> str | None:
        """Return the first value under a name, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPosted:
    """No whole answer."""

    trouble: Trouble
    #: For people: what failed, in the words of who noticed.
    detail: str
    #: A byte of the request may have arrived.
    was_sent: bool


Ending: TypeAlias = Posted | NotPosted


def listener_url(text: str) -> SplitResult:
    """Read where deliveries go.

    Raises:
        ConfigError: it is no http or https URL, or has a user in it: that would be a secret on a command line.
    """
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_url = urlsplit(""), False
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL names a user: a listener knows the sender by its signature, leave the user out")
    if not is_url:
        raise ConfigError(f"{text!r}: expected http://host:port/path or https://…")
    return parts


def target_of(url: SplitResult) -> str:
    """Return what stands in the request line."""
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def connect(url: SplitResult, timeout_s: float, authorities: Path | None = None) -> http.client.HTTPConnection:
    """Return a connection that is not open yet.

    Raises:
        ConfigError: the file of authorities cannot be used.
    """
    assert url.hostname is not None
    if url.scheme != "https":
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
    context = ssl.create_default_context()
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{authorities}: expected certificates of authorities, as PEM") from error
    return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)


class Poster:
    """Sends bodies to one URL.

    Args:
        url: as `listener_url` returned it.
        clock: for the time an answer may take.
        timeout_s: for connecting, for each read, and for the body of an answer as a whole.
        max_bytes: of an answer.
        authorities: certificates that are trusted beside the machine's.
    """

    def __init__(
        self,
        url: SplitResult,
        clock: Clock,
        *,
        timeout_s: float = 20.0,
        max_bytes: int = 131_072,
        authorities: Path | None = None,
    ) -> None:
        self._url, self._clock = url, clock
        self._timeout_s, self._max_bytes = timeout_s, max_bytes
        self._authorities = authorities

    def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> Ending:
        """Send one request with these headers, in their order, beside `host` and `content-length`."""
        begun = self._clock.monotonic()
        with closing(connect(self._url, self._timeout_s, self._authorities)) as connection:
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                return NotPosted(trouble=_trouble(error), detail=self._told(error), was_sent=False)
            try:
                connection.putrequest("POST", target_of(self._url), skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value.encode("latin-1"))
                connection.putheader("content-length", str(len(body)))
                connection.endheaders(body)
                return self._read(connection.getresponse(), begun)
            except (OSError, http.client.HTTPException) as error:
                return NotPosted(trouble=_trouble(error), detail=self._told(error), was_sent=True)

    def _read(self, answer: http.client.HTTPResponse, begun: float) -> Posted:
        body = bytearray()
        while len(body) <= self._max_bytes and (part := answer.read1(_CHUNK)):
            body += part
            if self._clock.monotonic() - begun > self._timeout_s:
                raise TimeoutError
        is_cut = len(body) > self._max_bytes
        if not is_cut and answer.length:
            raise http.client.IncompleteRead(bytes(body), answer.length)
        return Posted(
            status=answer.status,
            headers=tuple(answer.getheaders()),
            body=bytes(body[: self._max_bytes]),
            took_ms=round((self._clock.monotonic() - begun) * 1000),
            is_cut=is_cut,
        )

    def _told(self, error: OSError | http.client.HTTPException) -> str:
        where = f"{self._url.hostname}:{self._url.port or (443 if self._url.scheme == 'https' else 80)}"
        match _trouble(error):
            case Trouble.NAME:
                return f"the name {self._url.hostname} has no address"
            case Trouble.REFUSED:
                return f"nobody listens on {where}"
            case Trouble.TIMEOUT:
                return f"{where} did not answer within {self._timeout_s:g} s"
            case Trouble.TLS:
                said = getattr(error, "verify_message", "") or getattr(error, "reason", "") or type(error).__name__
                return f"TLS with {where} failed: {said}"
            case Trouble.UNREACHABLE:
                return f"{where} is not reached: {getattr(error, 'strerror', None) or type(error).__name__}"
            case Trouble.BROKEN:
                return f"the exchange with {where} broke: {type(error).__name__}"


def _trouble(error: OSError | http.client.HTTPException) -> Trouble:
    match error:
        case ssl.SSLError():
            return Trouble.TLS
        case socket.gaierror():
            return Trouble.NAME
        case ConnectionRefusedError():
            return Trouble.REFUSED
        case TimeoutError():
            return Trouble.TIMEOUT
        case ConnectionError() | http.client.HTTPException():
            return Trouble.BROKEN
        case _:
            return Trouble.UNREACHABLE
