"""A principal's key: what is stored of it, and when it lets somebody in.

Of a key that signs requests its public half is stored (`core.signed`); the rest here is about API keys. Their text is `wbk_<key id>_<secret>`. The key id is public: it finds the record, and stands in logs and lists. The
secret is 256 random bits, so its SHA-256 says nothing about it and needs no salt; the digest is over the whole text,
so a secret fits no other id.

Invariants: a refusal never says more to the outside than that the credentials were refused; comparing takes the same
time whatever differs, and is done even where there is no record.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, Tenant

__all__ = [
    "ID_BYTES",
    "SECRET_BYTES",
    "KeyRecord",
    "Presented",
    "Principal",
    "Refusal",
    "Scope",
    "check_name",
    "digest_of",
    "judge",
    "key_text",
    "principal_of",
    "read_credentials",
    "read_scopes",
]

ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
_BEARER: Final = re.compile(r"(?i:Bearer) +(wbk_([0-9a-f]{16})_[A-Za-z0-9_-]{43})")
_NOBODYS: Final = hashlib.sha256(b"").digest()


class Scope(StrEnum):
    """What a key lets its principal do."""

    #: Submit commands, and read what became of its own submissions.
    COMMANDS_SUBMIT = "commands:submit"
    #: Read the tenant's deliveries.
    DELIVERIES_READ = "deliveries:read"
    #: Post signed results of the one destination that the principal is named after.
    RESULTS_PUBLISH = "results:publish"


class Refusal(StrEnum):
    """Why somebody was not let in; for the log, never for the answer."""

    #: No credentials came.
    MISSING = "missing"
    #: What came is no API key.
    MALFORMED = "malformed"
    #: No such key, or another secret under its id.
    UNKNOWN = "unknown"
    #: Its time is over.
    EXPIRED = "expired"
    #: It was taken back.
    REVOKED = "revoked"
    #: A token that is not in force yet, by our clock.
    NOT_YET = "not_yet"
    #: A token for somebody else than us.
    AUDIENCE = "audience"
    #: A token of somebody whom the configuration does not name.
    NOBODY = "nobody"
    #: A signature over less than what counts.
    NOT_COVERED = "not_covered"
    #: A signature from too long ago, or past its own end.
    STALE = "stale"
    #: A signed request that came before.
    COPIED = "copied"
    #: A body that is not the signed one.
    ALTERED = "altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who was let in."""

    tenant: Tenant
    #: The name of the holder, the same over all its keys.
    name: str
    scopes: frozenset[Scope]
    #: The key it came with; for the log.
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A key as it is stored."""

    key_id: str
    tenant: Tenant
    principal: str
    scopes: frozenset[Scope]
    created_at: datetime
    created_by: str
    #: Of an API key; None where requests are signed instead.
    digest: bytes | None = field(default=None, repr=False)
    #: Ed25519, 32 bytes; None where the key is an API key.
    public_key: bytes | None = None
    #: None is never.
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_live(self, now: datetime) -> bool:
        """Whether it lets somebody in now."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """A key somebody came with, as far as it is looked at: the secret itself is not kept."""

    key_id: str
    digest: bytes = field(repr=False)


def key_text(key_id: bytes, secret: bytes) -> str:
    """Return the key its holder gets."""
    return f"wbk_{key_id.hex()}_{urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def digest_of(text: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(text.encode()).digest()


def read_credentials(authorization: str | None) -> Presented | Refusal:
    """Read the value of an `Authorization` header; None where there was none, or more than one."""
    if not authorization:
        return Refusal.MISSING
    found = _BEARER.fullmatch(authorization)
    return Presented(key_id=found[2], digest=digest_of(found[1])) if found else Refusal.MALFORMED


def judge(presented: Presented, record: KeyRecord | None, now: datetime) -> Principal | Refusal:
    """Decide whether a key lets its holder in.

    Args:
        presented: what somebody came with.
        record: what is stored under its id, None where nothing is.
        now: from the caller's clock.
    """
    stored = record.digest if record is not None else None
    is_same = hmac.compare_digest(presented.digest, stored or _NOBODYS)
    if record is None or stored is None or not is_same:
        return Refusal.UNKNOWN
    return principal_of(record, now)


def principal_of(record: KeyRecord, now: datetime) -> Principal | Refusal:
    """Return whose key it is, if it is in force; that its holder came has been shown before."""
    if record.revoked_at is not None:
        return Refusal.REVOKED
    if not record.is_live(now):
        return Refusal.EXPIRED
    return Principal(tenant=record.tenant, name=record.principal, scopes=record.scopes, key_id=record.key_id)


def read_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Read scopes as people write them.

    Raises:
        ConfigError: one is none, or there is none at all.
    """
    wanted = set(words)
    if unknown := sorted(wanted - set(Scope)):
        raise ConfigError(f"{unknown[0]} is no scope: expected {', '.join(Scope)}")
    if not wanted:
        raise ConfigError(f"a key needs a scope: {', '.join(Scope)}")
    return frozenset(Scope(word) for word in wanted)


def check_name(name: str) -> str:
    """Return the name of a principal.

    Raises:
        ConfigError: not lower case letters, digits and hyphens, at most 30, a letter first.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a principal: lower case letters, digits and -, at most 30")
    return name
