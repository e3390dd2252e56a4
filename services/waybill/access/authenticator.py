"""The one question every door asks: who is this?

`Authenticator` is the port for what stands in `Authorization`. `KeyAuthenticator` answers it from API keys of the
control database. `KnownKeys` remembers each record for `MEMORY_S`, so that a busy principal costs no query per request: a key that was revoked lets nobody in
after that time. Ids nobody has are not remembered, so that guessing fills no memory.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from waybill.access.core.keys import KeyRecord, Principal, Refusal, judge, read_credentials
from waybill.access.keys import COLUMNS, record_of
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["MEMORY_S", "Authenticator", "FindKey", "KeyAuthenticator", "KnownKeys", "find_key"]

#: How long a revoked key may go on.
MEMORY_S: Final = 5.0
_MEMORY_RECORDS: Final = 10_000
_FIND: Final = f"SELECT {COLUMNS} FROM access.api_key WHERE key_id = %s"  # noqa: S608 - constants


class Authenticator(Protocol):
    """Says who comes with these credentials."""

    async def authenticate(self, authorization: str | None) -> Principal | Refusal:
        """Return who it is, or why nobody is let in.

        Args:
            authorization: the one value of the `Authorization` header, or None.
        """
        ...


FindKey = Callable[[str], Awaitable[KeyRecord | None]]


def find_key(pool: AsyncConnectionPool[Any]) -> FindKey:
    """Return a look into the table of keys, by id."""

    async def find(key_id: str) -> KeyRecord | None:
        async with pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_FIND, (key_id,))
            row = await cursor.fetchone()
        return record_of(row) if row is not None else None

    return find


class KnownKeys:
    """Records of keys by id, each remembered for `MEMORY_S`."""

    def __init__(self, find: FindKey, clock: Clock) -> None:
        self._find, self._clock = find, clock
        self._known: dict[str, tuple[float, KeyRecord]] = {}

    async def record(self, key_id: str) -> KeyRecord | None:
        """Return what is stored under an id, at most `MEMORY_S` old."""
        now = self._clock.monotonic()
        until, known = self._known.get(key_id, (0.0, None))
        if known is not None and now < until:
            return known
        record = await self._find(key_id)
        self._known.pop(key_id, None)
        if record is not None:
            if len(self._known) >= _MEMORY_RECORDS:
                self._known.pop(next(iter(self._known)))
            self._known[key_id] = (now + MEMORY_S, record)
        return record


class KeyAuthenticator:
    """Lets in by API key."""

    def __init__(self, find: FindKey, clock: Clock) -> None:
        self._keys, self._clock = KnownKeys(find, clock), clock
        self._log = get_logger("access")

    async def authenticate(self, authorization: str | None) -> Principal | Refusal:
        """Return who it is, or why nobody is let in; what is refused is logged by key id, never with the key."""
        presented = read_credentials(authorization)
        if isinstance(presented, Refusal):
            return presented
        found = judge(presented, await self._keys.record(presented.key_id), self._clock.now())
        if isinstance(found, Refusal):
            self._log.warning("access.refused", key_id=presented.key_id, refusal=found.value)
        return found
