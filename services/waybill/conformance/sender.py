"""Sends signed bodies to the listener under test, and reads its count of effects.

How a body goes over the wire is `posting`. An answer that never came whole is a reply with status 0: the judges decide
what that means.
"""

import hmac
import http.client
import json
import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult

from waybill.conformance.core.checks import BURST
from waybill.conformance.core.evidence import Reply
from waybill.conformance.posting import Ending, NotPosted, Poster, connect, listener_url, target_of
from waybill.contracts.envelope import CONTENT_TYPE
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError

__all__ = ["Letter", "Sender", "flawed", "forged_signature", "reply_of", "signed_headers"]

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
        self._url = listener_url(url)
        self._poster = Poster(self._url, clock)
        self._effects = listener_url(effects_url) if effects_url is not None else None
        self._signer = signer
        self._clock = clock

    def headers(self, letter: Letter, *, shift_s: int = 0) -> dict[str, str]:
        """Return what the fabric would send beside this body, now or on a clock that is wrong by `shift_s`."""
        return signed_headers(letter, self._signer, int(self._clock.now().timestamp()) + shift_s)

    def send(self, letter: Letter, headers: Mapping[str, str] | None = None, *, at: str | None = None) -> Reply:
        """Send one attempt and return what came back."""
        sent = dict(headers if headers is not None else self.headers(letter))
        poster = Poster(listener_url(at), self._clock) if at is not None else self._poster
        return reply_of(poster.post(tuple(sent.items()), letter.body), letter.webhook_id)

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


def signed_headers(letter: Letter, signer: Signer, stamp: int) -> dict[str, str]:
    """Return what the fabric sends beside a body, at a Unix second."""
    return {
        "content-type": CONTENT_TYPE,
        ID_HEADER: letter.webhook_id,
        TIMESTAMP_HEADER: str(stamp),
        SIGNATURE_HEADER: signer.sign(letter.webhook_id, stamp, letter.body),
    }


def reply_of(ending: Ending, delivery_id: str) -> Reply:
    """Return what the judges read; an answer that never came whole has status 0."""
    if isinstance(ending, NotPosted):
        return Reply(status=0, delivery_id=delivery_id)
    return Reply(
        status=ending.status,
        body=ending.body,
        content_type=(ending.header("content-type") or "").partition(";")[0].strip().lower(),
        is_marked=(ending.header("waybill-repeat") or "").lower() == "true",
        delivery_id=delivery_id,
    )


def flawed(text: bytes) -> bytes:
    """Return a body with one byte changed that is still JSON."""
    at = text.rindex(b'"subject":"') + len(b'"subject":"')
    return text[:at] + (b"X" if text[at : at + 1] != b"X" else b"Y") + text[at + 1 :]


def forged_signature(headers: Mapping[str, str]) -> str:
    """Return a signature of the right form that nobody made."""
    mac = hmac.digest(secrets.token_bytes(32), headers[ID_HEADER].encode(), "sha256")
    return f"v1a,{b64encode(secrets.token_bytes(64)).decode()} v1,{b64encode(mac).decode()}"


def _get(url: SplitResult) -> tuple[int, bytes]:
    with closing(connect(url, _TIMEOUT_S)) as connection:
        connection.request("GET", target_of(url), headers={"accept": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_BYTES)
