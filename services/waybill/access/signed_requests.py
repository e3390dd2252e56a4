"""Letting in by a signed request, beside API keys and tokens.

What counts is decided in `core.signed`. Here its nonce is written down, in the control database, so that a request
that came is known to every process of the API, and after a restart. It is written once the signature is true: nobody
fills the table, or uses up a nonce, who cannot sign.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg_pool import AsyncConnectionPool

from waybill.access.authenticator import FindKey, KnownKeys
from waybill.access.core.keys import Principal, Refusal
from waybill.access.core.signed import Believed, judge_signature
from waybill.crypto.requests import INPUT_FIELD, SIGNATURE_FIELD, ContentCheck, RequestHead, read_signature
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["Remember", "SignedIn", "SignedRequests", "forget_nonces", "is_signed", "remember_nonces"]

_REMEMBER: Final = "INSERT INTO access.seen_nonce (key_id, nonce, until) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_FORGET: Final = "DELETE FROM access.seen_nonce WHERE until < %s"

#: Writes a nonce down; whether it is new.
Remember = Callable[[str, str, datetime], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Who was let in, and what the body, which is still to be read, has to be."""

    principal: Principal
    content: ContentCheck


def is_signed(head: RequestHead) -> bool:
    """Whether a request says that it is signed."""
    return bool(head.values(INPUT_FIELD) or head.values(SIGNATURE_FIELD))


def remember_nonces(pool: AsyncConnectionPool[Any]) -> Remember:
    """Return a memory of nonces in the control database."""

    async def remember(key_id: str, nonce: str, until: datetime) -> bool:
        async with pool.connection() as connection:
            done = await connection.execute(_REMEMBER, (key_id, nonce, until))
            return bool(done.rowcount == 1)

    return remember


async def forget_nonces(pool: AsyncConnectionPool[Any], now: datetime) -> None:
    """Drop nonces whose requests are too old by themselves."""
    async with pool.connection() as connection:
        await connection.execute(_FORGET, (now,))


class SignedRequests:
    """Lets in by signature."""

    def __init__(self, find: FindKey, remember: Remember, clock: Clock) -> None:
        self._keys, self._remember, self._clock = KnownKeys(find, clock), remember, clock
        self._log = get_logger("access")

    async def authenticate(self, head: RequestHead) -> SignedIn | Refusal:
        """Return who it is, or why nobody is let in; what is refused is logged by key id."""
        signature = read_signature(head)
        key_id = signature.parameters.key_id if signature is not None else None
        if signature is None or key_id is None:
            return Refusal.MALFORMED
        judged = judge_signature(signature, head, await self._keys.record(key_id), self._clock.now())
        found = await self._let_in(key_id, judged) if isinstance(judged, Believed) else judged
        if isinstance(found, Refusal):
            self.refused(key_id, found)
        return found

    def refused(self, key_id: str, refusal: Refusal) -> None:
        """Log that nobody was let in."""
        self._log.warning("access.refused", key_id=key_id[:64], refusal=refusal.value)

    async def _let_in(self, key_id: str, believed: Believed) -> SignedIn | Refusal:
        try:
            content = ContentCheck(believed.content_digest)
        except ValueError:
            return Refusal.MALFORMED
        if not await self._remember(key_id, believed.nonce, believed.until):
            return Refusal.COPIED
        return SignedIn(principal=believed.principal, content=content)
