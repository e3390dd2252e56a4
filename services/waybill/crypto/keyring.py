"""Making, rotating and listing a tenant's keys: the acts behind `waybill keys`.

`ensure_…` is idempotent: what is there stays. `rotate_…` adds a key, valid at once unless a later start is named, and
lets the ones before it end after the overlap. Signing with both meanwhile is what makes a rotation invisible: workers follow their file within
seconds, listeners must see the new public file before the overlap ends. One act at a time per tenant, by a lock file;
the public file is written again with every act, so a lost one comes back.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from waybill.crypto.keys import (
    Algorithm,
    KeyRecord,
    jwks_path,
    new_key,
    read_keys,
    retire,
    sealing_path,
    signing_path,
    write_jwks,
    write_keys,
)
from waybill.kernel.ids import Tenant

__all__ = ["DEFAULT_OVERLAP", "all_keys", "ensure_sealing", "ensure_signing", "rotate_sealing", "rotate_signing"]

#: How long the keys before a new one go on signing.
DEFAULT_OVERLAP: Final = timedelta(days=1)


def ensure_signing(keys_dir: Path | str, tenant: Tenant, now: datetime) -> bool:
    """Make a tenant's first signing key unless there is a file; return whether one was made.

    Raises:
        ConfigError: there is a file and it cannot be used.
    """
    path = signing_path(Path(keys_dir), tenant)
    with _lock(path.parent):
        is_new = not path.exists()
        keys = (new_key(Algorithm.ED25519, tenant, now),) if is_new else read_keys(path)
        if is_new:
            write_keys(path, keys)
        write_jwks(jwks_path(Path(keys_dir), tenant), keys)
    return is_new


def rotate_signing(
    keys_dir: Path | str,
    tenant: Tenant,
    now: datetime,
    overlap: timedelta = DEFAULT_OVERLAP,
    starts_in: timedelta = timedelta(0),
) -> KeyRecord:
    """Add a signing key that is valid now, or later, and let the others end the overlap after that; return it.

    One that starts later is given out as the next key at once, so that listeners know it before it signs.

    Raises:
        ConfigError: there is no usable file to add it to.
    """
    path = signing_path(Path(keys_dir), tenant)
    with _lock(path.parent):
        start = now + starts_in
        fresh = new_key(Algorithm.ED25519, tenant, start)
        keys = (*retire(read_keys(path), start, overlap), fresh)
        # The public half first: a listener may know a key that nobody signs with yet, not the other way round.
        write_jwks(jwks_path(Path(keys_dir), tenant), keys)
        write_keys(path, keys)
    return fresh


def ensure_sealing(
    keys_dir: Path | str, tenant: Tenant, now: datetime, algorithm: Algorithm = Algorithm.AES_256_GCM
) -> bool:
    """Make a tenant's first sealing key unless there is a file; return whether one was made.

    Raises:
        ConfigError: there is a file and it cannot be used.
    """
    path = sealing_path(Path(keys_dir), tenant)
    with _lock(path.parent):
        if path.exists():
            read_keys(path)
            return False
        write_keys(path, (new_key(algorithm, tenant, now),))
    return True


def rotate_sealing(
    keys_dir: Path | str, tenant: Tenant, now: datetime, algorithm: Algorithm = Algorithm.AES_256_GCM
) -> KeyRecord:
    """Add a sealing key that seals from now on; the others only open what they sealed. Return it.

    Raises:
        ConfigError: there is no usable file to add it to.
    """
    path = sealing_path(Path(keys_dir), tenant)
    with _lock(path.parent):
        fresh = new_key(algorithm, tenant, now)
        write_keys(path, (*retire(read_keys(path), now, timedelta(0)), fresh))
    return fresh


def all_keys(keys_dir: Path | str, tenant: Tenant) -> tuple[KeyRecord, ...]:
    """Return the signing keys, then the sealing keys, of the files that exist.

    Raises:
        ConfigError: neither file exists, or one cannot be used.
    """
    sealing = sealing_path(Path(keys_dir), tenant)
    signing = signing_path(Path(keys_dir), tenant)
    if not signing.exists() and sealing.exists():
        return read_keys(sealing)
    return read_keys(signing) + (read_keys(sealing) if sealing.exists() else ())


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
