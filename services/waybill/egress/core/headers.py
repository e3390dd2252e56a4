"""Which headers a destination may be given beyond Waybill's own: never one that says who, where, how long or again.

What leaves is a closed list: Waybill's headers and the declared ones. A declared name must be one that nobody on the
way reads: not Waybill's or the signature's, not HTTP's framing or routing, nothing that would make all deliveries one
(`idempotency-key`) or the request another (`x-http-method-override`). A name that sounds like a credential takes its
value by reference only.
"""

import re
from typing import Final

__all__ = ["MOST_HEADERS", "is_value", "refused_name", "sounds_secret"]

MOST_HEADERS: Final = 20

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")
#: Set by Waybill or by what carries the request.
_RESERVED: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "baggage",
        "connection",
        "cookie",
        "date",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "max-forwards",
        "range",
        "set-cookie",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-real-ip",
    }
)
_RESERVED_BEGINNINGS: Final = ("ce-", "content-", "if-", "proxy-", "sec-", "waybill-", "webhook-", "x-forwarded-")
_SECRET: Final = re.compile(r"auth|cookie|credential|key|passw|pwd|secret|session|signature|token")


def refused_name(name: str) -> str | None:
    """Return what is wrong with a header's name, or None."""
    if _NAME.fullmatch(name) is None:
        return "expected a name in lower case, of letters, digits, - and _, at most 64 characters"
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS):
        return f"expected another name, {name} is set by Waybill or by what carries the request"
    return None


def sounds_secret(name: str) -> bool:
    """Say whether a header's name sounds like its value is a credential."""
    return _SECRET.search(name) is not None


def is_value(text: str) -> bool:
    """Say whether a header may hold a text: printable ASCII, nothing that ends the line, at most 4096 characters."""
    return _VALUE.fullmatch(text) is not None
