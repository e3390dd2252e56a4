"""What a worker says of its destinations for people to read, and what they are shown of it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from waybill.cli.destinations_now import worker_lines, workers_of
from waybill.contracts.fabric import RetryPolicy
from waybill.delivery.controls.report_statements import Said
from waybill.delivery.controls.reporting import Reporter, report_of
from waybill.delivery.controls.valve import Allowance, Valve
from waybill.delivery.core.classify import Failure, judge_failure, judge_status
from waybill.delivery.core.controls.circuit import CircuitState
from waybill.delivery.core.controls.reports import EVERY_S, SILENT_S, Report
from waybill.delivery.core.controls.standing import Standing
from waybill.kernel.clock import format_instant, parse_instant
from waybill.kernel.errors import InvariantBroken, TransientError
from waybill.testing.clocks import MovableClock

NOW = parse_instant("2026-01-01T00:00:00Z")
FREE = Allowance()
PLACE = ("acme", "crm")


class Group:
    """A destination with eight senders and one partition, as its valve and a report see it."""

    def __init__(self, clock: MovableClock) -> None:
        self.counts: Counter[str] = Counter()
        self.inflight = 0
        config = {"tenant": "acme", "name": "crm", "owner": "team-crm", "concurrency": 8, "retry": RetryPolicy()}
        self.target: Any = SimpleNamespace(name="crm", config=SimpleNamespace(**config))
        self.valve = Valve(self, self, clock)
        self.senders = SimpleNamespace(valve=self.valve)
        self.actors = {0: SimpleNamespace(is_taken=True)}

    def wake(self, most: int) -> None:
        """Nobody waits."""

    def fail(self, times: int) -> None:
        for number in range(times):
            self.counts["TRANSIENT_NETWORK"] += 1
            self.valve.told(judge_failure(Failure.CONNECT), f"subject/{number}")

    def serve(self) -> None:
        self.counts["ok"] += 1
        self.valve.ended()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(NOW)


@pytest.fixture
def group(clock: MovableClock) -> Any:
    return Group(clock)


def report(group: Any, clock: MovableClock) -> Report:
    return report_of(group, clock.now(), clock.monotonic())


def test_of_a_destination_that_nothing_holds_back_there_is_nothing_to_say(group: Any, clock: MovableClock) -> None:
    group.serve()
    group.valve.restrict(Standing.RUNNING, Allowance(rate_per_s=5.0), is_drained=False)

    assert report(group, clock).is_plain, "a limit is what people decided, not how it stands"


def test_a_circuit_is_told_from_its_first_failure_to_the_end_of_beginning_again(
    group: Any, clock: MovableClock
) -> None:
    group.fail(25)
    opened = report(group, clock)
    assert (opened.circuit, opened.held_back) == (CircuitState.OPEN, "dead")
    assert (opened.circuit_since, opened.next_probe) == (NOW, NOW + timedelta(seconds=1))

    clock.advance(1.0)
    group.valve.tick()
    assert report(group, clock).circuit is CircuitState.HALF_OPEN
    group.fail(1)
    again = report(group, clock)
    assert (again.circuit_since, again.next_probe) == (NOW, NOW + timedelta(seconds=3)), "a failed probe begins no new"

    clock.advance(2.0)
    group.valve.tick()
    group.serve()
    reopened = report(group, clock)
    assert (reopened.circuit, reopened.held_back, reopened.circuit_since) == (CircuitState.CLOSED, None, None)
    assert (reopened.ramp, reopened.concurrency, reopened.ramp_since) == (1, 8, NOW + timedelta(seconds=3))
    clock.advance(0.5)
    assert report(group, clock).ramp == 4
    clock.advance(1.0)
    assert report(group, clock).is_plain


def test_a_429_is_told_until_its_time_is_over(group: Any, clock: MovableClock) -> None:
    group.valve.told(judge_status(429, retry_after_s=30.0), "subject/1")
    clock.advance(5.0)
    group.valve.told(judge_status(429, retry_after_s=60.0), "subject/2")

    told = report(group, clock)
    assert (told.throttled_since, told.throttled_until) == (NOW, NOW + timedelta(seconds=65))
    assert (told.held_back, told.held_back_since) == ("throttled", NOW)

    clock.advance(60.0)
    group.valve.tick()
    assert report(group, clock).throttled_until is None


def test_what_people_decided_is_told_once_this_worker_follows_it(group: Any, clock: MovableClock) -> None:
    group.fail(25)
    clock.advance(0.5)
    group.valve.restrict(Standing.PAUSED, FREE, is_drained=False)

    told = report(group, clock)
    assert (told.held_back, told.held_back_since) == ("paused", NOW + timedelta(seconds=0.5))
    assert told.circuit is CircuitState.OPEN, "and the circuit is where it was"


# Saying it


class Sink:
    """Remembers what was said; may be away, or hang."""

    def __init__(self) -> None:
        self.said: list[Sequence[Report]] = []
        self.removed: list[str] = []
        self.fails: Exception | None = None
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def write(self, worker: str, reports: Sequence[Report]) -> None:
        await self.hangs.wait()
        if self.fails:
            raise self.fails
        self.said.append(reports)

    async def remove(self, worker: str) -> None:
        await self.hangs.wait()
        if self.fails:
            raise self.fails
        self.removed.append(worker)


class Saying:
    """A reporter and what it reports of."""

    def __init__(self, group: Any, clock: MovableClock) -> None:
        self.sink, self._groups = Sink(), {PLACE: group}
        self.reporter = Reporter(self.sink, clock, "w0")

    async def look(self) -> int:
        """Look once; return how often something was said until now."""
        self.reporter.look(self._groups)
        for _ in range(5):
            await asyncio.sleep(0)
        return len(self.sink.said)


async def test_it_is_said_when_it_changes_and_every_few_seconds(group: Any, clock: MovableClock) -> None:
    saying = Saying(group, clock)
    assert await saying.look() == 1
    assert saying.sink.said == [()], "nothing to say is said too: the worker is there"
    clock.advance(EVERY_S - 0.1)
    assert await saying.look() == 1
    group.fail(25)
    assert await saying.look() == 2
    clock.advance(0.4)
    assert await saying.look() == 2, "the same, some time later"
    clock.advance(EVERY_S)
    assert await saying.look() == 3


async def test_of_a_destination_without_a_partition_here_nothing_is_said(group: Any, clock: MovableClock) -> None:
    saying = Saying(group, clock)
    group.fail(25)
    group.actors[0].is_taken = False

    await saying.look()
    assert saying.sink.said == [()]


@pytest.mark.parametrize("error", [TransientError("away"), InvariantBroken("refused")], ids=["away", "refused"])
async def test_what_cannot_be_written_is_left_out(group: Any, clock: MovableClock, error: Exception) -> None:
    saying, ends_the_worker = Saying(group, clock), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ends_the_worker.append(context))
    saying.sink.fails = error
    assert await saying.look() == 0
    assert ends_the_worker == []
    await saying.reporter.leave()

    saying.sink.fails = None
    clock.advance(EVERY_S)
    assert await saying.look() == 1
    await saying.reporter.leave()
    assert saying.sink.removed == ["w0"]


async def test_nothing_piles_up_behind_a_database_that_hangs_and_leaving_does_not_wait_for_it(
    group: Any, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.delivery.controls.reporting._LEAVE_S", 0.01)
    saying = Saying(group, clock)
    saying.sink.hangs.clear()
    for _ in range(4):
        clock.advance(EVERY_S)
        assert await saying.look() == 0

    await saying.reporter.leave()
    assert saying.sink.removed == []


# Showing it


def said(worker: str, seconds: float = 1.0, *reports: Report) -> Said:
    documents = {(one.tenant, one.destination): one.document() for one in reports}
    return Said(worker=worker, age=timedelta(seconds=seconds), documents=documents)


THROTTLED = Report(
    tenant="acme",
    destination="crm",
    held_back="throttled",
    held_back_since=NOW,
    throttled_since=NOW,
    throttled_until=NOW + timedelta(seconds=30),
)


def stands(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    lines = worker_lines([{"tenant": "acme", "destination": "crm", "workers": workers}])
    return {line["worker"]: (line["partitions"], line["stands"], line["until"]) for line in lines}


def test_each_worker_is_shown_with_what_it_said_and_silence_is_not_health() -> None:
    everybody = [said("w0"), said("w1", 2.0, THROTTLED), said("w2", SILENT_S + 1, THROTTLED), said("elsewhere")]
    workers = workers_of(PLACE, everybody, {"w0": 3, "w1": 1, "w2": 1, "w3": 1})

    assert stands(workers) == {
        "w0": (3, "plain", None),
        "w1": (1, "throttled", format_instant(NOW + timedelta(seconds=30))),
        "w2": (1, "silent: nobody knows", None),
        "w3": (1, "gone", None),
    }
    assert [(worker["silent"], worker["circuit"] is None) for worker in workers] == [
        (False, False), (False, False), (True, True), (True, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (Report(tenant="acme", destination="crm", held_back="paused", held_back_since=NOW), ["paused"]),
        (
            Report(
                tenant="acme", destination="crm", held_back="dead", held_back_since=NOW,
                circuit=CircuitState.OPEN, circuit_since=NOW, next_probe=NOW,
            ),
            ["circuit open"],
        ),
        (
            Report(tenant="acme", destination="crm", circuit=CircuitState.HALF_OPEN, circuit_since=NOW, next_probe=NOW),
            ["circuit probing"],
        ),
        (
            Report(
                tenant="acme", destination="crm", throttled_since=NOW, throttled_until=NOW,
                circuit=CircuitState.OPEN, circuit_since=NOW, next_probe=NOW,
            ),
            ["throttled", "circuit open"],
        ),
        (
            Report(tenant="acme", destination="crm", ramp=2, concurrency=64, ramp_since=NOW),
            ["begins again: 2 of 64"],
        ),
    ],
    ids=["paused", "open", "probing", "both", "ramp"],
)  # fmt: skip
def test_a_line_for_everything_that_holds(told: Report, expected: list[str]) -> None:
    workers = workers_of(PLACE, [said("w0", 1.0, told)], {"w0": 1})
    lines = worker_lines([{"tenant": "acme", "destination": "crm", "workers": workers}])

    assert [line["stands"] for line in lines] == expected
    assert {line["since"] for line in lines} == {format_instant(NOW)}
