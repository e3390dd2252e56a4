"""Anchors under the tenant's signing key: one signature, by the newest key in force."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from waybill.audit.core.chain import Anchor, Entry
from waybill.crypto.ed25519 import SigningKey
from waybill.crypto.keys import Algorithm, read_keys, signing_path
from waybill.crypto.verifying import Accept, VerificationKeys
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

__all__ = ["public_keys", "sign_anchor", "signed_by"]

_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")


def sign_anchor(keys_dir: Path, head: Entry, now: datetime) -> Anchor:
    """Return an anchor of a chain's last entry.

    Raises:
        ConfigError: the tenant has no usable signing key now.
    """
    found = [
        key
        for key in read_keys(signing_path(keys_dir, Tenant(head.tenant)))
        if key.algorithm is Algorithm.ED25519 and key.is_valid_at(now)
    ]
    if not found:
        raise ConfigError(f"{head.tenant} has no signing key in force: `waybill keys list --tenant {head.tenant}`")
    newest = max(found, key=lambda key: key.not_before)
    unsigned = Anchor(
        tenant=head.tenant,
        partition=head.partition,
        number=head.number,
        hash=head.hash,
        at=int(now.timestamp()),
        key=newest.key_id,
        signature="",
    )
    return replace(unsigned, signature=SigningKey(newest.secret.reveal()).sign(unsigned.statement()).hex())


def public_keys(path: Path) -> VerificationKeys:
    """Read a tenant's public keys, a JSON Web Key Set.

    Raises:
        ConfigError: there is no such file, or it is none.
    """
    try:
        return VerificationKeys.from_jwks(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a JSON Web Key Set: name the tenant's with --keys") from error


def signed_by(keys: VerificationKeys) -> Callable[[Anchor], bool]:
    """Return the question whether one of these keys, in force at its time, signed an anchor."""

    def is_signed(anchor: Anchor) -> bool:
        if not _SIGNATURE.fullmatch(anchor.signature):
            return False
        entries = [("v1a", bytes.fromhex(anchor.signature))]
        return isinstance(keys.check(anchor.statement(), anchor.at, entries), Accept)

    return is_signed
