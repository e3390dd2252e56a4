"""A listener's decisions, without a database: what is a repeat, what a receipt says."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import Envelope
from waybill.contracts.envelope_reader import parse
from waybill.contracts.receipt import ReceiptStatus, parse_receipt, render_receipt
from waybill.listener.core.dedup import Conflict, Identity, Repeat, Stored, decide_repeat
from waybill.listener.core.message import Done, Received, Refuse, build_receipt, operation_digest
from waybill.testing.ledger_listener import Behaviour

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def identity(delivery: int, operation: str, body: bytes, what: bytes) -> Identity:
    return Identity(
        delivery_id=uuid.UUID(int=delivery), operation_id=operation, body_digest=body, operation_digest=what
    )


STORED = Stored(
    identity=identity(1, "op", b"body", b"what"),
    receipt=b'{"status":"done","delivery_id":"00000000-0000-0000-0000-000000000001","operation_id":"op"}',
)


@pytest.mark.requirement("GW-4")
@pytest.mark.requirement("GW-5")
@pytest.mark.requirement("DC-16")
@pytest.mark.parametrize(
    ("incoming", "reason"),
    [
        (identity(1, "op", b"body", b"what"), None),
        (identity(1, "op", b"other body", b"what"), "body_differs"),
        # Another operation id under the same delivery is another body as well.
        (identity(1, "op2", b"other body", b"other"), "body_differs"),
        (identity(2, "op", b"other body", b"what"), None),
        (identity(2, "op", b"other body", b"other"), "operation_differs"),
    ],
)
def test_what_is_a_repeat(incoming: Identity, reason: str | None) -> None:
    known = decide_repeat(STORED, incoming)

    if reason is None:
        assert isinstance(known, Repeat)
        assert parse_receipt(known.receipt).delivery_id == str(incoming.delivery_id)
    else:
        assert isinstance(known, Conflict)
        assert (known.problem.code, known.problem.reason) == (ErrorCode.VERSION_CONFLICT, reason)


def test_a_repeat_of_the_same_delivery_is_byte_for_byte_what_was_stored() -> None:
    odd = replace(STORED, receipt=b'{ "status" : "done" }')

    assert decide_repeat(odd, STORED.identity) == Repeat(receipt=b'{ "status" : "done" }')


@given(left=st.tuples(st.text(), st.text(), st.text()), right=st.tuples(st.text(), st.text(), st.text()))
def test_two_things_to_do_never_share_a_digest(left: tuple[str, str, str], right: tuple[str, str, str]) -> None:
    def digest(parts: tuple[str, str, str]) -> bytes:
        command_type, aggregate, reference = (part.encode(errors="replace").decode() for part in parts)
        return operation_digest(replace(BARE, command_type=command_type, aggregate=aggregate, data_ref=reference))  # type: ignore[arg-type] # plain texts

    def plain(parts: tuple[str, str, str]) -> list[bytes]:
        return [part.encode(errors="replace") for part in parts]

    assert (digest(left) == digest(right)) == (plain(left) == plain(right))


BARE_BODY = (
    b'{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000001","source":"s","type":"t","subject":"a/b"'
    b',"time":"2026-01-01T00:00:00.000Z","datacontenttype":"application/json","tenant":"acme","destination":"crm"'
    b',"commandid":"00000000-0000-0000-0000-000000000002","operationid":"op","aggregatesequence":1,"required":true'
    b',"expiresat":"2026-01-08T00:00:00.000Z","instructionversion":1,"configversion":1,"capability":"c"'
    b',"capabilityversion":1,"envelopeversion":1,"dataform":"reference"}'
)
_parsed = parse(BARE_BODY)
assert isinstance(_parsed, Envelope)
BARE = _parsed


@pytest.mark.requirement("DC-17")
def test_a_receipt_carries_what_was_done_and_the_times_apart() -> None:
    command = Received(envelope=BARE, received_at=NOW)
    done = Done(
        source_version="v7", evidence="crm:1", count=0, digest="sha-256:00", occurred_at=NOW - timedelta(days=1)
    )

    receipt = build_receipt(command, done, NOW + timedelta(seconds=1))

    assert receipt.complete()
    assert parse_receipt(render_receipt(receipt)) == receipt
    assert (receipt.operation_id, receipt.count) == ("op", 0)
    assert receipt.occurred_at == NOW - timedelta(days=1)
    assert receipt.received_at == NOW
    assert receipt.executed_at == NOW + timedelta(seconds=1)


@pytest.mark.requirement("AM-4")
def test_a_handler_that_found_nothing_says_so_and_counts_nothing() -> None:
    gone = Done(status=ReceiptStatus.ABSENT, source_version="v7", evidence="crm:register", count=0)

    receipt = build_receipt(Received(envelope=BARE, received_at=NOW), gone, NOW)
    assert (receipt.status, receipt.complete(), receipt.contradicts_itself()) == (ReceiptStatus.ABSENT, True, False)
    with pytest.raises(ValueError, match="count is 0"):
        replace(gone, count=1)


def test_a_refusal_without_its_detail_says_nothing_of_it() -> None:
    refusal = Refuse(ErrorCode.POLICY_BLOCK, "legal_hold", detail="about Ms. X")

    assert str(refusal) == "POLICY_BLOCK: legal_hold"


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(), Behaviour(slow_ms=5, fail_first=1, fail_until=NOW, drop_first=2)],
    ids=["well", "badly"],
)
def test_a_ledgers_behaviour_survives_the_environment(behaviour: Behaviour) -> None:
    assert Behaviour.load(behaviour.environment()) == behaviour
