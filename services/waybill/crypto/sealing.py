"""Sealed data: only who holds the tenant's sealing key can read them, and only where they belong.

A producer seals once, before the command commits; what is in the outbox, the topic and the signed body is the seal,
so every attempt carries the same bytes. The seal is bound to tenant, aggregate and command type: moved to another
command it does not open, and neither under a wrong key, nor with one bit changed. There is no partial result.

Format, version 1, byte by byte:

```
"WBS" 0x01 | algorithm (1 = AES-256-GCM, 2 = ChaCha20-Poly1305) | n | key id, n bytes UTF-8 | nonce, 12 | ciphertext and tag
```

The additional data are everything before the nonce, then tenant, aggregate and command type, each as UTF-8 behind its
length in four bytes, big-endian. The nonce is random: one key seals at most 2^32 values, so rotate well before.
"""

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from waybill.crypto.keys import Algorithm, KeyRecord, read_keys, sealing_path
from waybill.kernel.errors import ConfigError, ContractError
from waybill.kernel.ids import Aggregate, Tenant

__all__ = ["SealBinding", "SealingKeys", "UnsealError", "load_sealing_keys", "seal", "sealed_key_id", "unseal"]

_MAGIC: Final = b"WBS\x01"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_CODES: Final = {Algorithm.AES_256_GCM: 1, Algorithm.CHACHA20_POLY1305: 2}
_ALGORITHMS: Final = {code: algorithm for algorithm, code in _CODES.items()}
_MAX_KEY_ID: Final = 255


class UnsealError(ContractError):
    """The seal does not open: another key, another place, or changed on the way. Nothing of it may be used."""

    code = "unseal"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealBinding:
    """Where sealed data belong."""

    tenant: Tenant
    aggregate: Aggregate
    command_type: str

    def encoded(self) -> bytes:
        """Return the three texts so that no two bindings are the same bytes."""
        parts = (text.encode() for text in (self.tenant, self.aggregate, self.command_type))
        return b"".join(struct.pack(">I", len(part)) + part for part in parts)


class SealingKeys:
    """A tenant's sealing keys: one to seal with now, all to open with."""

    def __init__(self, keys: Iterable[KeyRecord]) -> None:
        self._keys = {key.key_id: key for key in keys if key.algorithm in _CODES}

    def current(self, now: datetime) -> KeyRecord:
        """Return the newest key valid now.

        Raises:
            ConfigError: there is none; says which command makes one.
        """
        valid = [key for key in self._keys.values() if key.is_valid_at(now)]
        if not valid:
            raise ConfigError("no sealing key is valid now: make one with `waybill keys seal-new`")
        return max(valid, key=lambda key: key.not_before)

    def get(self, key_id: str) -> KeyRecord | None:
        """Return a key by id, retired ones too: data sealed in its time must stay readable."""
        return self._keys.get(key_id)


def load_sealing_keys(keys_dir: Path | str, tenant: Tenant) -> SealingKeys:
    """Read a tenant's sealing keys.

    Raises:
        ConfigError: no usable key file; says what to do.
    """
    return SealingKeys(read_keys(sealing_path(Path(keys_dir), tenant)))


def _cipher(key: KeyRecord) -> AESGCM | ChaCha20Poly1305:
    make = AESGCM if key.algorithm is Algorithm.AES_256_GCM else ChaCha20Poly1305
    return make(key.secret.reveal())


def seal(key: KeyRecord, data: bytes, binding: SealBinding) -> bytes:
    """Seal data for one place, under a fresh nonce: the same data never give the same seal twice.

    Raises:
        ConfigError: the key is not a sealing key.
    """
    return _seal(key, data, binding, os.urandom(_NONCE_BYTES))


def _seal(key: KeyRecord, data: bytes, binding: SealBinding, nonce: bytes) -> bytes:
    if key.algorithm not in _CODES:
        raise ConfigError(f"key {key.key_id} signs, it does not seal")
    key_id = key.key_id.encode()
    if len(key_id) > _MAX_KEY_ID:
        raise ConfigError(f"a key id has at most {_MAX_KEY_ID} bytes")
    head = _MAGIC + bytes((_CODES[key.algorithm], len(key_id))) + key_id
    return head + nonce + _cipher(key).encrypt(nonce, data, head + binding.encoded())


def _split(sealed: bytes) -> tuple[bytes, Algorithm, str, bytes, bytes]:
    """Return head, algorithm, key id, nonce, ciphertext."""
    start = len(_MAGIC) + 2
    if not sealed.startswith(_MAGIC) or len(sealed) < start:
        raise UnsealError("these are not sealed data of a version known here")
    end = start + sealed[start - 1]
    algorithm = _ALGORITHMS.get(sealed[start - 2])
    if algorithm is None or len(sealed) < end + _NONCE_BYTES + _TAG_BYTES:
        raise UnsealError("the sealed data are damaged")
    try:
        key_id = sealed[start:end].decode()
    except UnicodeDecodeError as error:
        raise UnsealError("the sealed data are damaged") from error
    return sealed[:end], algorithm, key_id, sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]


def sealed_key_id(sealed: bytes) -> str:
    """Return the id of the key that a seal asks for; it is only a hint until the seal has opened.

    Raises:
        UnsealError: not sealed data.
    """
    return _split(sealed)[2]


def unseal(keys: SealingKeys, sealed: bytes, binding: SealBinding) -> bytes:
    """Open sealed data.

    Raises:
        UnsealError: no such key here, or the seal does not open under it in this place. Nothing was returned.
    """
    head, algorithm, key_id, nonce, ciphertext = _split(sealed)
    key = keys.get(key_id)
    if key is None:
        raise UnsealError(f"no sealing key {key_id!r} here")
    if key.algorithm is not algorithm:
        raise UnsealError(f"key {key_id!r} is of another algorithm than the seal")
    try:
        return _cipher(key).decrypt(nonce, ciphertext, head + binding.encoded())
    except InvalidTag as error:
        raise UnsealError(f"the seal does not open under key {key_id!r} for this command") from error
