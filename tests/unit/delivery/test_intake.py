"""Whose record nobody's is: unreadable ones, and destinations that are not configured."""

import uuid

import pytest

from waybill.contracts.envelope import delivery_id_text
from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.delivery.intake import judge, needed_version
from waybill.infra.kafka import RawHeaders, Record
from waybill.kernel.ids import CommandId, DestinationName, Tenant

ACME = Tenant("acme")
COMMAND = "0193e1c7-0000-7000-8000-000000000001"
CRM = DestinationConfig(tenant=ACME, name=DestinationName("crm"), url="http://x", owner="team")
CONFIG = FabricConfig(version=3, tenants=(TenantConfig(name=ACME, partitions=3, destinations=(CRM,)),))


def record(sequences: bytes | None, key: bytes | None = b"subject/1", **more: bytes) -> Record:
    headers: RawHeaders = [("ce_id", COMMAND.encode()), *more.items()]
    if sequences is not None:
        headers.append(("ce_sequences", sequences))
    return Record(0, 7, key, headers, b"{}")


@pytest.mark.requirement("DC-22")
@pytest.mark.parametrize(
    ("found", "causes"),
    [
        (record(b'{"crm":5}'), []),
        (record(None), [("unreadable", None)]),
        (record(b"crm"), [("unreadable", None)]),
        (record(b'{"crm":0}'), [("unreadable", None)]),
        (record(b'{"crm":5}', key=None), [("unreadable", None)]),
        (record(b'{"crm":5}', key=b"\xff/1"), [("unreadable", None)]),
        (record(b'{"crm":5,"gone":6}'), [("unknown_destination", "gone")]),  # the other delivery goes its way
    ],
)
def test_what_nobody_can_own_becomes_a_letter(found: Record, causes: list[tuple[str, str | None]]) -> None:
    letters = judge(found, CONFIG, ACME)

    assert [(letter.cause, letter.destination) for letter in letters] == causes


def test_a_letter_of_an_unknown_destination_names_the_delivery_it_would_have_been() -> None:
    (letter,) = judge(record(b'{"gone":6}'), CONFIG, ACME)

    expected = delivery_id_text(CommandId(uuid.UUID(COMMAND)), DestinationName("gone"))
    assert (letter.delivery_id, letter.aggregate, letter.sequence) == (expected, "subject/1", 6)


@pytest.mark.parametrize(
    ("said", "version"), [({}, 0), ({"ce_configversion": b"12"}, 12), ({"ce_configversion": b"-1"}, 0)]
)
def test_a_record_waits_for_the_version_it_names(said: dict[str, bytes], version: int) -> None:
    assert needed_version(record(b"{}", **said)) == version
