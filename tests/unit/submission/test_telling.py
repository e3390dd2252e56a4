"""How a command of a submission is told: by what the outbox fixed, whichever version remembered it."""

from uuid import UUID

from waybill.kernel.ids import CommandId, DestinationName, delivery_id
from waybill.submission.store import told_command

COMMAND = UUID("0199f3c0-0000-7000-8000-000000000000")
FIXED = {
    "commandId": str(COMMAND),
    "aggregate": "subject/7",
    "issuedAt": "2026-11-30T12:00:00.000Z",
    "expiresAt": "2026-12-01T12:00:00.000Z",
}


def test_the_delivery_ids_are_told_although_only_the_numbers_are_remembered():
    told = told_command({**FIXED, "sequences": {"erp": 2, "crm": 1}})

    expected = [
        {"deliveryId": str(delivery_id(CommandId(COMMAND), DestinationName(name))), "destination": name, "sequence": n}
        for name, n in (("crm", 1), ("erp", 2))
    ]
    assert told == {**FIXED, "deliveries": expected}


def test_what_an_older_version_wrote_down_is_told_as_it_is():
    before = {**FIXED, "deliveries": [{"deliveryId": "x", "destination": "crm", "sequence": 1}]}

    assert told_command(before) == before
