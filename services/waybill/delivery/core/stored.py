"""A record as a row keeps it: key, headers and value, byte for byte.

The bytes are the producer's and may be personal data; they are kept as they lie in the topic (sealed data stay
sealed) and leave the database only to be sent. The form is versioned by its first byte.
"""

import struct
from typing import Final

from waybill.kernel.errors import ContractError

__all__ = ["pack_record", "unpack_record"]

_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">BI")
RawRecord = tuple[bytes | None, list[tuple[str, bytes | None]], bytes | None]


def pack_record(key: bytes | None, headers: list[tuple[str, bytes | None]], value: bytes | None) -> bytes:
    """Return one byte string that `unpack_record` reads back; absent and empty parts stay different."""
    parts: list[bytes] = [_HEAD.pack(_VERSION, len(headers))]
    for part in (key, value):
        _put(parts, part)
    for name, content in headers:
        _put(parts, name.encode())
        _put(parts, content)
    return b"".join(parts)


def unpack_record(packed: bytes) -> RawRecord:
    """Return key, headers and value.

    Raises:
        ContractError: written by a newer version, or damaged.
    """
    found: list[bytes | None] = []
    at = _HEAD.size
    try:
        version, count = _HEAD.unpack_from(packed)
        if version != _VERSION:
            raise ContractError("a stored record has a form this version does not know")
        while at < len(packed):
            (length,) = _LENGTH.unpack_from(packed, at)
            at += _LENGTH.size
            found.append(None if length < 0 else packed[at : at + length])
            at += max(length, 0)
    except struct.error as error:
        raise ContractError("a stored record is damaged") from error
    if at != len(packed) or len(found) != 2 + 2 * count:
        raise ContractError("a stored record is damaged")
    headers = [((name or b"").decode(), content) for name, content in zip(found[2::2], found[3::2], strict=True)]
    return found[0], headers, found[1]


def _put(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(_LENGTH.pack(-1))
        return
    parts.append(_LENGTH.pack(len(content)))
    parts.append(content)
