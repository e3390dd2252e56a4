"""The baseline: what a new or restored listener is told of every aggregate at once, before anything is delivered to it.

A listener that takes each aggregate in order counts from what it remembers. One that is new, or was restored from a
backup, remembers less than the fabric had acknowledged, and would answer `425` for ever. The baseline says for each
aggregate which sequence comes next, and which others will not come in their turn.

It is one statement in parts, each a signed body of its own, since all aggregates of a destination do not fit into one.
The listener's *nonce* binds it to the one time that the listener asked; the digest over all parts, which is what people
approved, is in each of them: a part of another statement, a part too few or another order are noticed before anything
counts.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from waybill.contracts.envelope import ENVELOPE_VERSION, GapEntry
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DestinationName, Tenant

__all__ = [
    "APPLIED",
    "BASELINE_TYPE",
    "MAX_PARTS",
    "STAGED",
    "BaselinePart",
    "LaneStart",
    "check_lanes",
    "evidence_of",
    "part_id",
    "render_baseline_part",
    "render_lanes",
    "statement_digest",
]

#: The event type of a part.
BASELINE_TYPE: Final = "waybill.baseline"
#: The source version of the receipt of a part: it is kept, others are missing; or the whole statement counts.
STAGED: Final = "staged"
APPLIED: Final = "applied"
#: A statement has at most so many parts.
MAX_PARTS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStart:
    """Where one aggregate goes on at a destination."""

    aggregate: Aggregate
    #: The sequence to expect: everything below it has passed.
    next: int
    #: Older ones that may still come, and later ones that will not come in their turn; ascending, never `next` itself.
    told: tuple[GapEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePart:
    """One part of a baseline."""

    part_id: uuid.UUID
    baseline_id: uuid.UUID
    tenant: Tenant
    destination: DestinationName
    source: str
    issued_at: datetime
    #: From then on it counts for nothing.
    expires_at: datetime
    config_version: int
    #: What the listener made when it asked.
    nonce: str
    #: Which one this is, from 1 to `parts`.
    part: int
    parts: int
    #: Of all parts together, lower-case hex: `statement_digest`.
    digest: str
    #: Ascending by aggregate, each once; at least one.
    lanes: tuple[LaneStart, ...]
    #: SHA-256 over the bytes of this part's data, lower-case hex.
    data_sha256: str


def part_id(baseline: uuid.UUID, part: int) -> uuid.UUID:
    """Return the id that a part is signed under, the same each time it is sent."""
    return uuid.uuid5(baseline, f"part/{part}")


def evidence_of(baseline: uuid.UUID) -> str:
    """Return the evidence that the receipt of a part names."""
    return f"urn:waybill:baseline:{baseline}"


def render_lanes(lanes: Sequence[LaneStart]) -> bytes:
    """Return the data of a part, the same bytes for ever.

    Raises:
        ContractError: none, not ascending, or one that contradicts itself.
    """
    check_lanes(lanes)
    listed = [
        {
            "aggregate": lane.aggregate,
            "next": lane.next,
            "told": [
                {
                    "sequence": entry.sequence,
                    "delivery_id": str(entry.delivery_id),
                    "resolution": entry.resolution.value,
                }
                for entry in lane.told
            ],
        }
        for lane in lanes
    ]
    return json.dumps({"lanes": listed}, ensure_ascii=False, separators=(",", ":")).encode()


def check_lanes(lanes: Sequence[LaneStart]) -> None:
    """Refuse lanes that no part may have.

    Raises:
        ContractError: says which rule they break.
    """
    names = [lane.aggregate for lane in lanes]
    if not names or names != sorted(set(names)):
        raise ContractError("a part of a baseline lists at least one aggregate, ascending, each once")
    for lane in lanes:
        numbers = [entry.sequence for entry in lane.told]
        if lane.next < 1 or numbers != sorted(set(numbers)) or lane.next in numbers:
            raise ContractError("an aggregate of a baseline tells sequences ascending, and never the next one")


def statement_digest(parts: Sequence[str]) -> str:
    """Return the digest of a statement: SHA-256 over the SHA-256 of each part's data, in order; all lower-case hex."""
    return sha256(b"".join(bytes.fromhex(each) for each in parts)).hexdigest()


def render_baseline_part(part: BaselinePart, data: bytes) -> bytes:
    """Return the body of a part.

    Args:
        part: everything but its data; `lanes` is not looked at.
        data: as `render_lanes` made them when the statement was proposed, so that what is sent is what was approved.
    """
    head = {
        "specversion": "1.0",
        "id": str(part.part_id),
        "source": part.source,
        "type": BASELINE_TYPE,
        "time": format_instant(part.issued_at),
        "datacontenttype": "application/json",
        "tenant": part.tenant,
        "destination": part.destination,
        "expiresat": format_instant(part.expires_at),
        "configversion": part.config_version,
        "envelopeversion": ENVELOPE_VERSION,
        "dataform": "clear",
        "baselineid": str(part.baseline_id),
        "nonce": part.nonce,
        "part": part.part,
        "parts": part.parts,
        "digest": part.digest,
    }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    return b'%b,"data":%b}' % (text[:-1], data)
