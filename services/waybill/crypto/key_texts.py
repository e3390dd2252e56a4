"""Ed25519 keys as people hand them over: PEM as `openssl genpkey -algorithm ed25519` writes it, or `whpk_` and base64.

Whatever is wrong with a private key is said without showing any of it.
"""

from base64 import b64decode
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from waybill.crypto.keys import Secret
from waybill.kernel.errors import ConfigError

__all__ = ["read_private_key", "read_public_key"]

_PREFIX: Final = "whpk_"
_BYTES: Final = 32


def read_public_key(text: str) -> bytes:
    """Return the 32 bytes of a public key.

    Args:
        text: `whpk_` and base64, or the path of a PEM file.

    Raises:
        ConfigError: neither; says which command writes one.
    """
    if text.startswith(_PREFIX):
        try:
            raw = b64decode(text.removeprefix(_PREFIX), validate=True)
        except ValueError as error:
            raise ConfigError("the public key is not whpk_ followed by base64") from error
        if len(raw) != _BYTES:
            raise ConfigError("a public key has 32 bytes")
        return raw
    pem = _read(text)
    if b"PRIVATE KEY" in pem:
        raise ConfigError(f"{text} is a private key, which stays with its holder: `openssl pkey -pubout -in {text}`")
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{text} is no public key in PEM: `openssl pkey -pubout` writes one") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{text} is a key of another kind: `openssl genpkey -algorithm ed25519` makes one")
    return key.public_bytes_raw()


def read_private_key(path: Path | str) -> Secret:
    """Return the 32 bytes of a private key in a PEM file without a passphrase.

    Raises:
        ConfigError: it is none; shows nothing of it.
    """
    try:
        key = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} is no Ed25519 private key in PEM: `openssl genpkey -algorithm ed25519` makes one")
    return Secret(key.private_bytes_raw())


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
