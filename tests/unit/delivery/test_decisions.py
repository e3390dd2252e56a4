"""What becomes of a decision, by where the delivery stands: one table per kind."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from waybill.contracts.codec import DECISION, AvroReader, AvroWriter, schema_text
from waybill.contracts.command import Command
from waybill.contracts.decision import (
    CANCELLABLE,
    Decision,
    DecisionKind,
    decision_id,
    read_decision,
    write_decision,
)
from waybill.contracts.envelope import Resolution
from waybill.contracts.states import BY_PEOPLE, State
from waybill.delivery.core.decisions import SkipIt, Void, judge
from waybill.delivery.core.gaps import CANCELLED, SUPERSEDED, entry_of
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.retry import EXPIRED, End, moved
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DestinationName, Tenant

DELIVERY = uuid.UUID("c2cf06e6-2b02-5e56-93a0-8f1e45542efa")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
CANCEL, REDRIVE, SKIP, SUPERSEDE = DecisionKind.CANCEL, DecisionKind.REDRIVE, DecisionKind.SKIP, DecisionKind.SUPERSEDE
ACKNOWLEDGE = DecisionKind.ACKNOWLEDGE


def decision(kind: DecisionKind, version: int | None = None) -> Decision:
    return Decision(
        decision_id=decision_id(DELIVERY, kind, version),
        tenant=Tenant("acme"),
        destination=DestinationName("crm"),
        aggregate=Aggregate("subject/1"),
        kind=kind,
        delivery_id=DELIVERY,
        sequence=None,
        version=version,
        states=CANCELLABLE if version is None else (),
        decided_by="ada",
        reason="asked for by its owner",
        decided_at=NOW,
        evidence="ticket:4711" if kind is ACKNOWLEDGE else None,
    )


@pytest.fixture
def standing(make_command: Callable[..., Command]) -> Callable[..., Item]:
    """A delivery as its row has it."""

    def make(state: State, version: int = 3, detail: str | None = None) -> Item:
        command = make_command()
        item = Item(40, command.aggregate, 7, (b"subject/1", [], b"{}"))
        item.command, item.delivery_id, item.expires_at = command, str(DELIVERY), command.expires_at
        item.state, item.version, item.detail = state, version, detail
        return item

    return make


@pytest.mark.requirement("DC-2")
@pytest.mark.parametrize(
    ("state", "sent", "why"),
    [
        (State.QUEUED, False, None),
        (State.RETRYING, False, None),  # its attempts never connected
        (State.QUEUED, True, "may_have_been_sent"),  # it finishes first
        (State.RETRYING, True, "may_have_been_sent"),
        (State.DELIVERED, True, "state_delivered"),
        (State.ACKNOWLEDGED, True, "state_acknowledged"),
        (State.AMBIGUOUS, True, "state_ambiguous"),
        (State.FAILED, False, "state_failed"),
        (State.EXCEPTION, False, "state_exception"),
        (State.DEAD_LETTER, False, "state_dead_letter"),
    ],
)
@pytest.mark.parametrize(("kind", "detail"), [(CANCEL, CANCELLED), (SUPERSEDE, SUPERSEDED)])
def test_cancelled_and_superseded_in_each_state(
    standing: Callable[..., Item], kind: DecisionKind, detail: str, state: State, sent: bool, why: str | None
) -> None:
    ruling = judge(decision(kind), standing(state), sent=sent, now=NOW)

    if why is not None:
        assert ruling == Void(why)
        return
    assert isinstance(ruling, End)
    assert (moved(state, ruling.move), ruling.detail) == (State.FAILED, detail)


def test_a_cancel_counts_only_in_the_states_it_names(standing: Callable[..., Item]) -> None:
    named = replace(decision(CANCEL), states=(State.QUEUED,))

    assert judge(named, standing(State.RETRYING), sent=False, now=NOW) == Void("state_retrying")


@pytest.mark.requirement("DC-21")
@pytest.mark.parametrize(
    ("state", "version", "detail", "late", "why"),
    [
        (State.FAILED, 3, "conflict", False, None),
        (State.DEAD_LETTER, 3, "used_up", False, None),
        (State.AMBIGUOUS, 3, "timeout", False, "state_ambiguous"),  # it may have happened
        (State.FAILED, 4, "conflict", False, "version_moved"),
        (State.FAILED, 3, "conflict", True, "expired"),  # afterwards a new command replaces it
        (State.FAILED, 3, EXPIRED, False, "ended_for_good"),
        (State.FAILED, 3, CANCELLED, False, "ended_for_good"),
        (State.FAILED, 3, SUPERSEDED, False, "ended_for_good"),
        (State.FAILED, 3, "unreadable", False, "ended_for_good"),
        (State.QUEUED, 3, None, False, "state_queued"),
        (State.RETRYING, 3, "busy", False, "state_retrying"),
        (State.ACKNOWLEDGED, 3, None, False, "state_acknowledged"),
        (State.EXCEPTION, 3, None, False, "state_exception"),
    ],
)
def test_redriven_in_each_state(
    standing: Callable[..., Item], state: State, version: int, detail: str | None, late: bool, why: str | None
) -> None:
    item = standing(state, version, detail)
    assert item.expires_at is not None
    now = item.expires_at + timedelta(seconds=1) if late else NOW

    ruling = judge(decision(REDRIVE, 3), item, sent=True, now=now)

    if why is not None:
        assert ruling == Void(why)
        return
    assert isinstance(ruling, End)
    assert moved(state, ruling.move) is State.QUEUED


@pytest.mark.parametrize("state", State)
def test_skipped_in_each_state(standing: Callable[..., Item], state: State) -> None:
    ended = {State.AMBIGUOUS, State.FAILED, State.EXCEPTION, State.DEAD_LETTER}

    ruling = judge(decision(SKIP, 3), standing(state), sent=True, now=NOW)

    assert ruling == (SkipIt() if state in ended else Void(f"state_{state}"))


@pytest.mark.requirement("AM-2")
@pytest.mark.parametrize(
    ("state", "version", "detail", "why"),
    [
        (State.AMBIGUOUS, 3, "timeout", None),
        (State.FAILED, 3, "conflict", None),
        (State.FAILED, 3, EXPIRED, None),  # done by hand, after its time
        (State.FAILED, 3, "unreadable", None),
        (State.DEAD_LETTER, 3, "used_up", None),
        (State.EXCEPTION, 3, None, None),
        (State.FAILED, 3, CANCELLED, "taken_back"),  # it was told that it is not to be done
        (State.FAILED, 3, SUPERSEDED, "taken_back"),
        (State.FAILED, 4, "conflict", "version_moved"),
        (State.QUEUED, 3, None, "state_queued"),
        (State.DELIVERED, 3, None, "state_delivered"),
        (State.RETRYING, 3, "busy", "state_retrying"),
        (State.ACKNOWLEDGED, 3, None, "state_acknowledged"),
    ],
)
def test_acknowledged_by_people_in_each_state(
    standing: Callable[..., Item], state: State, version: int, detail: str | None, why: str | None
) -> None:
    ruling = judge(decision(ACKNOWLEDGE, 3), standing(state, version, detail), sent=True, now=NOW)

    if why is not None:
        assert ruling == Void(why)
        return
    assert isinstance(ruling, End)
    assert (moved(state, ruling.move), ruling.detail) == (State.ACKNOWLEDGED, BY_PEOPLE)


@pytest.mark.requirement("AM-6")
@pytest.mark.parametrize("evidence", [None, ""])
def test_nothing_is_acknowledged_without_evidence(standing: Callable[..., Item], evidence: str | None) -> None:
    bare = replace(decision(ACKNOWLEDGE, 3), evidence=evidence)

    assert judge(bare, standing(State.AMBIGUOUS), sent=True, now=NOW) == Void("no_evidence")


def test_what_people_acknowledged_is_not_sent_again_and_told_final(standing: Callable[..., Item]) -> None:
    item = standing(State.ACKNOWLEDGED, 4, BY_PEOPLE)

    assert isinstance(judge(decision(REDRIVE, 4), item, sent=True, now=NOW), Void)
    assert entry_of(item, NOW).resolution is Resolution.FINAL


@pytest.mark.parametrize("kind", [REDRIVE, SKIP, ACKNOWLEDGE])
def test_what_moves_a_delivery_on_names_the_version_it_was_made_on(
    standing: Callable[..., Item], kind: DecisionKind
) -> None:
    assert judge(decision(kind), standing(State.FAILED), sent=False, now=NOW) == Void("no_version")
    assert judge(decision(kind, 2), standing(State.FAILED), sent=False, now=NOW) == Void("version_moved")


def test_a_resolution_is_redriven_but_never_cancelled(standing: Callable[..., Item]) -> None:
    item = standing(State.QUEUED, 3)
    item.is_resolution = True

    assert judge(decision(CANCEL), item, sent=False, now=NOW) == Void("state_queued")
    item.state = State.FAILED
    assert isinstance(judge(decision(REDRIVE, 3), item, sent=True, now=NOW), End)
    assert judge(decision(ACKNOWLEDGE, 3), item, sent=True, now=NOW) == Void("state_failed")


def test_a_decision_travels_whole() -> None:
    writer, reader = AvroWriter(DECISION, 7), AvroReader(DECISION, lambda _: schema_text(DECISION))
    made = [decision(CANCEL), decision(REDRIVE, 4), replace(decision(SKIP, 1), delivery_id=None, sequence=9)]
    made.append(replace(decision(ACKNOWLEDGE, 2), evidence_digest=f"sha256:{'a' * 64}"))

    assert [read_decision(write_decision(one, writer), reader) for one in made] == made


def test_a_decision_of_an_unknown_kind_is_refused() -> None:
    writer, reader = AvroWriter(DECISION, 7), AvroReader(DECISION, lambda _: schema_text(DECISION))
    unknown = writer.encode(
        {
            "decision_id": str(DELIVERY),
            "tenant": "acme",
            "destination": "crm",
            "aggregate": "subject/1",
            "kind": "forget",
            "delivery_id": str(DELIVERY),
            "decided_by": "ada",
            "reason": "why not",
            "decided_at": 0,
        }
    )

    with pytest.raises(ContractError):
        read_decision(unknown, reader)


def test_the_same_decision_about_the_same_is_one() -> None:
    ids = [decision_id(DELIVERY, kind, version) for kind in DecisionKind for version in (None, 1, 2)]

    assert len(set(ids)) == len(ids)
    assert decision(CANCEL).decision_id == decision(CANCEL).decision_id
