"""Ed25519 (RFC 8032) by libsodium, through PyNaCl: the one place that signs and checks.

libsodium takes half of OpenSSL's time for both, and releases the interpreter meanwhile (ADR 0071). It is also the
stricter of the two: it refuses small-order keys and signatures that are not in their one canonical form.
"""

from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

__all__ = ["PublicKey", "SigningKey"]

_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64


class SigningKey:
    """A private key."""

    __slots__ = ("_secret",)

    def __init__(self, seed: bytes) -> None:
        """Take a key's 32 bytes; raises ValueError when it is another number of them."""
        _, self._secret = crypto_sign_seed_keypair(seed)

    def sign(self, content: bytes) -> bytes:
        """Return the signature over a content, 64 bytes; the same for the same content."""
        signature: bytes = crypto_sign(content, self._secret)[:_SIGNATURE_BYTES]
        return signature


class PublicKey:
    """A public key."""

    __slots__ = ("_key",)

    def __init__(self, raw: bytes) -> None:
        """Take a key's 32 bytes; raises ValueError when it is another number of them."""
        if len(raw) != _KEY_BYTES:
            raise ValueError("an Ed25519 public key has 32 bytes")
        self._key = raw

    def has_signed(self, signature: bytes, content: bytes) -> bool:
        """Whether a signature is this key's over a content; what is no signature is not."""
        if len(signature) != _SIGNATURE_BYTES:
            return False
        try:
            crypto_sign_open(signature + content, self._key)
        except BadSignatureError:
            return False
        return True
