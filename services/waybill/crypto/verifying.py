"""How a listener decides whether a body may be believed, before anything else looks at it.

It may when one entry of `webhook-signature` verifies under a key the listener knows, valid at the signed timestamp,
and that timestamp lies within the tolerance on either side of the listener's own clock. The window bounds how long a
captured request can be repeated; what it lets through is stopped by the delivery record (DC-9, GW-4). What waited in a
log has no window: there expiry and sequence decide. Comparisons of shared-secret signatures take the same time wherever
they differ.
"""

import hmac
import math
import re
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from waybill.crypto.ed25519 import PublicKey
from waybill.crypto.keys import Secret
from waybill.crypto.signing import signed_content
from waybill.kernel.errors import ConfigError

__all__ = [
    "DEFAULT_TOLERANCE",
    "Accept",
    "Refuse",
    "RefuseReason",
    "SignatureHeaders",
    "Verdict",
    "VerificationKeys",
    "verify",
]

#: How far a timestamp may lie from the listener's clock, either way.
DEFAULT_TOLERANCE: Final = timedelta(minutes=5)

#: More entries than any rotation needs are not looked at: each costs a verification.
_MAX_ENTRIES: Final = 16
_MAX_HEADER: Final = 4_096
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


class RefuseReason(StrEnum):
    """Why a body is not believed."""

    #: One of the three headers is absent or there more than once.
    MISSING_HEADER = "missing_header"
    #: A header that no signer writes.
    MALFORMED_HEADER = "malformed_header"
    #: Older than the tolerance: a replay, or a clock that is wrong.
    TIMESTAMP_TOO_OLD = "timestamp_too_old"
    #: Ahead by more than the tolerance.
    TIMESTAMP_TOO_NEW = "timestamp_too_new"
    #: No entry is of a kind that one of our keys, valid at the timestamp, could check.
    NO_USABLE_KEY = "no_usable_key"
    #: Checked, and false.
    SIGNATURE_MISMATCH = "signature_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """The body is the signer's."""

    #: The Ed25519 key that verified; empty for a shared secret.
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The body is nobody's."""

    reason: RefuseReason


Verdict: TypeAlias = Accept | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureHeaders:
    """The three headers as they came; None when absent or repeated."""

    webhook_id: str | None
    timestamp: str | None
    signature: str | None


@dataclass(frozen=True, slots=True)
class _PublicKey:
    key_id: str
    start: float
    end: float
    key: PublicKey


class VerificationKeys:
    """What a listener checks with: the tenant's public keys, shared secrets, or both."""

    def __init__(self, public: Sequence[_PublicKey] = (), hmac_secrets: Sequence[Secret] = ()) -> None:
        self._public = tuple(public)
        self._hmac = tuple(secret.reveal() for secret in hmac_secrets)

    @classmethod
    def from_jwks(cls, document: object, hmac_secrets: Sequence[Secret] = ()) -> "VerificationKeys":
        """Read a JSON Web Key Set; keys of other kinds are ignored.

        Raises:
            ConfigError: no key set, or an Ed25519 key in it is damaged.
        """
        if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
            raise ConfigError("not a JSON Web Key Set: expected an object with a list `keys`")
        found = []
        for entry in document["keys"]:
            if not isinstance(entry, Mapping) or (entry.get("kty"), entry.get("crv")) != ("OKP", "Ed25519"):
                continue
            try:
                found.append(_public_key(entry))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError("a key of the JSON Web Key Set is damaged") from error
        return cls(found, hmac_secrets)

    @classmethod
    def from_text(cls, *texts: str, hmac_secrets: Sequence[Secret] = ()) -> "VerificationKeys":
        """Take public keys written as `whpk_` and base64, valid at all times.

        Raises:
            ConfigError: one is not such a key.
        """
        try:
            public = [_PublicKey(text[5:13], 0.0, math.inf, PublicKey(_whpk(text))) for text in texts]
        except ValueError as error:
            raise ConfigError("a public key is not `whpk_` followed by base64 of 32 bytes") from error
        return cls(public, hmac_secrets)

    def check(self, content: bytes, timestamp: int, entries: Iterable[tuple[str, bytes]]) -> Verdict:
        """Try each entry under each key that could have made it."""
        public = [key for key in self._public if key.start - 1 <= timestamp < key.end]
        tried = False
        for kind, signature in entries:
            if kind == "v1a":
                for key in public:
                    tried = True
                    if key.key.has_signed(signature, content):
                        return Accept(key_id=key.key_id)
            elif kind == "v1":
                for secret in self._hmac:
                    tried = True
                    if hmac.compare_digest(hmac.digest(secret, content, "sha256"), signature):
                        return Accept(key_id="")
        return Refuse(reason=RefuseReason.SIGNATURE_MISMATCH if tried else RefuseReason.NO_USABLE_KEY)


def _whpk(text: str) -> bytes:
    if not text.startswith("whpk_"):
        raise ValueError("prefix")
    return b64decode(text.removeprefix("whpk_"), validate=True)


def _public_key(entry: Mapping[str, object]) -> _PublicKey:
    x = str(entry["x"])
    start, end = entry.get("nbf", 0), entry.get("exp", math.inf)
    if not isinstance(start, int | float) or not isinstance(end, int | float):
        raise TypeError("nbf and exp are numbers")
    raw = urlsafe_b64decode(x + "=" * (-len(x) % 4))
    return _PublicKey(str(entry.get("kid", "")), start, end, PublicKey(raw))


def verify(
    headers: SignatureHeaders,
    body: bytes,
    keys: VerificationKeys,
    now: datetime,
    tolerance: timedelta | None = DEFAULT_TOLERANCE,
) -> Verdict:
    """Decide whether a body may be believed.

    Args:
        headers: as they came.
        body: the raw bytes, before anything read them.
        keys: what the listener knows.
        now: UTC, from the listener's clock.
        tolerance: two-sided, inclusive; None where the age of a signature says nothing, as in a log.

    Returns:
        Accept, or Refuse with the first reason that applies; every refusal is AUTH on the wire (DC-9).
    """
    if headers.webhook_id is None or headers.timestamp is None or headers.signature is None:
        return Refuse(reason=RefuseReason.MISSING_HEADER)
    if not _TIMESTAMP.fullmatch(headers.timestamp) or len(headers.signature) > _MAX_HEADER or not headers.webhook_id:
        return Refuse(reason=RefuseReason.MALFORMED_HEADER)
    timestamp = int(headers.timestamp)
    if tolerance is not None:
        age = now.timestamp() - timestamp
        if age > tolerance.total_seconds():
            return Refuse(reason=RefuseReason.TIMESTAMP_TOO_OLD)
        if -age > tolerance.total_seconds():
            return Refuse(reason=RefuseReason.TIMESTAMP_TOO_NEW)
    entries = _entries(headers.signature)
    if entries is None:
        return Refuse(reason=RefuseReason.MALFORMED_HEADER)
    return keys.check(signed_content(headers.webhook_id, headers.timestamp, body), timestamp, entries)


def _entries(header: str) -> list[tuple[str, bytes]] | None:
    """Read the list; entries of unknown kinds are skipped, a damaged one of a known kind spoils the header.

    Base64 has bits at its end that mean nothing; they must be zero, so that no second spelling of a signature passes.
    """
    found = []
    for part in header.split(" ")[:_MAX_ENTRIES]:
        kind, _, encoded = part.partition(",")
        if kind not in {"v1", "v1a"}:
            continue
        try:
            signature = b64decode(encoded, validate=True)
        except ValueError:
            return None
        if b64encode(signature).decode() != encoded:
            return None
        found.append((kind, signature))
    return found
