"""A tenant's public keys over HTTP, at `/.well-known/waybill/keys`: the current ones, the next, and those just retired.

Answered from the public file that `waybill keys` writes, so that whoever serves it reads no private key; only the
members of a public key are passed on, whatever else stands in the file. One answer holds one tenant's keys: were two
tenants' together, a key of one would sign for the other. A key stays for `KEPT_FOR` after its end, since what was
signed under it may have waited as long in a topic or for an agent.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from waybill.crypto.keys import jwks_path
from waybill.kernel.clock import Clock
from waybill.kernel.ids import NAME_PATTERN, Tenant

__all__ = ["KEPT_FOR", "WELL_KNOWN", "Document", "PublicKeys"]

WELL_KNOWN: Final = "/.well-known/waybill/keys"
#: The longest expiry and the longest retention together, and a month for whoever looks back.
KEPT_FOR: Final = timedelta(days=90)
#: As long as listeners themselves believe what they fetched.
_MAX_AGE_S: Final = 300
_MEMBERS: Final = ("kty", "crv", "kid", "use", "alg", "x", "nbf", "exp")


class Document(NamedTuple):
    """One answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class PublicKeys:
    """Answers `WELL_KNOWN/<tenant>`, and `WELL_KNOWN` alone where that can only mean one tenant.

    Args:
        keys_dir: the folder of all tenants' keys.
        clock: for what is retired too long ago.
        only: the one tenant whose keys are given out; None gives out each one's.
    """

    def __init__(self, keys_dir: Path, clock: Clock, only: str | None = None) -> None:
        self._keys_dir, self._clock, self._only = keys_dir, clock, only

    def answer(self, path: str, if_none_match: str | None) -> Document | None:
        """Answer a GET of a path without its query; None where the path is none of ours."""
        if path != WELL_KNOWN and not path.startswith(f"{WELL_KNOWN}/"):
            return None
        tenant = path.removeprefix(WELL_KNOWN).removeprefix("/") or self._sole()
        if tenant is None:
            return _none(f"name the tenant: {WELL_KNOWN}/<tenant>")
        if not NAME_PATTERN.fullmatch(tenant) or (self._only is not None and tenant != self._only):
            return _none("no keys of this tenant are given out here")
        try:
            found = json.loads(jwks_path(self._keys_dir, Tenant(tenant)).read_bytes())
            body = json.dumps({"keys": [_public(key) for key in found["keys"] if self._is_kept(key)]}).encode() + b"\n"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return _none("no keys of this tenant are given out here")
        return _cached(body, if_none_match)

    def _sole(self) -> str | None:
        if self._only is not None:
            return self._only
        tenants = [path.parent.name for path in self._keys_dir.glob("*/jwks.json")]
        return tenants[0] if len(tenants) == 1 else None

    def _is_kept(self, key: Mapping[str, Any]) -> bool:
        end = key.get("exp")
        return end is None or _latest(self._clock.now()) < float(end)


def _latest(now: datetime) -> float:
    return (now - KEPT_FOR).timestamp()


def _public(key: Mapping[str, Any]) -> dict[str, Any]:
    return {name: key[name] for name in _MEMBERS if name in key}


def _none(said: str) -> Document:
    kept = (("content-type", "application/json"), ("cache-control", "no-store"))
    return Document(404, kept, json.dumps({"error": said}).encode() + b"\n")


def _cached(body: bytes, if_none_match: str | None) -> Document:
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    kept = (("etag", tag), ("cache-control", f"public, max-age={_MAX_AGE_S}"))
    if tag in [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]:
        return Document(304, kept, b"")
    return Document(200, (("content-type", "application/jwk-set+json"), *kept), body)
