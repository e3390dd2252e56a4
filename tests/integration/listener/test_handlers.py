"""Handlers without `async`, and handlers that open seals."""

import json
from datetime import UTC, datetime

import pytest
from fixtures.fix_listener import CRM, Site

from waybill.contracts.command import DataForm
from waybill.crypto.keys import Algorithm, KeyRecord, Secret
from waybill.crypto.sealing import SealBinding, SealingKeys, seal
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import Aggregate, Tenant
from waybill.listener import BlockingTransaction, Done, ErrorCode, Received, Refuse

pytestmark = pytest.mark.postgres


def sealing_key(seed: int) -> KeyRecord:
    return KeyRecord(
        key_id="acme-seal",
        algorithm=Algorithm.AES_256_GCM,
        secret=Secret(bytes([seed]) * 32),
        not_before=datetime(2026, 1, 1, tzinfo=UTC),
        not_after=None,
    )


@pytest.mark.requirement("GW-6")
async def test_a_handler_without_async_writes_in_the_deliverys_transaction(bare_site: Site) -> None:
    site, is_refused = bare_site, True
    kept: list[BlockingTransaction] = []

    @site.listener.on("subject.erase")
    def erase(command: Received, transaction: BlockingTransaction) -> Done:
        kept.append(transaction)
        transaction.execute("INSERT INTO contact_erasure (what) VALUES (%s)", (command.json()["subject"],))
        cursor = transaction.execute("SELECT what FROM contact_erasure")
        found = cursor.fetchall()
        assert cursor.rowcount == len(found) == 1
        assert transaction.execute("SELECT 1 WHERE false").fetchone() is None
        if is_refused:
            raise Refuse(ErrorCode.POLICY_BLOCK, "legal_hold")
        return Done(source_version="1", evidence="e", count=len(found))

    command = site.make_command()

    assert (await site.send(command)).status_code == 422
    assert (await site.effects(), await site.records()) == ([], [])

    is_refused = False

    assert (await site.send(command)).json()["count"] == 1
    assert await site.effects() == ["8f14e45f"]
    with pytest.raises(InvariantBroken, match="is over"):
        await kept[0]._execute("SELECT 1", None)


async def test_sealed_data_open_in_the_handler(bare_site: Site) -> None:
    site, keys = bare_site, SealingKeys([sealing_key(1)])
    place = SealBinding(tenant=Tenant("acme"), aggregate=Aggregate("subject/8f14e45f"), command_type="subject.erase")

    @site.listener.on("subject.erase")
    async def erase(command: Received, transaction: object) -> Done:
        subject = command.unseal_json(keys)["subject"]
        return Done(source_version="1", evidence=f"crm:{subject}", count=1)

    def sealed(key: KeyRecord, binding: SealBinding = place, data: bytes = b'{"subject":"x1"}') -> dict[str, object]:
        return {"data_form": DataForm.SEALED, "data_key_id": key.key_id, "data": seal(key, data, binding)}

    answer = await site.send(site.make_command(**sealed(sealing_key(1))))
    wrong_key = await site.send(site.make_command(**sealed(sealing_key(2))))
    moved = SealBinding(tenant=Tenant("acme"), aggregate=Aggregate("subject/other"), command_type="subject.erase")
    wrong_place = await site.send(site.make_command(**sealed(sealing_key(1), moved)))
    no_json = await site.send(site.make_command(**sealed(sealing_key(1), place, b"x1")))
    in_clear = await site.send(site.make_command())

    assert answer.json()["evidence"] == "crm:x1"
    assert [found.json()["reason"] for found in (wrong_key, wrong_place, no_json, in_clear)] == [
        "unseal",
        "unseal",
        "data_not_json",
        "data_not_sealed",
    ]
    assert {found.json()["type"] for found in (wrong_key, wrong_place, no_json, in_clear)} == {
        "urn:waybill:error:VALIDATION"
    }
    assert len(await site.records()) == 1


async def test_a_handler_that_wants_clear_data_gets_no_sealed_ones(site: Site) -> None:
    answer = await site.send(site.make_command(data_form=DataForm.SEALED, data=b"\x00"))

    assert answer.json()["reason"] == "data_not_clear"
    assert await site.effects() == []


async def test_what_was_stored_is_what_was_answered(site: Site) -> None:
    answer = await site.send(site.make_command())

    (stored,) = await site.rows("SELECT receipt FROM delivery")

    assert json.loads(stored) == answer.json()
    assert str(CRM) == (await site.rows("SELECT destination FROM delivery"))[0]
