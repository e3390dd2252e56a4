"""Rules about whole destinations: sharing, circuits, refusals, decisions, and what counts as stuck."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import FlowLimits
from waybill.delivery.core.classify import Failure, Verdict, judge_failure, judge_status
from waybill.delivery.core.controls.circuit import Circuit, CircuitRule, CircuitState, is_sick
from waybill.delivery.core.controls.refusals import RefusalGuard, RefusalRule
from waybill.delivery.core.controls.shares import Bucket, share_out, share_per_process
from waybill.delivery.core.controls.standing import Control, Decider, Standing, changed, in_force
from waybill.delivery.core.controls.stuck import STUCK_S, Sight, Watch
from waybill.kernel.clock import parse_instant

NOW = parse_instant("2026-01-01T00:00:00Z")
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


# Sharing


@pytest.mark.requirement("GW-17")
@pytest.mark.parametrize(
    ("total", "wants", "expected"),
    [
        (10, [], []),
        (10, [3, 4], [3, 4]),  # enough for all
        (10, [100, 2, 3], [5, 2, 3]),  # nobody takes it all
        (9, [100, 100, 100], [3, 3, 3]),
        (2, [100, 100, 100], [1, 1, 0]),
        (0, [1, 1], [0, 0]),
        (5, [0, 9], [0, 5]),
    ],
)
def test_what_is_scarce_is_shared_so_that_the_modest_get_what_they_want(
    total: int, wants: list[int], expected: list[int]
) -> None:
    assert share_out(total, wants) == expected


def test_whose_turn_it_is_moves_on() -> None:
    assert [share_out(1, [9, 9, 9], turn) for turn in range(3)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.requirement("GW-17")
@given(total=st.integers(0, 500), wants=st.lists(st.integers(0, 100), max_size=20), turn=st.integers(0, 50))
def test_a_share_is_max_min_fair(total: int, wants: list[int], turn: int) -> None:
    shares = share_out(total, wants, turn)

    assert sum(shares) == min(total, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    hungry = [share for share, want in zip(shares, wants, strict=True) if share < want]
    assert not hungry or min(hungry) >= max(shares) - 1


@pytest.mark.parametrize(
    ("owned", "partitions", "expected"), [(0, 6, 0.0), (2, 6, 10.0), (6, 6, 30.0), (9, 6, 30.0), (1, 0, 0.0)]
)
def test_a_process_takes_the_part_of_a_limit_that_its_partitions_are(
    owned: int, partitions: int, expected: float
) -> None:
    assert share_per_process(30.0, owned, partitions) == expected


@given(rate=st.floats(0.1, 1000.0), steps=st.lists(st.floats(0.001, 2.0), min_size=1, max_size=60))
def test_no_more_begin_than_a_rate_allows_and_little_is_saved(rate: float, steps: list[float]) -> None:
    bucket, mono, begun = Bucket(), 0.0, 0
    bucket.fill(rate, mono)
    for step in steps:
        mono += step
        for _ in range(bucket.fill(rate, mono)):
            bucket.spend()
            begun += 1

    assert begun <= rate * mono + max(1.0, rate * 0.25)


# Circuits


def failing(circuit: Circuit, times: int, *, aggregates: int = 5, mono: float = 0.0, good: int = 0) -> CircuitState:
    for number in range(times):
        circuit.failed(f"subject/{number % aggregates}", mono, good)
    return circuit.state


@pytest.mark.parametrize(
    ("times", "aggregates", "good", "expected"),
    [
        (19, 5, 0, CLOSED),  # too few
        (20, 5, 0, OPEN),
        (500, 4, 0, CLOSED),  # a few sick aggregates have their own backoff
        (20, 5, 2, OPEN),  # nine in ten
        (20, 5, 3, CLOSED),
    ],
)
def test_a_circuit_opens_when_nearly_everything_fails_everywhere(
    times: int, aggregates: int, good: int, expected: CircuitState
) -> None:
    circuit = Circuit()
    circuit.failed("subject/0", 0.0, 0)  # the window begins

    assert failing(circuit, times - 1, aggregates=aggregates, good=good) is expected


def test_failures_of_another_window_do_not_count() -> None:
    circuit = Circuit()
    failing(circuit, 19)

    assert failing(circuit, 1, mono=10.5) is CLOSED


def test_a_circuit_waits_longer_after_each_probe_that_failed_and_closes_with_the_first_that_did_not() -> None:
    circuit = Circuit(CircuitRule(first_wait_s=1.0, longest_wait_s=4.0))
    failing(circuit, 20)
    waits, mono = [], 0.0
    for _ in range(5):
        began = mono
        while circuit.look(mono, 0) is OPEN:
            mono += 0.5
        waits.append(mono - began)
        circuit.failed("subject/9", mono, 0)

    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert circuit.look(mono + 4.0, 0) is HALF_OPEN
    assert circuit.look(mono + 4.1, 1) is CLOSED
    assert failing(circuit, 20, mono=100.0, good=1) is OPEN
    assert circuit.look(101.0, 1) is HALF_OPEN, "waits begin anew"


def test_what_was_under_way_when_it_opened_does_not_make_it_wait_longer() -> None:
    circuit = Circuit()
    failing(circuit, 20)
    failing(circuit, 40, mono=0.9)

    assert circuit.look(1.0, 0) is HALF_OPEN


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (judge_failure(Failure.CONNECT), True),
        (judge_failure(Failure.TIMEOUT), True),
        (judge_status(500), True),
        (judge_status(503), True),
        (judge_status(408), False),  # about one delivery
        (judge_status(425), False),
        (judge_status(429), False),  # it lives
        (judge_status(422), False),
        (judge_failure(Failure.ANSWER), False),
    ],
)
def test_what_says_that_a_destination_is_sick(verdict: Verdict, expected: bool) -> None:
    assert is_sick(verdict) is expected


# Refusals


def test_a_mass_is_many_and_most_within_a_window() -> None:
    rule = RefusalRule(refusals=10, share=0.5, window_s=60.0)

    def refused(times: int, *, good: int = 0, apart_s: float = 0.0) -> bool:
        guard = RefusalGuard(rule)
        guard.refused(0.0, 0)
        return [guard.refused(number * apart_s, good) for number in range(1, times)][-1]

    assert not refused(9)
    assert refused(10)
    assert refused(10, good=10)
    assert not refused(10, good=11)
    assert not refused(10, apart_s=10.0)


def test_a_guard_forgets_when_people_have_looked() -> None:
    guard = RefusalGuard(RefusalRule(refusals=2))
    guard.refused(0.0, 0)
    guard.forget()

    assert not guard.refused(1.0, 0)


# Decisions


def test_a_decision_that_is_in_force_changes_nothing() -> None:
    ada, bob = (Decider(at=NOW + timedelta(hours=n), by=by, reason=by) for n, by in enumerate(("ada", "bob")))
    place = ("acme", "crm")

    first = changed(None, place, ada, standing=Standing.PAUSED)

    assert first == Control(tenant="acme", destination="crm", standing=Standing.PAUSED, at=NOW, by="ada", reason="ada")
    assert changed(first, place, bob, standing=Standing.PAUSED) is None
    assert changed(None, place, bob, standing=Standing.RUNNING) is None
    limited = changed(first, place, bob, limits=FlowLimits(in_flight=3))
    assert limited == replace(first, limits=FlowLimits(in_flight=3), at=bob.at, by="bob", reason="bob")


@pytest.mark.parametrize(
    ("declared", "decided", "expected"),
    [
        (FlowLimits(), FlowLimits(), FlowLimits()),
        (FlowLimits(rate_per_s=5.0), FlowLimits(), FlowLimits(rate_per_s=5.0)),
        (FlowLimits(rate_per_s=5.0), FlowLimits(rate_per_s=9.0), FlowLimits(rate_per_s=9.0)),
        (FlowLimits(rate_per_s=5.0), FlowLimits(in_flight=2), FlowLimits(rate_per_s=5.0, in_flight=2)),
    ],
)
def test_what_is_decided_at_run_time_is_in_force(
    declared: FlowLimits, decided: FlowLimits, expected: FlowLimits
) -> None:
    assert in_force(declared, decided) == expected


# Stuck

IDLE = Sight(base=5, position=9, held=3, unsettled=3, inflight=0, has_live_lane=True, is_excused=False)


@pytest.mark.requirement("OB-4")
@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (IDLE, True),
        (replace(IDLE, base=6), False),
        (replace(IDLE, position=10), False),
        (replace(IDLE, held=2), False),
        (replace(IDLE, inflight=1), False),
        (replace(IDLE, has_live_lane=False), False),  # every lane waits for its time, or for people
        (replace(IDLE, is_excused=True), False),  # paused, dead, no database
    ],
)
def test_a_partition_is_stuck_when_it_could_go_on_and_does_not(then: Sight, expected: bool) -> None:
    watch = Watch()
    assert not watch.look(IDLE, 0.0)
    assert not watch.look(IDLE, 5.0)
    assert not watch.look(IDLE, 4.9 + STUCK_S)

    assert watch.look(then, 5.0 + STUCK_S) is expected


def test_an_excuse_begins_the_time_anew() -> None:
    watch = Watch()
    watch.look(IDLE, 0.0)
    watch.look(replace(IDLE, is_excused=True), STUCK_S)

    assert not watch.look(IDLE, STUCK_S + 1.0)
    assert watch.look(IDLE, 2 * STUCK_S + 1.0)


def test_every_code_is_sick_or_throttles_or_ends_the_delivery() -> None:
    assert {code for code in ErrorCode if is_sick(Verdict(code=code, phase=judge_status(500).phase))} == {
        ErrorCode.TRANSIENT_NETWORK,
        ErrorCode.SOURCE_UNAVAILABLE,
    }
