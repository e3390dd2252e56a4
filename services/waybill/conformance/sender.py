"""Sends signed bodies to the listener under test, and reads its count of effects.

One connection per request, no redirect followed, no proxy of the environment used, an answer read up to a limit. An
answer that never came whole is a reply with status 0: the judges decide what that means.
"""

import hmac
import http.client
import json
import secrets
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from waybill.conformance.core.checks import BURST
from waybill.conformance.core.evidence import Reply
from waybill.contracts.envelope import CONTENT_TYPE
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["Letter", "Sender", "flawed", "forged_signature"]

_TIMEOUT_S: Final = 20.0
_MAX_BYTES: Final = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A body under its id."""

    webhook_id: str
    body: bytes


class Sender:
    """Signs and sends.

    Args:
        url: where deliveries go.
        effects_url: what answers `{"count": N}`; None where nobody counts.
        signer: the run's own keys.
        clock: what timestamps are taken from.
    """

    def __init__(self, url: str, effects_url: str | None, signer: Signer, clock: Clock) -> None:
        self._url = _parts(url)
        self._effects = _parts(effects_url) if effects_url is not None else None
        self._signer = signer
        self._clock = clock

    def headers(self, letter: Letter, *, shift_s: int = 0) -> dict[str, str]:
        """Return what the fabric would send beside this body, now or on a clock that is wrong by `shift_s`."""
        stamp = int(self._clock.now().timestamp()) + shift_s
        return {
            "content-type": CONTENT_TYPE,
            ID_HEADER: letter.webhook_id,
            TIMESTAMP_HEADER: str(stamp),
            SIGNATURE_HEADER: self._signer.sign(letter.webhook_id, stamp, letter.body),
        }

    def send(self, letter: Letter, headers: Mapping[str, str] | None = None, *, at: str | None = None) -> Reply:
        """Send one attempt and return what came back."""
        sent = dict(headers if headers is not None else self.headers(letter))
        return _post(_parts(at) if at is not None else self._url, letter, sent)

    def send_all(self, letters: Sequence[Letter]) -> tuple[Reply, ...]:
        """Send many at one moment; the answers come in the order of the letters."""
        with ThreadPoolExecutor(BURST) as threads:
            return tuple(threads.map(self.send, letters))

    def effects(self) -> int | None:
        """Return the listener's own count; None where nobody counts.

        Raises:
            UnavailableError: it does not answer with a count.
        """
        if self._effects is None:
            return None
        try:
            status, body = _get(self._effects)
            count = json.loads(body)["count"] if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"--effects {self._effects.geturl()} gives no count: {error!r}") from error
        if type(count) is not int or count < 0:
            raise UnavailableError(f'--effects {self._effects.geturl()} must answer 200 and {{"count": <a number>}}')
        return count

    def is_there(self) -> bool:
        """Whether something answers at the URL, whatever it says."""
        try:
            _get(self._url)
        except (OSError, http.client.HTTPException):
            return False
        return True


def flawed(text: bytes) -> bytes:
    """Return a body with one byte changed that is still JSON."""
    at = text.rindex(b'"subject":"') + len(b'"subject":"')
    return text[:at] + (b"X" if text[at : at + 1] != b"X" else b"Y") + text[at + 1 :]


def forged_signature(headers: Mapping[str, str]) -> str:
    """Return a signature of the right form that nobody made."""
    mac = hmac.digest(secrets.token_bytes(32), headers[ID_HEADER].encode(), "sha256")
    return f"v1a,{b64encode(secrets.token_bytes(64)).decode()} v1,{b64encode(mac).decode()}"


def _parts(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{url!r}: expected http://host:port/path or https://…")
    return parts


def _connect(url: SplitResult) -> http.client.HTTPConnection:
    assert url.hostname is not None
    if url.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT_S)


def _target(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def _get(url: SplitResult) -> tuple[int, bytes]:
    connection = _connect(url)
    try:
        connection.request("GET", _target(url), headers={"accept": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_BYTES)
    finally:
        connection.close()


def _post(url: SplitResult, letter: Letter, headers: dict[str, str]) -> Reply:
    connection = _connect(url)
    try:
        connection.request("POST", _target(url), body=letter.body, headers=headers)
        answer = connection.getresponse()
        return Reply(
            status=answer.status,
            body=answer.read(_MAX_BYTES),
            content_type=(answer.getheader("content-type") or "").partition(";")[0].strip().lower(),
            is_marked=(answer.getheader("waybill-repeat") or "").lower() == "true",
            delivery_id=letter.webhook_id,
        )
    except (OSError, http.client.HTTPException):
        return Reply(status=0, delivery_id=letter.webhook_id)
    finally:
        connection.close()
