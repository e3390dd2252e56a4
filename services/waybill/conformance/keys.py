"""The keys that a run or a sample signs with: files of one tenant, made where there are none.

A listener that runs already must know them, so they lie in a folder the caller names and stay there: the public file is
what is handed out. They are dated back a day, so that a timestamp that is wrong by minutes lies in their window: only
the clock refuses it.
"""

import secrets
from base64 import b64encode
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from waybill.crypto.keyring import ensure_signing
from waybill.crypto.signing import parse_hmac_secrets
from waybill.kernel.ids import Tenant

__all__ = ["DATED_BACK", "ensure_keys", "read_shared_secret", "shared_secret"]

DATED_BACK: Final = timedelta(days=1)


def ensure_keys(keys_dir: Path, tenant: Tenant, now: datetime) -> bool:
    """Make the signing key of a tenant unless there is one; return whether one was made.

    Raises:
        ConfigError: there is a file and it cannot be used.
    """
    return ensure_signing(keys_dir, tenant, now - DATED_BACK)


def shared_secret(keys_dir: Path, tenant: Tenant) -> str:
    """Return the shared secret beside the keys, made when there is none.

    Raises:
        ConfigError: there is a file and it holds none.
    """
    path = _secret_path(keys_dir, tenant)
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(f"whsec_{b64encode(secrets.token_bytes(32)).decode()}\n")
    text = path.read_text().strip()
    parse_hmac_secrets(text)
    return text


def read_shared_secret(keys_dir: Path, tenant: Tenant) -> str | None:
    """Return the shared secret beside the keys, None when there is none."""
    return shared_secret(keys_dir, tenant) if _secret_path(keys_dir, tenant).exists() else None


def _secret_path(keys_dir: Path, tenant: Tenant) -> Path:
    return keys_dir / tenant / "secret.txt"
