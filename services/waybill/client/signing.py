"""Signing requests instead of showing a key: an httpx authentication, for these clients and for any other use of httpx.

Each attempt is signed anew, with its own time and nonce: a repeated one is the same submission by its
`Idempotency-Key`, and never a copy of a signed request. Source: docs/guides/access.md.
"""

import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Final

import httpx

from waybill.crypto.ed25519 import SigningKey
from waybill.crypto.key_texts import read_private_key
from waybill.crypto.keys import Secret
from waybill.crypto.requests import DIGEST_FIELD, Parameters, RequestHead, content_digest, sign, to_cover
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock

__all__ = ["RequestSigner"]

_NONCE_BYTES: Final = 18


class RequestSigner(httpx.Auth):
    """Signs each request of one principal."""

    requires_request_body = True

    def __init__(self, key_id: str, key: Path | str | Secret, clock: Clock | None = None) -> None:
        """Read the key.

        Args:
            key_id: as `waybill access keys create --public-key` printed it.
            key: path of the private key, Ed25519 in PEM; or its 32 bytes.
            clock: in place of the system's.

        Raises:
            ConfigError: there is no such key in the file.
        """
        secret = key if isinstance(key, Secret) else read_private_key(key)
        self._key_id, self._key, self._clock = key_id, SigningKey(secret.reveal()), clock or SystemClock()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the fields of a signature, and that of the digest where there is a body."""
        if request.content:
            request.headers[DIGEST_FIELD] = content_digest(request.content)
        fields = [(name.lower(), value) for name, value in request.headers.multi_items()]
        head = RequestHead(
            method=request.method,
            authority=request.headers["host"],
            target=request.url.raw_path.decode("ascii"),
            fields=fields,
        )
        parameters = Parameters(
            created=int(self._clock.now().timestamp()),
            key_id=self._key_id,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            algorithm="ed25519",
        )
        request.headers.update(sign(head, to_cover(head), parameters, self._key))
        yield request
