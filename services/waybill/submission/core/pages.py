"""Pages of deliveries: what narrows them, where the next one begins, and how one delivery is told.

A page begins where the one before it ended, by the time of issue and the id, so that what comes in meanwhile moves
nothing. The cursor is that place as text; it is not secret and says nothing a page does not.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from waybill.contracts.states import State
from waybill.kernel.clock import format_instant
from waybill.kernel.ids import NAME_PATTERN

__all__ = ["MAX_LIMIT", "Place", "Wanted", "cursor", "etag", "read_wanted", "told_delivery"]

MAX_LIMIT: Final = 200
_TEXT_FILTERS: Final = ("aggregate", "requestId")
_PARAMETERS: Final = {"destination", "state", *_TEXT_FILTERS, "commandId", "cursor", "limit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The last delivery of a page; `issued_at` is None where it is not known yet."""

    issued_at: datetime | None
    delivery_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which deliveries, from where on; None means any."""

    destination: str | None = None
    state: str | None = None
    aggregate: str | None = None
    request_id: str | None = None
    command_id: UUID | None = None
    after: Place | None = None
    limit: int = 50


def read_wanted(parameters: Sequence[tuple[str, str]]) -> Wanted | str:
    """Read the query of a request; text says what is wrong with it."""
    given = dict(parameters)
    try:
        limit = int(given.get("limit", "50"))
        command = UUID(given["commandId"]) if "commandId" in given else None
        after = _place(given["cursor"]) if "cursor" in given else None
    except (ValueError, OverflowError):
        return "limit is a number, commandId a UUID, cursor what the page before said"
    texts = [given.get(name, "") for name in _TEXT_FILTERS]
    checks = (
        (len(given) != len(parameters), "a parameter comes twice"),
        (set(given) - _PARAMETERS, "a parameter is unknown"),
        (not 1 <= limit <= MAX_LIMIT, f"limit is from 1 to {MAX_LIMIT}"),
        ("state" in given and given["state"] not in set(State), "state is none of the eight"),
        ("destination" in given and not NAME_PATTERN.fullmatch(given["destination"]), "destination is a name"),
        (any("\0" in each or len(each) > 255 for each in texts), "aggregate and requestId: at most 255 characters"),
    )
    if wrong := [said for is_wrong, said in checks if is_wrong]:
        return wrong[0]
    return Wanted(
        destination=given.get("destination"),
        state=given.get("state"),
        aggregate=given.get("aggregate"),
        request_id=given.get("requestId"),
        command_id=command,
        after=after,
        limit=limit,
    )


def cursor(place: Place) -> str:
    """Return where the next page begins, as text."""
    at = "" if place.issued_at is None else place.issued_at.astimezone(UTC).isoformat()
    return urlsafe_b64encode(f"{at}|{place.delivery_id}".encode()).decode().rstrip("=")


def _place(text: str) -> Place:
    at, bar, identity = urlsafe_b64decode((text + "=" * (-len(text) % 4)).encode("ascii")).decode().partition("|")
    if not bar:
        raise ValueError("no cursor")
    issued_at = datetime.fromisoformat(at) if at else None
    if issued_at is not None and issued_at.tzinfo is None:
        raise ValueError("no cursor")
    return Place(issued_at=issued_at, delivery_id=UUID(identity))


_MEMBERS: Final[Mapping[str, str]] = {
    "deliveryId": "delivery_id",
    "commandId": "command_id",
    "destination": "destination",
    "aggregate": "aggregate",
    "sequence": "sequence",
    "commandType": "command_type",
    "requestId": "request_id",
    "state": "state",
    "version": "version",
    "errorCode": "error_code",
    "detail": "detail",
    "proofLevel": "proof_level",
    "issuedAt": "issued_at",
    "expiresAt": "expires_at",
    "updatedAt": "updated_at",
}


def told_delivery(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a delivery as JSON; what is not known is left out."""
    told: dict[str, Any] = {}
    for name, column in _MEMBERS.items():
        value = row[column]
        if isinstance(value, datetime):
            told[name] = format_instant(value)
        elif value is not None:
            told[name] = str(value) if isinstance(value, UUID) else value
    return told


def etag(document: object) -> str:
    """Return what stands for a document: equal documents have equal tags."""
    return f'"{hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]}"'
