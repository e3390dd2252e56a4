"""When a signed request lets somebody in: what it has to cover, how old it may be, and whose key signed it.

Covered are the method, the authority, path and query, and each field that changes what the request asks for; so what
an attacker may alter or add without breaking the signature means nothing here. The key id is covered too: it was made
by this fabric's own registry, so a request signed for another one is nobody's here, whatever `Host` says.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from waybill.access.core.keys import KeyRecord, Principal, Refusal, principal_of
from waybill.crypto.ed25519 import PublicKey
from waybill.crypto.requests import DIGEST_FIELD, MessageSignature, RequestHead, has_signed, to_cover

__all__ = ["WINDOW", "Believed", "judge_signature"]

#: How far `created` may be from our clock, either way. A nonce is remembered until its request is too old by itself.
WINDOW: Final = timedelta(minutes=5)
_NONCE: Final = re.compile(r"[A-Za-z0-9_.~+/=-]{16,100}")
_ALGORITHM: Final = "ed25519"


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """A signature that is true: whose it is, if its nonce was never seen."""

    principal: Principal
    nonce: str
    #: When the nonce may be forgotten.
    until: datetime
    #: What the body has to be; None is empty.
    content_digest: str | None


def judge_signature(
    signature: MessageSignature, head: RequestHead, record: KeyRecord | None, now: datetime
) -> Believed | Refusal:
    """Decide whether a signature is true and in its time; a nonce is not looked for here.

    Args:
        signature: as it came.
        head: of the request it came with.
        record: what is stored under its key id, None where nothing is.
        now: from the caller's clock.
    """
    said = signature.parameters
    if said.created is None or said.nonce is None or not _NONCE.fullmatch(said.nonce):
        return Refusal.MALFORMED
    if said.algorithm not in {None, _ALGORITHM}:
        return Refusal.MALFORMED
    if not set(to_cover(head)) <= set(signature.covered):
        return Refusal.NOT_COVERED
    if record is None or record.public_key is None or not has_signed(PublicKey(record.public_key), signature, head):
        return Refusal.UNKNOWN
    who = _outside_its_time(said.created, said.expires, now) or principal_of(record, now)
    if isinstance(who, Refusal):
        return who
    return Believed(
        principal=who,
        nonce=said.nonce,
        until=datetime.fromtimestamp(said.created, UTC) + WINDOW + timedelta(seconds=1),
        content_digest=head.component(DIGEST_FIELD),
    )


def _outside_its_time(created: int, expires: int | None, now: datetime) -> Refusal | None:
    age, window = now.timestamp() - created, WINDOW.total_seconds()
    if age > window or (expires is not None and now.timestamp() >= expires):
        return Refusal.STALE
    return Refusal.NOT_YET if -age > window else None
