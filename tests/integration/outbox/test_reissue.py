"""A delivery issued again: the same content as a new command, once, however often and by whomever it is asked for."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.contracts.command import Command
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Aggregate, DestinationName, Tenant, delivery_id
from waybill.outbox.core.draft import Emitted
from waybill.outbox.reissuing import Reissues, draft_again

pytestmark = pytest.mark.postgres
CRM = DestinationName("crm")


@pytest.fixture
def expired(make_command: Callable[..., Command]) -> Command:
    """A command for two destinations; what became of it at one of them is over."""
    named = {"aggregate": Aggregate("subject/7"), "command_type": "subject.erase", "replaces": None}
    return replace(make_command(), **named, instruction_version=1, data=b'{"a": 1.10}', operation_id="op-7")


def again(outbox: OutboxDatabase, command: Command, ttl: timedelta | None = None) -> tuple[Emitted, bool]:
    with closing(outbox.connect(autocommit=True)) as connection:
        reissues = Reissues(connection, Tenant(outbox.tenant))
        about = delivery_id(command.command_id, CRM)
        return reissues.issue(about, draft_again(command, CRM, ttl), by="ada", reason="it expired")


@pytest.mark.requirement("DC-21")
def test_what_is_issued_again_is_a_new_command_of_the_same_content(
    any_outbox: OutboxDatabase, expired: Command
) -> None:
    emitted, is_new = again(any_outbox, expired)

    kept = "command_type, aggregate, operation_id, payload, replaces, instruction_version, capability"
    (row,) = any_outbox.rows(f"SELECT {kept} FROM waybill.outbox WHERE command_id = %s", emitted.command_id)
    assert is_new
    assert dict(emitted.sequences) == {"crm": 1}
    assert row == ("subject.erase", "subject/7", "op-7", expired.data, expired.command_id, 2, expired.capability)
    assert any_outbox.rows("SELECT reissued_by, reason FROM waybill.reissued WHERE tenant = %s", any_outbox.tenant) == [
        ("ada", "it expired")
    ]


@pytest.mark.requirement("DC-21")
def test_asked_again_it_is_the_same_command(outbox: OutboxDatabase, expired: Command) -> None:
    first, _ = again(outbox, expired)
    with ThreadPoolExecutor(4) as people:
        others = list(people.map(lambda _: again(outbox, expired), range(8)))

    assert others == [(first, False)] * 8
    assert outbox.rows("SELECT count(*) FROM waybill.outbox WHERE tenant = %s", outbox.tenant) == [(1,)]


def test_asked_by_many_at_one_time_it_is_one_command(outbox: OutboxDatabase, expired: Command) -> None:
    with ThreadPoolExecutor(4) as people:
        found = list(people.map(lambda _: again(outbox, expired), range(4)))

    assert sorted(is_new for _, is_new in found) == [False, False, False, True]
    assert len({emitted.command_id for emitted, _ in found}) == 1


def test_what_the_outbox_refuses_may_be_asked_for_again(outbox: OutboxDatabase, expired: Command) -> None:
    with pytest.raises(RefusedError) as refused:
        again(outbox, expired, timedelta(days=300))
    assert refused.value.rule == "ttl_out_of_range"
    with closing(outbox.connect(autocommit=True)) as connection:
        assert Reissues(connection, Tenant(outbox.tenant)).find(delivery_id(expired.command_id, CRM)) is None

    assert again(outbox, expired, timedelta(days=3))[1]
