"""Envelope version 1 against its golden files: the bytes that every implementation, in any language, must give."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import (
    Envelope,
    GapEntry,
    GapResolution,
    Resolution,
    delivery_id_text,
    render,
    render_gap_resolution,
)
from waybill.contracts.envelope_reader import parse
from waybill.kernel.ids import Aggregate, CommandId, DeliveryId, DestinationName, Tenant, delivery_id

Vectors = Callable[[str], list[dict[str, Any]]]


def command_of(case: dict[str, Any]) -> Command:
    """Build the command of a case."""
    values = dict(case["command"])
    values["data"] = base64.b64decode(values.pop("data_base64"))
    values["command_id"] = CommandId(uuid.UUID(values["command_id"]))
    values["replaces"] = CommandId(uuid.UUID(values["replaces"])) if values["replaces"] else None
    values["optional_destinations"] = frozenset(values["optional_destinations"])
    values["issued_at"] = datetime.fromisoformat(values["issued_at"])
    values["expires_at"] = datetime.fromisoformat(values["expires_at"])
    values["data_form"] = DataForm(values["data_form"])
    return Command(**values)


def gap_of(case: dict[str, Any]) -> GapResolution:
    """Build the gap resolution of a case."""
    given = case["gap_resolution"]
    return GapResolution(
        resolution_id=DeliveryId(uuid.UUID(given["resolution_id"])),
        tenant=Tenant(given["tenant"]),
        destination=DestinationName(given["destination"]),
        aggregate=Aggregate(given["aggregate"]),
        source=given["source"],
        issued_at=datetime.fromisoformat(given["issued_at"]),
        config_version=given["config_version"],
        entries=tuple(
            GapEntry(
                sequence=entry["sequence"],
                delivery_id=DeliveryId(uuid.UUID(entry["delivery_id"])),
                resolution=Resolution(entry["resolution"]),
            )
            for entry in given["entries"]
        ),
    )


@pytest.mark.requirement("GW-2")
def test_every_case_renders_to_its_bytes(vectors: Vectors) -> None:
    cases = vectors("envelope_v1.json")

    rendered = {case["name"]: render(command_of(case), DestinationName(case["destination"])) for case in cases}

    assert len(cases) >= 14
    assert {name: body.decode() for name, body in rendered.items()} == {case["name"]: case["body"] for case in cases}
    for case in cases:
        assert hashlib.sha256(rendered[case["name"]]).hexdigest() == case["body_sha256"]


@pytest.mark.requirement("GW-1")
@pytest.mark.requirement("DC-6")
def test_every_case_has_the_delivery_id_anybody_computes(vectors: Vectors) -> None:
    for case in vectors("envelope_v1.json"):
        command, destination = command_of(case), DestinationName(case["destination"])

        assert case["delivery_id"] == str(uuid.uuid5(command.command_id, destination))
        assert case["delivery_id"] == str(delivery_id(command.command_id, destination))
        assert case["delivery_id"] == delivery_id_text(command.command_id, destination)


def test_every_case_reads_back_to_its_command(vectors: Vectors) -> None:
    same = {field.name for field in fields(Envelope)} & {field.name for field in fields(Command)}
    same -= {"issued_at", "expires_at", "operation_id"}

    for case in vectors("envelope_v1.json"):
        command = command_of(case)
        envelope = parse(case["body"].encode())

        assert isinstance(envelope, Envelope)
        assert {name: getattr(envelope, name) for name in same} == {name: getattr(command, name) for name in same}
        assert str(envelope.delivery_id) == case["delivery_id"]
        assert envelope.operation_id == (command.operation_id or case["delivery_id"])
        assert envelope.sequence == command.sequences[envelope.destination]
        assert envelope.required == (envelope.destination not in command.optional_destinations)


def test_every_case_is_json_that_any_parser_reads(vectors: Vectors) -> None:
    """A reader with no knowledge of ours sees each attribute once, and the data last."""
    for case in [*vectors("envelope_v1.json"), *vectors("gap_resolution_v1.json")]:
        names: list[str] = []

        def note(pairs: list[tuple[str, object]], names: list[str] = names) -> dict[str, object]:
            names[:] = [name for name, _ in pairs]  # the outermost object comes last
            return dict(pairs)

        document = json.loads(case["body"], object_pairs_hook=note)

        assert len(names) == len(set(names))
        assert document["specversion"] == "1.0"
        if "data" in document or "data_base64" in document:
            assert names[-1] in {"data", "data_base64"}
        assert all(name.isalnum() and name.islower() for name in names if name != "data_base64")


def test_gap_resolutions_render_to_their_bytes_and_read_back(vectors: Vectors) -> None:
    for case in vectors("gap_resolution_v1.json"):
        gap = gap_of(case)

        body = render_gap_resolution(gap)

        assert body.decode() == case["body"]
        assert hashlib.sha256(body).hexdigest() == case["body_sha256"]
        assert parse(body) == gap


def test_the_page_about_the_wire_shows_the_members_in_order_and_a_true_example(
    vectors: Vectors, checkout: Path
) -> None:
    page = (checkout / "docs" / "reference" / "wire.md").read_text()
    cases = vectors("envelope_v1.json")
    longest = max(cases, key=lambda case: len(json.loads(case["body"])))
    section = page.split("## The body, envelope version 1")[1].split("###")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

    shown = [name for name in listed if name not in {"datakeyid", "dataref", "data_base64"}]

    assert shown == [name for name in json.loads(longest["body"]) if name not in {"datakeyid", "dataref"}]
    assert {name for case in cases for name in json.loads(case["body"])} == set(listed)
    assert re.findall(r"^```json\n(.+)\n```$", section, re.MULTILINE) == [cases[0]["body"]]
