"""Keys with ids and overlapping validity, as files of one tenant.

`<keys_dir>/<tenant>/signing.json` (mode 0600) holds the private Ed25519 keys the workers sign with, `jwks.json`
beside it the public halves that listeners verify with, `sealing.json` (mode 0600) the symmetric keys that producers
seal data with and listeners open it with. A key has an id and a window `not_before <= t < not_after`; while two
windows overlap both keys sign, so listeners may learn of the new one at any time in between, and a retired key signs
nothing that a listener believes. A retired key stays in the file: sealed data of its time can still be opened.

A secret is a `Secret`: its repr is a mask, so that a log line, a traceback or a failed assertion shows none.
Files are replaced by rename, never edited in place: a reader sees the old file or the new one.
"""

import json
import os
import secrets
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waybill.kernel.clock import format_instant, parse_instant, truncate_to_ms
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

__all__ = [
    "Algorithm",
    "KeyRecord",
    "Secret",
    "jwks_document",
    "jwks_path",
    "new_key",
    "read_keys",
    "retire",
    "sealing_path",
    "signing_path",
    "write_jwks",
    "write_keys",
]

_FORMAT: Final = 1
_SECRET_BYTES: Final = 32


class Algorithm(StrEnum):
    """What a key is for and how."""

    #: Signatures `v1a`.
    ED25519 = "ed25519"
    #: Seals, the default: hardware does it.
    AES_256_GCM = "aes-256-gcm"
    #: Seals where there is no such hardware.
    CHACHA20_POLY1305 = "chacha20-poly1305"


#: How a secret's text starts, as Standard Webhooks does it; the seal's prefix is ours.
_PREFIX: Final[Mapping[Algorithm, str]] = {
    Algorithm.ED25519: "whsk_",
    Algorithm.AES_256_GCM: "wbsk_",
    Algorithm.CHACHA20_POLY1305: "wbsk_",
}


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Bytes that must not be shown."""

    value: bytes

    def __repr__(self) -> str:
        return "Secret(****)"

    __str__ = __repr__

    def reveal(self) -> bytes:
        """Return the bytes, for the call that needs them."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One key of a file."""

    key_id: str
    algorithm: Algorithm
    secret: Secret
    not_before: datetime
    #: None while no successor was made.
    not_after: datetime | None

    def is_valid_at(self, when: datetime) -> bool:
        """Whether the window covers an instant."""
        return self.not_before <= when and (self.not_after is None or when < self.not_after)

    def public_bytes(self) -> bytes:
        """Return the public half of a signing key, 32 bytes."""
        private = Ed25519PrivateKey.from_private_bytes(self.secret.reveal())
        return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def public_text(self) -> str:
        """Return the public half as Standard Webhooks writes it: `whpk_` and base64."""
        return "whpk_" + b64encode(self.public_bytes()).decode()


def signing_path(keys_dir: Path, tenant: Tenant) -> Path:
    """Where the private signing keys of a tenant are."""
    return keys_dir / tenant / "signing.json"


def jwks_path(keys_dir: Path, tenant: Tenant) -> Path:
    """Where the public signing keys of a tenant are."""
    return keys_dir / tenant / "jwks.json"


def sealing_path(keys_dir: Path, tenant: Tenant) -> Path:
    """Where the sealing keys of a tenant are."""
    return keys_dir / tenant / "sealing.json"


def new_key(algorithm: Algorithm, tenant: Tenant, not_before: datetime) -> KeyRecord:
    """Make a key from the system's randomness, open-ended. Its id says tenant and day and is unique."""
    return KeyRecord(
        key_id=f"{tenant}-{not_before:%Y%m%d}-{secrets.token_hex(4)}",
        algorithm=algorithm,
        secret=Secret(secrets.token_bytes(_SECRET_BYTES)),
        not_before=truncate_to_ms(not_before),
        not_after=None,
    )


def retire(keys: Iterable[KeyRecord], now: datetime, overlap: timedelta) -> tuple[KeyRecord, ...]:
    """Let every open-ended key end after the overlap; those that have an end keep it."""
    end = truncate_to_ms(now + overlap)
    return tuple(replace(key, not_after=end) if key.not_after is None else key for key in keys)


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """Read a private key file, in the file's order.

    Raises:
        ConfigError: it is absent, readable by others, or damaged. Says which command makes one.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} is open to other users: chmod 600 {path}")
        document = json.loads(path.read_text())
        if document["format"] != _FORMAT:
            raise ConfigError(f"{path}: format {document['format']!r} is unknown here, expected {_FORMAT}")
        return tuple(_record(entry) for entry in document["keys"])
    except FileNotFoundError as error:
        verb = "seal-new" if path.name == "sealing.json" else "new"
        raise ConfigError(
            f"no key file {path}: make one with `waybill keys {verb} --tenant {path.parent.name}`"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        # The cause would show a fragment of the file, so it is dropped.
        raise ConfigError(f"{path} is not a key file ({type(error).__name__})") from None


def _record(entry: Mapping[str, str | None]) -> KeyRecord:
    algorithm = Algorithm(str(entry["algorithm"]))
    text, end = str(entry["secret"]), entry.get("not_after")
    if not text.startswith(_PREFIX[algorithm]):
        raise ValueError("prefix")
    secret = b64decode(text.removeprefix(_PREFIX[algorithm]), validate=True)
    if algorithm is Algorithm.ED25519 and len(secret) == 2 * _SECRET_BYTES:
        secret = secret[:_SECRET_BYTES]  # other tools append the public half to the seed
    if len(secret) != _SECRET_BYTES:
        raise ValueError("length")
    return KeyRecord(
        key_id=str(entry["kid"]),
        algorithm=algorithm,
        secret=Secret(secret),
        not_before=parse_instant(str(entry["not_before"])),
        not_after=parse_instant(end) if end is not None else None,
    )


def write_keys(path: Path, keys: Iterable[KeyRecord]) -> None:
    """Replace a private key file, mode 0600; the folder is open, the public file lies there too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        {
            "kid": key.key_id,
            "algorithm": key.algorithm.value,
            "secret": _PREFIX[key.algorithm] + b64encode(key.secret.reveal()).decode(),
            "not_before": format_instant(key.not_before),
            "not_after": format_instant(key.not_after) if key.not_after is not None else None,
        }
        for key in keys
    ]
    _replace(path, {"format": _FORMAT, "keys": entries}, mode=0o600)


def jwks_document(keys: Iterable[KeyRecord]) -> dict[str, object]:
    """Return the public halves as a JSON Web Key Set (RFC 8037), windows as `nbf` and `exp` in Unix seconds."""
    return {"keys": [_jwk(key) for key in keys if key.algorithm is Algorithm.ED25519]}


def _jwk(key: KeyRecord) -> dict[str, object]:
    found: dict[str, object] = {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": key.key_id,
        "use": "sig",
        "alg": "EdDSA",
        "x": urlsafe_b64encode(key.public_bytes()).rstrip(b"=").decode(),
        "nbf": int(key.not_before.timestamp()),
    }
    if key.not_after is not None:
        found["exp"] = -int(-key.not_after.timestamp() // 1)
    return found


def write_jwks(path: Path, keys: Iterable[KeyRecord]) -> None:
    """Replace the public file, readable by all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, jwks_document(keys), mode=0o644)


def _replace(path: Path, document: object, *, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
