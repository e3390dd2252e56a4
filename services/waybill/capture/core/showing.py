"""What may be shown of a delivery: identity, order and times always; data, answers and unknown headers when asked for.

A header that nobody declared to be harmless may carry a credential, so its value is masked; one that is known to carry
one is masked always. Clear and sealed data alike are personal until somebody says that they may be seen.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from waybill.capture.core.records import Answered, Captured, Headers
from waybill.contracts.envelope_reader import parse
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ContractError

__all__ = ["MASK", "shown"]

MASK: Final = "(hidden)"
_HARMLESS: Final = frozenset(
    {
        "accept", "accept-encoding", "cache-control", "connection", "content-length", "content-type", "date", "host",
        "retry-after", "server", "traceparent", "transfer-encoding", "user-agent", "waybill-repeat", "webhook-id",
        "webhook-signature", "webhook-timestamp",
    }
)  # fmt: skip
_NEVER: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
_DATA: Final = ("data", "data_base64")


def shown(captured: Captured, *, with_data: bool) -> dict[str, Any]:
    """Return a delivery as a document; the same for the page and for programs."""
    checked, ending = captured.checked, captured.ending
    return {
        "number": captured.number,
        "received_at": format_instant(captured.received_at),
        "replay_of": captured.replay_of,
        "delivery_id": captured.header("webhook-id"),
        "headers": _headers(captured.headers, with_data=with_data),
        "bytes": len(captured.body),
        "body_sha256": sha256(captured.body).hexdigest(),
        "envelope": _envelope(captured.body, with_data=with_data),
        "body": captured.body.decode(errors="replace") if with_data else MASK,
        "signature": {
            "believed": checked.is_believed,
            "check": checked.check,
            "code": checked.code,
            "reason": checked.reason,
        },
        "answer": _answer(ending, with_data=with_data) if isinstance(ending, Answered) else None,
        "failure": None
        if ending is None or isinstance(ending, Answered)
        else {"detail": ending.detail, "was_sent": ending.was_sent},
    }


def _answer(answered: Answered, *, with_data: bool) -> dict[str, Any]:
    return {
        "status": answered.status,
        "took_ms": answered.took_ms,
        "meaning": answered.meaning,
        "why": answered.why,
        "headers": _headers(answered.headers, with_data=with_data),
        "body": answered.body.decode(errors="replace") if with_data else MASK,
    }


def _headers(headers: Headers, *, with_data: bool) -> list[list[str]]:
    return [[name, value if _may_show(name.lower(), with_data=with_data) else MASK] for name, value in headers]


def _may_show(name: str, *, with_data: bool) -> bool:
    return name not in _NEVER and (with_data or name in _HARMLESS)


def _envelope(body: bytes, *, with_data: bool) -> Mapping[str, Any] | None:
    """Return the members of a body that is an envelope; None for anything else, of which nothing is known."""
    try:
        parse(body)
    except ContractError:
        return None
    members: dict[str, Any] = json.loads(body)
    return {name: MASK if name in _DATA and not with_data else value for name, value in members.items()}
