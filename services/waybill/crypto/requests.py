"""Signed requests: HTTP Message Signatures (RFC 9421) by Ed25519, with `Content-Digest` (RFC 9530) over the body.

A request carries `Signature-Input`, which says what is signed and under which key, and `Signature`. Signed is the
signature base: a line for each covered component, a part of the request's first line or a field, and a last one that
repeats `Signature-Input`. `to_cover` says which components our requests cover; when a signature is too old is not
decided here.

Invariants: one signature in one spelling, the one RFC 8941 writes, so that what is checked is what came; components
have no parameters; a component that is not there has no base, so no signature over it is ever true.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from waybill.crypto.ed25519 import PublicKey, SigningKey

__all__ = [
    "DIGEST_FIELD",
    "INPUT_FIELD",
    "SIGNATURE_FIELD",
    "ContentCheck",
    "MessageSignature",
    "Parameters",
    "RequestHead",
    "content_digest",
    "has_signed",
    "read_signature",
    "sign",
    "signature_base",
    "to_cover",
]

DIGEST_FIELD: Final = "content-digest"
INPUT_FIELD: Final = "signature-input"
SIGNATURE_FIELD: Final = "signature"

_ALWAYS: Final = ("@method", "@authority", "@path", "@query")
#: Fields that change what a request asks for.
_IF_PRESENT: Final = ("content-type", "idempotency-key", DIGEST_FIELD)
_MAX_FIELD: Final = 4_096
_LABEL: Final = "[a-z*][a-z0-9_.*-]*"
_STRING: Final = r'"[ !#-\[\]-~]*"'  # without \ and ", which nothing here needs
_COMPONENT: Final = r'"@?[a-z0-9!#$%&\'*+.^_`|~-]+"'
_INPUT: Final = re.compile(
    rf"(?P<label>{_LABEL})=(?P<text>\((?P<covered>(?:{_COMPONENT}(?: {_COMPONENT})*)?)\)"
    rf"(?P<parameters>(?:;[a-z]+=(?:{_STRING}|0|[1-9][0-9]{{0,11}}))*))"
)
_PARAMETER: Final = re.compile(rf";([a-z]+)=({_STRING}|[0-9]+)")
_BYTES: Final = r":([A-Za-z0-9+/]*={0,2}):"
_SIGNATURE: Final = re.compile(rf"({_LABEL})={_BYTES}")
_DIGEST: Final = re.compile(rf"({_LABEL})={_BYTES}")
#: Parameters that RFC 9421 names, and whether they are numbers.
_KNOWN: Final = {"created": True, "expires": True, "keyid": False, "nonce": False, "alg": False, "tag": False}
_HASHES: Final = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """A request without its body."""

    method: str
    #: The value of `Host`.
    authority: str
    #: Path and query as they were sent.
    target: str
    #: Names in lower case; repeated where a field came more than once.
    fields: Sequence[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        """Return the values of a field."""
        return [value for each, value in self.fields if each == name]

    def component(self, name: str) -> str | None:
        """Return the value of a component; None where there is none, or none of that name is known."""
        path, mark, query = self.target.partition("?")
        match name:
            case "@method":
                return self.method
            case "@authority":
                return re.sub(r":(?:80|443)$", "", self.authority.lower())
            case "@path":
                return path or "/"
            case "@query":
                return f"?{query}" if mark else "?"
        values = self.values(name)
        return ", ".join(value.strip(" \t") for value in values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a signature says of itself; a number is in Unix seconds."""

    key_id: str | None = None
    created: int | None = None
    expires: int | None = None
    nonce: str | None = None
    algorithm: str | None = None

    def text(self) -> str:
        """Return them as they are written."""
        named = {
            "created": self.created,
            "expires": self.expires,
            "keyid": self.key_id,
            "nonce": self.nonce,
            "alg": self.algorithm,
        }
        said = {name: value for name, value in named.items() if value is not None}
        return "".join(
            f";{name}={value}" if isinstance(value, int) else f';{name}="{value}"' for name, value in said.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSignature:
    """A signature as it came, not yet believed."""

    covered: tuple[str, ...]
    parameters: Parameters
    #: Components and parameters as they stand in `Signature-Input`.
    text: str
    value: bytes


def read_signature(head: RequestHead) -> MessageSignature | None:
    """Read the one signature of a request; None where there is none, another number, or another spelling."""
    inputs, values = head.values(INPUT_FIELD), head.values(SIGNATURE_FIELD)
    if len(inputs) != 1 or len(values) != 1 or max(len(inputs[0]), len(values[0])) > _MAX_FIELD:
        return None
    said, signed = _INPUT.fullmatch(inputs[0]), _SIGNATURE.fullmatch(values[0])
    if said is None or signed is None or said["label"] != signed[1]:
        return None
    covered = tuple(each.strip('"') for each in said["covered"].split(" ")) if said["covered"] else ()
    parameters, value = _read_parameters(said["parameters"]), _bytes(signed[2])
    if parameters is None or value is None or len(set(covered)) != len(covered):
        return None
    return MessageSignature(covered=covered, parameters=parameters, text=said["text"], value=value)


def _read_parameters(text: str) -> Parameters | None:
    found: dict[str, int | str] = {}
    for name, value in _PARAMETER.findall(text):
        if name in found or name not in _KNOWN or _KNOWN[name] is value.startswith('"'):
            return None
        found[name] = int(value) if _KNOWN[name] else value[1:-1]
    found.pop("tag", None)
    if "keyid" in found:
        found["key_id"] = found.pop("keyid")
    if "alg" in found:
        found["algorithm"] = found.pop("alg")
    return Parameters(**found)  # type: ignore[arg-type] # by the table above


def signature_base(head: RequestHead, covered: Iterable[str], text: str) -> bytes | None:
    """Return what is signed (RFC 9421, 2.5); None where a component is absent or is not ASCII.

    Args:
        head: of the request.
        covered: names of components.
        text: components and parameters as they stand in `Signature-Input`.
    """
    lines = []
    for name in covered:
        value = head.component(name)
        if value is None or "\n" in value or not value.isascii():
            return None
        lines.append(f'"{name}": {value}')
    return "\n".join([*lines, f'"@signature-params": {text}']).encode()


def has_signed(key: PublicKey, signature: MessageSignature, head: RequestHead) -> bool:
    """Whether a signature is this key's over this request."""
    base = signature_base(head, signature.covered, signature.text)
    return base is not None and key.has_signed(signature.value, base)


def sign(
    head: RequestHead, covered: Sequence[str], parameters: Parameters, key: SigningKey, label: str = "sig1"
) -> dict[str, str]:
    """Return the two fields of a signed request.

    Raises:
        ValueError: a component is absent or is not ASCII.
    """
    text = "({}){}".format(" ".join(f'"{name}"' for name in covered), parameters.text())
    base = signature_base(head, covered, text)
    if base is None:
        raise ValueError("a component to sign is absent or is not ASCII")
    value = b64encode(key.sign(base)).decode()
    return {INPUT_FIELD: f"{label}={text}", SIGNATURE_FIELD: f"{label}=:{value}:"}


def to_cover(head: RequestHead) -> tuple[str, ...]:
    """Return the components that whoever signs a request to an API of the fabric covers at least."""
    return (*_ALWAYS, *(name for name in _IF_PRESENT if head.values(name)))


def content_digest(body: bytes) -> str:
    """Return the value of `Content-Digest` of a body."""
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


class ContentCheck:
    """Compares a body, piece by piece, with what `Content-Digest` says of it."""

    def __init__(self, field: str | None) -> None:
        """Take the field's value; None is that of a request without a body.

        Raises:
            ValueError: the field is damaged, or names no digest that is known here (sha-256, sha-512).
        """
        self._hashes = []
        for part in (field if field is not None else content_digest(b"")).split(", "):
            found = _DIGEST.fullmatch(part)
            value = _bytes(found[2]) if found else None
            if found is None or value is None:
                raise ValueError("not a Content-Digest")
            if found[1] in _HASHES:
                self._hashes.append((_HASHES[found[1]](), value))
        if not self._hashes:
            raise ValueError("no known digest")

    def take(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        for running, _ in self._hashes:
            running.update(piece)

    def is_same(self) -> bool:
        """Whether the pieces were the body that the digests, all of them, are of."""
        return all(hmac.compare_digest(running.digest(), value) for running, value in self._hashes)


def _bytes(text: str) -> bytes | None:
    """Read base64 in its one spelling."""
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        return None
    return found if b64encode(found).decode() == text else None
