"""What the claims of a token come to, once its issuer's signature is known to be true: a principal of ours, or nobody.

Only what the configuration names is ever taken from a token: the principal and each scope are looked up, never copied.
So an issuer can let in whom we named, with what we named, and nobody else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeGuard

from waybill.access.core.keys import Principal, Refusal, Scope
from waybill.kernel.ids import Tenant

__all__ = ["LEEWAY", "Issuer", "judge_claims"]

#: How far an issuer's clock may be from ours, where its entry says nothing else.
LEEWAY: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Whose tokens are taken, for which tenant, and what is read out of them."""

    #: As the claim `iss` has it.
    issuer: str
    audience: str
    tenant: Tenant
    principal_claim: str
    #: Value of that claim → principal.
    principals: Mapping[str, str]
    #: Words in a text, or a list.
    scope_claim: str
    #: Word of that claim → scope.
    scopes: Mapping[str, Scope]
    leeway: timedelta = LEEWAY


def judge_claims(
    claims: Mapping[str, Any], issuers: Sequence[Issuer], now: datetime, key_id: str
) -> Principal | Refusal:
    """Decide who comes with claims whose signature is true.

    Args:
        claims: as they were signed.
        issuers: the entries of the issuer that signed them; the first that knows the principal counts.
        now: from our clock.
        key_id: of the issuer's key; for the log.
    """
    refusal = Refusal.AUDIENCE
    for issuer in issuers:
        if issuer.issuer != claims.get("iss") or issuer.audience not in _words(claims.get("aud"), split=False):
            continue
        if (wrong := _outside_its_time(claims, now, issuer.leeway)) is not None:
            return wrong
        named = claims.get(issuer.principal_claim)
        name = issuer.principals.get(named) if isinstance(named, str) else None
        if name is None:
            refusal = Refusal.NOBODY
            continue
        words = _words(claims.get(issuer.scope_claim), split=True)
        scopes = frozenset(issuer.scopes[word] for word in words if word in issuer.scopes)
        return Principal(tenant=issuer.tenant, name=name, scopes=scopes, key_id=key_id)
    return refusal


def _outside_its_time(claims: Mapping[str, Any], now: datetime, leeway: timedelta) -> Refusal | None:
    at, slack = now.timestamp(), leeway.total_seconds()
    expires = claims.get("exp")
    if not _is_number(expires):
        return Refusal.MALFORMED  # a token without an end could never be taken back
    if at >= expires + slack:
        return Refusal.EXPIRED
    for name in ("nbf", "iat"):
        since = claims.get(name)
        if since is not None and not _is_number(since):
            return Refusal.MALFORMED
        if since is not None and at < since - slack:
            return Refusal.NOT_YET
    return None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(value: object, *, split: bool) -> Iterable[str]:
    if isinstance(value, str):
        return value.split() if split else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
