"""One batch: what counts, what is dropped, what is kept although it repeats."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.states import TRANSITIONS, State
from waybill.readmodel.core.fold import fold, illegal_move
from waybill.readmodel.core.records import AttemptRow, DeliveryRow, MoveRow, OutcomeSeen, Place, StateRow, Topic

AT = datetime(2026, 1, 1, tzinfo=UTC)
ID = uuid.UUID("11111111-1111-4111-8111-111111111111")
PLACE = Place(tenant="acme", topic=Topic.OUTCOMES, partition=0, offset=0, at=AT)


def named(name: str) -> uuid.UUID:
    return uuid.uuid5(ID, name)


def delivery(offset: int = 0) -> DeliveryRow:
    return DeliveryRow(
        tenant="acme",
        delivery_id=ID,
        command_id=named("command"),
        destination="crm",
        aggregate="subject/1",
        sequence=1,
        command_type="subject.erase",
        in_topic_at=AT,
        command_partition=0,
        command_offset=offset,
    )


def state(version: int, name: str) -> StateRow:
    return StateRow(
        tenant="acme",
        delivery_id=ID,
        command_id=named("command"),
        destination="crm",
        aggregate="subject/1",
        sequence=1,
        command_type="subject.erase",
        request_id=None,
        required=True,
        expires_at=AT,
        state=name,
        version=version,
        error_code=None,
        detail=None,
        attempt=version,
        next_due=None,
        owner="privacy",
        proof_level=None,
        profile="durable_idempotent",
        config_version=1,
        updated_at=AT,
    )


def attempt(name: str, *, kind: str = "attempt") -> AttemptRow:
    return AttemptRow(
        tenant="acme",
        attempt_id=named(name),
        delivery_id=ID,
        kind=kind,
        attempt=1,
        started_at=AT,
        ended_at=AT,
        phase="after_sending",
        http_status=200,
        error_code=None,
        detail=None,
        state_before="queued",
        state_after="acknowledged",
        version=1,
        receipt_status="done",
        source_version="1",
        count=1,
        digest=None,
        evidence="ledger/1",
        proof_level="receipt",
        profile="durable_idempotent",
        config_version=1,
        body_sha256="0" * 64,
        worker="here-0",
    )


def move(version: int = 1, before: str = "queued", after: str = "acknowledged") -> MoveRow:
    return MoveRow(
        tenant="acme",
        outcome_id=named(f"version {version}"),
        delivery_id=ID,
        version=version,
        state_before=before,
        state_after=after,
        error_code=None,
        detail=None,
        attempt_id=None,
        ended_at=AT,
    )


def test_command_that_the_relay_repeats_is_one_row_with_two_copies_at_its_first_place() -> None:
    rows = fold([delivery(offset=3), delivery(offset=8)])

    assert [replace(delivery(offset=3), copies=2)] == rows.deliveries


@given(versions=st.lists(st.integers(min_value=1, max_value=5), min_size=1))
def test_state_of_the_highest_version_counts_in_any_order(versions: list[int]) -> None:
    rows = fold([state(version, "retrying") for version in versions])

    assert [state(max(versions), "retrying")] == rows.states


@pytest.mark.requirement("AT-2")
def test_repeated_attempt_stays_and_a_record_read_twice_does_not() -> None:
    first, again = attempt("first"), attempt("again", kind="repeat")
    seen = [OutcomeSeen(place=PLACE, attempt=tried, move=None) for tried in (first, again, first)]

    assert [first, again] == fold(seen).attempts


def test_repeated_outcome_is_one_move_whose_new_attempt_is_kept() -> None:
    rows = fold(
        [
            OutcomeSeen(place=PLACE, attempt=attempt("first"), move=move()),
            OutcomeSeen(place=PLACE, attempt=attempt("second"), move=move()),
        ]
    )

    assert [move()] == rows.moves
    assert len(rows.attempts) == 2


@pytest.mark.requirement("RS-2")
def test_every_move_outside_the_table_is_an_anomaly_and_no_other() -> None:
    legal = {(before, after) for (before, _), after in TRANSITIONS.items()}
    pairs = [(before, after) for before in State for after in State]

    flagged = {pair for pair in pairs if illegal_move(PLACE, move(before=pair[0], after=pair[1])) is not None}

    assert flagged == set(pairs) - legal


def test_rows_count_what_they_would_write() -> None:
    rows = fold([delivery(), state(1, "acknowledged"), OutcomeSeen(place=PLACE, attempt=attempt("a"), move=move())])

    assert len(rows) == 4
