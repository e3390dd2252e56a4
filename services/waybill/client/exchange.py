"""What both clients know of httpx: how a request is sent, and what came of it."""

from typing import Final

import httpx

from waybill import __version__
from waybill.client.core.operations import Lost, Reply

__all__ = ["PATIENCE_S", "TIMEOUT_S", "auth_of", "headers_of", "lost", "reply"]

#: Of one attempt.
TIMEOUT_S: Final = 10.0
#: Of one call, all attempts and waits together.
PATIENCE_S: Final = 60.0
#: No connection was made, so nothing was sent.
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def headers_of(key: str | httpx.Auth) -> dict[str, str]:
    """Return the headers of every request."""
    shown = {"authorization": f"Bearer {key}"} if isinstance(key, str) else {}
    return {**shown, "user-agent": f"waybill-client/{__version__}"}


def auth_of(key: str | httpx.Auth) -> httpx.Auth | None:
    """Return what signs every request, None where an API key is shown."""
    return None if isinstance(key, str) else key


def reply(response: httpx.Response) -> Reply:
    """Return an answer."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, body=response.content)


def lost(error: httpx.TransportError) -> Lost:
    """Return that no answer came, and whether the request may have arrived."""
    return Lost(reason=type(error).__name__, may_have_arrived=not isinstance(error, _NEVER_SENT))
