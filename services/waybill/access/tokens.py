"""Letting in by a token of an OpenID Connect issuer, beside API keys.

The signature is checked by a library that does nothing else; what the claims come to is decided in `core.tokens`.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import jwt

from waybill.access.authenticator import Authenticator
from waybill.access.core.keys import Principal, Refusal
from waybill.access.core.tokens import Issuer, judge_claims
from waybill.access.issuer_keys import IssuerKeys
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock

__all__ = ["TokenAuthenticator"]

_TOKEN: Final = re.compile(r"(?i:Bearer) +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)")
_MAX_LENGTH: Final = 8_192
#: Asymmetric ones only: with a shared secret whoever checks could sign.
_ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
#: Times, audience and issuer are ours to judge, by our clock and configuration.
_SIGNATURE_ONLY: Final[Any] = {
    f"verify_{each}": each == "signature" for each in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


class TokenAuthenticator:
    """Lets in by token; whatever is no token is asked of the next one."""

    def __init__(self, issuers: Sequence[Issuer], clock: Clock, otherwise: Authenticator) -> None:
        self._issuers, self._clock, self._otherwise = tuple(issuers), clock, otherwise
        self._keys = {each.issuer: IssuerKeys(each.issuer, clock) for each in issuers}
        self._log = get_logger("access")

    async def authenticate(self, authorization: str | None) -> Principal | Refusal:
        """Return who it is, or why nobody is let in; what is refused is logged by the issuer's key id alone.

        Raises:
            UnavailableError: the issuer's keys cannot be read now.
        """
        found = _TOKEN.fullmatch(authorization) if authorization and len(authorization) <= _MAX_LENGTH else None
        if found is None:
            return await self._otherwise.authenticate(authorization)
        token = found[1]
        try:
            key_id = str(jwt.get_unverified_header(token).get("kid", ""))
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except jwt.PyJWTError:
            return Refusal.MALFORMED
        who = await self._judge(token, str(issuer), key_id)
        if isinstance(who, Refusal):
            self._log.warning("access.refused", key_id=key_id[:64], refusal=who.value)
        return who

    async def _judge(self, token: str, issuer: str, key_id: str) -> Principal | Refusal:
        keys = self._keys.get(issuer)
        key = await keys.key(key_id) if keys is not None else None
        if key is None:
            return Refusal.UNKNOWN
        try:
            claims = jwt.decode(token, key, algorithms=_ALGORITHMS, options=_SIGNATURE_ONLY)
        except jwt.PyJWTError:
            return Refusal.UNKNOWN
        return judge_claims(claims, self._issuers, self._clock.now(), f"token:{key_id[:64]}")
