"""Standard Webhooks 1.0 signatures: how a worker makes them. `waybill.crypto.verifying` checks them.

Signed is `<webhook-id>.<webhook-timestamp>.<body>`, over the raw bytes. `webhook-signature` is a list separated by
spaces: `v1a,<base64>` is Ed25519 under a key of the tenant, `v1,<base64>` HMAC-SHA256 under a secret shared with one
destination. Every key valid at the timestamp signs, so a list while keys rotate.

The body is the same on every attempt; timestamp
and signature are not (GW-3).
"""

import contextlib
import hmac
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from waybill.crypto.ed25519 import SigningKey
from waybill.crypto.keys import Algorithm, KeyRecord, Secret, read_keys, signing_path
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

__all__ = [
    "ID_HEADER",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "FileSigner",
    "Signer",
    "load_signer",
    "parse_hmac_secrets",
    "signed_content",
]

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
#: How long a changed key file may go unnoticed, in seconds; any overlap is longer.
_LOOK_EVERY_S: Final = 5

_HMAC_PREFIX: Final = "whsec_"
_HMAC_BYTES: Final = range(24, 65)


def signed_content(webhook_id: str, timestamp: int | str, body: bytes) -> bytes:
    """Return what the signature is over."""
    return b"%b.%b.%b" % (webhook_id.encode(), str(timestamp).encode(), body)


class Signer:
    """Signs with every key valid at the timestamp: a tenant's Ed25519 keys, and shared secrets if there are any."""

    def __init__(self, keys: Iterable[KeyRecord], hmac_secrets: Sequence[Secret] = ()) -> None:
        self._hmac = [secret.reveal() for secret in hmac_secrets]
        self._take(keys)

    def _take(self, keys: Iterable[KeyRecord]) -> None:
        self._ed25519 = [
            (
                key.not_before.timestamp(),
                key.not_after.timestamp() if key.not_after is not None else math.inf,
                SigningKey(key.secret.reveal()),
            )
            for key in keys
            if key.algorithm is Algorithm.ED25519
        ]

    def sign(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """Return the value of `webhook-signature`.

        Args:
            webhook_id: the delivery id, the same on every attempt; no dot in it.
            timestamp: Unix seconds of this attempt.
            body: exactly the bytes that are sent.

        Raises:
            ConfigError: no key is valid at the timestamp.
        """
        content = signed_content(webhook_id, timestamp, body)
        entries = [
            "v1a," + b64encode(key.sign(content)).decode()
            for start, end, key in self._ed25519
            if start <= timestamp + 1 and timestamp < end  # the timestamp is a whole second, the window is not
        ]
        entries += ["v1," + b64encode(hmac.digest(secret, content, "sha256")).decode() for secret in self._hmac]
        if not entries:
            raise ConfigError("no signing key is valid now: `waybill keys list` shows the windows, `rotate` makes one")
        return " ".join(entries)


class FileSigner(Signer):
    """A signer that follows its key file, so that a rotation reaches a running worker.

    The file is looked at again at most every five seconds of the timestamps it signs, and read when it was replaced.
    A file that cannot be read leaves the keys as they are: their own windows end them.
    """

    def __init__(self, path: Path, hmac_secrets: Sequence[Secret] = ()) -> None:
        self._path = path
        self._seen = _mark(path)
        self._looked_at = 0
        super().__init__(read_keys(path), hmac_secrets)

    def sign(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """Sign as `Signer.sign`, with the keys of the file as it is now."""
        if not 0 <= timestamp - self._looked_at < _LOOK_EVERY_S:
            self._look(timestamp)
        return super().sign(webhook_id, timestamp, body)

    def _look(self, timestamp: int) -> None:
        self._looked_at = timestamp
        seen = _mark(self._path)
        if seen is not None and seen != self._seen:
            with contextlib.suppress(ConfigError):
                self._take(read_keys(self._path))
                self._seen = seen


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def parse_hmac_secrets(text: str | None) -> tuple[Secret, ...]:
    """Read shared secrets (`whsec_` and base64 of 24 to 64 bytes), separated by white space while they rotate.

    Raises:
        ConfigError: one of them is not such a secret; does not show it.
    """
    found = []
    for part in (text or "").split():
        try:
            if not part.startswith(_HMAC_PREFIX):
                raise ValueError
            secret = b64decode(part.removeprefix(_HMAC_PREFIX), validate=True)
        except ValueError:
            raise ConfigError("a shared secret is not `whsec_` followed by base64") from None
        if len(secret) not in _HMAC_BYTES:
            raise ConfigError("a shared secret must have 24 to 64 bytes")
        found.append(Secret(secret))
    return tuple(found)


def load_signer(keys_dir: Path | str, tenant: Tenant, hmac_secret: str | None = None) -> FileSigner:
    """Make the signer of a tenant, which follows its key file.

    Args:
        keys_dir: the folder of all tenants' key files.
        tenant: whose.
        hmac_secret: the text of the destination's shared secret or secrets.

    Raises:
        ConfigError: no usable key file or secret; says what to do.
    """
    return FileSigner(signing_path(Path(keys_dir), tenant), parse_hmac_secrets(hmac_secret))
