"""The baseline against its golden files: the bytes and the digests that every implementation must give."""

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from waybill.contracts.baseline import (
    BaselinePart,
    LaneStart,
    part_id,
    render_baseline_part,
    render_lanes,
    statement_digest,
)
from waybill.contracts.envelope import GapEntry, Resolution
from waybill.contracts.envelope_reader import parse
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant

Vectors = Callable[[str], list[dict[str, Any]]]


def part_of(case: dict[str, Any]) -> BaselinePart:
    """Build the part of a case; its digests are those of the case."""
    given = dict(case["baseline_part"])
    baseline = uuid.UUID(given["baseline_id"])
    lanes = tuple(
        LaneStart(
            aggregate=Aggregate(lane["aggregate"]),
            next=lane["next"],
            told=tuple(
                GapEntry(
                    sequence=entry["sequence"],
                    delivery_id=DeliveryId(uuid.UUID(entry["delivery_id"])),
                    resolution=Resolution(entry["resolution"]),
                )
                for entry in lane["told"]
            ),
        )
        for lane in given["lanes"]
    )
    return BaselinePart(
        part_id=uuid.UUID(case["part_id"]),
        baseline_id=baseline,
        tenant=Tenant(given["tenant"]),
        destination=DestinationName(given["destination"]),
        source=given["source"],
        issued_at=datetime.fromisoformat(given["issued_at"]),
        expires_at=datetime.fromisoformat(given["expires_at"]),
        config_version=given["config_version"],
        nonce=given["nonce"],
        part=given["part"],
        parts=given["parts"],
        digest=case["digest"],
        lanes=lanes,
        data_sha256=case["data_sha256"],
    )


def test_parts_render_to_their_bytes_and_read_back(vectors: Vectors) -> None:
    cases = vectors("baseline_v1.json")
    assert len(cases) >= 3

    for case in cases:
        part = part_of(case)

        body = render_baseline_part(replace(part, lanes=()), render_lanes(part.lanes))

        assert body.decode() == case["body"]
        assert hashlib.sha256(body).hexdigest() == case["body_sha256"]
        assert parse(body) == part
        assert part.part_id == part_id(part.baseline_id, part.part)


def test_digests_are_those_anybody_computes(vectors: Vectors) -> None:
    """From the bytes of the bodies alone."""
    statements: dict[str, list[str]] = {}
    for case in vectors("baseline_v1.json"):
        data = case["body"].split(',"data":', 1)[1][:-1].encode()
        assert hashlib.sha256(data).hexdigest() == case["data_sha256"]
        assert json.loads(data) == {"lanes": case["baseline_part"]["lanes"]}
        statements.setdefault(case["digest"], []).append(case["data_sha256"])

    assert sorted(map(len, statements.values())) == [1, 2]
    for digest, parts in statements.items():
        joined = b"".join(bytes.fromhex(part) for part in parts)
        assert digest == hashlib.sha256(joined).hexdigest() == statement_digest(parts)


def test_the_page_about_the_wire_shows_a_true_part(vectors: Vectors, checkout: Path) -> None:
    page = (checkout / "docs" / "reference" / "wire.md").read_text()

    assert vectors("baseline_v1.json")[0]["body"] in page
