"""The keys of an issuer, found by its discovery document and followed while they rotate.

A key that is not known is looked for at once, but not oftener than every `COOLDOWN_S`, so that forged key ids do not
become a flood of fetches; what is known is fetched again after `MAX_AGE_S`, so that a key the issuer took back ends.
While the issuer is away the last keys count for `KEPT_S`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import jwt

from waybill.infra.json_http import JsonHttp
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FabricError, UnavailableError

__all__ = ["COOLDOWN_S", "KEPT_S", "MAX_AGE_S", "IssuerKeys", "read_keys"]

MAX_AGE_S: Final = 300.0
COOLDOWN_S: Final = 5.0
KEPT_S: Final = 3_600.0
_TIMEOUT_S: Final = 5.0


ReadKeys = Callable[[str], dict[str, jwt.PyJWK]]


class IssuerKeys:
    """The keys of one issuer, for one event loop."""

    def __init__(self, issuer: str, clock: Clock, read: ReadKeys | None = None) -> None:
        """Know nothing yet; `read` is in place of asking the issuer over HTTP, from a thread."""
        self._issuer, self._clock, self._read = issuer, clock, read or read_keys
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching = asyncio.Lock()
        self._log = get_logger("access")

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key by id, None where the issuer has none of this id.

        Raises:
            UnavailableError: the issuer does not answer, and nothing is known that may still count.
        """
        async with self._fetching:
            if key_id not in self._keys or self._age_s() > MAX_AGE_S:
                await self._look()
            if self._age_s() > KEPT_S:
                raise UnavailableError(f"the keys of {self._issuer} cannot be read")
            return self._keys.get(key_id)

    def _age_s(self) -> float:
        return float("inf") if self._fetched_at is None else self._clock.monotonic() - self._fetched_at

    async def _look(self) -> None:
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < COOLDOWN_S:
            return
        self._tried_at = now
        try:
            self._keys = await asyncio.to_thread(self._read, self._issuer)
        except (FabricError, jwt.PyJWTError) as error:
            self._log.warning("access.issuer_away", issuer=self._issuer, reason=str(error))
        else:
            self._fetched_at = now


def read_keys(issuer: str) -> dict[str, jwt.PyJWK]:
    """Return the keys an issuer publishes, by id.

    Raises:
        UnavailableError: it does not answer, or with something else than its own discovery document and keys.
    """
    found = _get(issuer.rstrip("/"), "/.well-known/openid-configuration")
    if found.get("issuer") != issuer:
        raise UnavailableError(f"what {issuer} publishes names another issuer")
    keys = _get(str(found.get("jwks_uri")), "").get("keys")
    signing = [each for each in keys if each.get("use", "sig") == "sig"] if isinstance(keys, list) else []
    # what is not asymmetric is no public key of anybody, and what this library does not know signs nothing for us
    usable = [each for each in signing if each.get("kty") in {"RSA", "EC", "OKP"} and isinstance(each.get("kid"), str)]
    if not usable:
        raise UnavailableError(f"{issuer} publishes no key that can be used")
    return {each["kid"]: jwt.PyJWK(each) for each in usable}


def _get(url: str, path: str) -> dict[str, Any]:
    reply = JsonHttp(url, "the issuer of tokens", _TIMEOUT_S).call("GET", path)
    if reply.status != 200 or not isinstance(reply.document, dict):
        raise UnavailableError(f"{url}{path} answered {reply.status} and no object")
    return reply.document
