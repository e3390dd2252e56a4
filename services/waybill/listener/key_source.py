"""Where a listener's verification keys come from, and how it learns of new ones.

From the tenant's JWKS: a file, looked at again when it changed, or a URL, fetched again after `max_age` and, when a
signature finds no key, at once but not oftener than every `min_interval`: so a rotation is followed within seconds
and a flood of forgeries does not become a flood of fetches. When a source cannot be read the last good keys stay: their
own windows end them.
"""

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from waybill.crypto.keys import Secret
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, FabricError, UnavailableError

__all__ = ["FixedKeys", "JwksFile", "JwksUrl", "KeySource"]

_log = logging.getLogger("waybill.listener")

_MAX_BYTES: Final = 262_144
_FETCH_TIMEOUT_S: Final = 5.0


class KeySource(Protocol):
    """What the listener asks for keys."""

    async def current(self) -> VerificationKeys:
        """Return the keys; raises FabricError when there were never any."""
        ...

    async def renewed(self) -> VerificationKeys | None:
        """Look again because a signature found no key; None when there is nothing newer to try."""
        ...


class FixedKeys:
    """Keys that do not change while the process runs."""

    def __init__(self, keys: VerificationKeys) -> None:
        self._keys = keys

    async def current(self) -> VerificationKeys:
        """Return them."""
        return self._keys

    async def renewed(self) -> VerificationKeys | None:
        """There are no others."""
        return None


class JwksFile:
    """A JWKS file, read again when it was replaced."""

    def __init__(self, path: Path | str, hmac_secrets: Sequence[Secret] = ()) -> None:
        self._path = Path(path)
        self._hmac = tuple(hmac_secrets)
        self._seen: tuple[int, int, int] | None = None
        self._keys: VerificationKeys | None = None

    async def current(self) -> VerificationKeys:
        """Return the keys of the file as it is now.

        Raises:
            ConfigError: it was never readable.
        """
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if mark != self._seen:
                self._keys = VerificationKeys.from_jwks(json.loads(self._path.read_bytes()), self._hmac)
                self._seen = mark
        except (OSError, ValueError, ConfigError) as error:
            if self._keys is None:
                raise ConfigError(f"{self._path} is not a readable JSON Web Key Set") from error
            _log.warning("keys.unreadable", extra={"source": str(self._path), "error": type(error).__name__})
        assert self._keys is not None
        return self._keys

    async def renewed(self) -> VerificationKeys | None:
        """`current` has already looked."""
        return None


class JwksUrl:
    """A JWKS behind an http or https URL."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        hmac_secrets: Sequence[Secret] = (),
        *,
        max_age: timedelta = timedelta(minutes=5),
        min_interval: timedelta = timedelta(seconds=10),
    ) -> None:
        if not url.startswith(("https://", "http://")):
            raise ConfigError("the key URL must begin with https:// or http://")
        self._url = url
        self._clock = clock
        self._hmac = tuple(hmac_secrets)
        self._max_age_s = max_age.total_seconds()
        self._min_interval_s = min_interval.total_seconds()
        self._keys: VerificationKeys | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> VerificationKeys:
        """Return the keys, fetched at most `max_age` ago if the source answers.

        Raises:
            UnavailableError: it never answered.
        """
        if self._keys is None or self._is_older_than(self._max_age_s):
            await self._fetch(self._min_interval_s)
        if self._keys is None:
            raise UnavailableError(f"no verification keys: {self._url} does not answer with a JSON Web Key Set")
        return self._keys

    async def renewed(self) -> VerificationKeys | None:
        """Fetch again unless that was done a moment ago."""
        before = self._keys
        await self._fetch(self._min_interval_s)
        return self._keys if self._keys is not before else None

    def _is_older_than(self, seconds: float) -> bool:
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= seconds

    async def _fetch(self, unless_within_s: float) -> None:
        async with self._lock:
            if not self._is_older_than(unless_within_s):
                return
            self._tried_at = self._clock.monotonic()
            try:
                document = json.loads(await asyncio.to_thread(self._read))
                self._keys = VerificationKeys.from_jwks(document, self._hmac)
            except (OSError, ValueError, FabricError) as error:
                _log.warning("keys.unreadable", extra={"source": self._url, "error": type(error).__name__})

    def _read(self) -> bytes:
        request = urllib.request.Request(self._url, headers={"accept": "application/json"})  # noqa: S310 - http(s) checked
        with urllib.request.urlopen(request, timeout=_FETCH_TIMEOUT_S) as answer:  # noqa: S310 - the same
            body: bytes = answer.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise ValueError("the key set is larger than a key set is")
        return body
