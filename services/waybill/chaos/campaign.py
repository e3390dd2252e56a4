"""One campaign, from a stack that may not be up to a verdict.

The order: stack, database and keys, listener, proxy, apply, workers; then producers and strikes side by side; then
healing, waiting for rest, closing the books, judging. Rest is waited for as long as there is progress: nothing is
given up on because a machine is slow, and nothing waits for ever. Everything started is ended, whatever happens.
"""

import json
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from waybill import devstack
from waybill.chaos.books import read_books
from waybill.chaos.closing import Standing, close_books, stand
from waybill.chaos.core.schedule import StrikeKind
from waybill.chaos.core.verdict import Verdict, judge
from waybill.chaos.producers import Producers
from waybill.chaos.programs import WAYBILL, Program, WitnessProgram
from waybill.chaos.site import CONNECTOR, Site, Tell, apply, make_site, open_stack
from waybill.chaos.strikes import FaultLog, Strikers, Targets
from waybill.chaos.town import AGGREGATE_TYPE, TENANT, TOWN
from waybill.devstack import Wanted
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.kernel.errors import FabricError

__all__ = ["Options", "Report", "judge_again", "run_campaign"]

WORKERS: Final = 2
LOOK_S: Final = 1.0
#: A campaign that stands still for so long, in seconds, is at its end, whatever is left.
STILL_S: Final = 45.0
#: Attempts that kills and freezes of a campaign must have found under way, at least.
HITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for."""

    minutes: float = 2.0
    seed: int = 1
    commands: int = 20_000
    aggregates: int = 600
    brokers: int | None = None
    #: Leave the stack up although it was started for this.
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it."""

    verdict: Verdict
    options: Options
    stack: str
    folder: Path
    #: Transactions that the database's death interrupted.
    interrupted: int
    #: Workers that ended without being struck, and how.
    ended: Sequence[str]
    setup_s: float
    run_s: float
    heal_s: float


@dataclass(slots=True, kw_only=True)
class _Running:
    """What one campaign has going."""

    site: Site
    options: Options
    tell: Tell
    witnesses: Sequence[WitnessProgram]
    workers: Sequence[Program]
    guest: Program
    #: Where workers send to.
    ports: Collection[int]
    begins: Standing
    clock: SystemClock = field(default_factory=SystemClock)
    pause: threading.Event = field(default_factory=threading.Event)
    ended: list[str] = field(default_factory=list)

    def supervise(self) -> None:
        """Start again what ended by itself, and remember it."""
        for program in (*self.workers, self.guest):
            if (code := program.revive()) is not None:
                self.ended.append(f"{program.title} ended with exit code {code}")
                self.tell(f"{self.ended[-1]}; it was started again")


def run_campaign(options: Options, tell: Tell) -> Report:
    """Run one campaign.

    Raises:
        UnavailableError: something did not start; says what.
    """
    clock = SystemClock()
    began = clock.monotonic()
    with ExitStack() as undo:
        stack, is_ours = open_stack(options.brokers, tell)
        if is_ours and not options.keep:
            undo.callback(_take_down, stack.name, tell)
        running = _set_up(undo, make_site(stack, secrets.token_hex(4), tell), options, tell)
        under_fire = clock.monotonic()
        interrupted = _under_fire(running)
        healing = clock.monotonic()
        _heal(running)
        _await_rest(running)
        _close(running)
        return Report(
            verdict=judge(read_books(running.site.folder)),
            options=options,
            stack=stack.name,
            folder=running.site.folder,
            interrupted=interrupted,
            ended=tuple(running.ended),
            setup_s=round(under_fire - began, 1),
            run_s=round(healing - under_fire, 1),
            heal_s=round(clock.monotonic() - healing, 1),
        )


def judge_again(folder: Path) -> Verdict:
    """Judge the books of an earlier campaign."""
    return judge(read_books(folder))


def _take_down(name: str, tell: Tell) -> None:
    tell(f"taking the stack {name!r} down; its data stay (`waybill dev reset --name {name}` deletes them)")
    devstack.down(name)


# Before


def _set_up(undo: ExitStack, site: Site, options: Options, tell: Tell) -> _Running:
    folder = site.folder
    listener = undo.enter_context(WitnessProgram("listener", _listener_settings(folder, options.seed), folder))
    ports = listener.listening()
    proxy = undo.enter_context(WitnessProgram("proxy", _proxy_settings(folder, options.seed, ports), folder))
    ways = proxy.listening()
    apply(site, {name: f"http://127.0.0.1:{port}/" for name, port in ways.items()}, tell)
    workers = [_worker(site, f"worker-{number}") for number in range(WORKERS)]
    guest = _worker(site, "worker-guest")
    for program in (*workers, guest):
        undo.callback(program.leave)
    undo.callback(_ask_to_leave, (*workers, guest))
    begins = stand(site.stack.kafka)
    for worker in workers:
        worker.start()
    return _Running(
        site=site,
        options=options,
        tell=tell,
        witnesses=(proxy, listener),
        workers=workers,
        guest=guest,
        ports=frozenset(ways.values()),
        begins=begins,
    )


def _listener_settings(folder: Path, seed: int) -> Mapping[str, Any]:
    return {
        "seed": seed,
        "ledger": str(folder / "ledger.jsonl"),
        "memory": str(folder / "memory.sqlite"),
        "destinations": {place.name: {"profile": place.profile, "shares": dict(place.listener)} for place in TOWN},
    }


def _proxy_settings(folder: Path, seed: int, ports: Mapping[str, int]) -> Mapping[str, Any]:
    return {
        "seed": seed,
        "exchanges": str(folder / "exchanges.jsonl"),
        "destinations": {place.name: {"port": ports[place.name], "shares": dict(place.proxy)} for place in TOWN},
    }


def _worker(site: Site, slot: str) -> Program:
    words = ("worker", "run", "--tenant", TENANT, "--slot", f"{site.stack.name}-{slot}")
    return Program(slot, (*WAYBILL, *words), site.environ(), site.folder)


def _ask_to_leave(programs: Sequence[Program]) -> None:
    for program in programs:
        program.ask_to_leave()


# Under fire


def _under_fire(running: _Running) -> int:
    """Emit and strike until both are done; return how many transactions were interrupted."""
    options, seconds = running.options, running.options.minutes * 60
    producers = Producers(
        running.site.producer_dsn,
        running.site.run,
        options.seed,
        aggregates=options.aggregates,
        pace_per_s=options.commands / seconds * 1.02,
    )
    log = FaultLog(running.site.folder / "faults.jsonl", running.clock)
    targets = Targets(stack=running.site.stack, workers=running.workers, guest=running.guest, ports=running.ports)
    strikers = Strikers(targets, log, running.tell)
    running.tell(f"{options.commands} commands over {seconds:.0f} s to {len(TOWN)} destinations; striking begins")
    try:
        strikers.start(options.seed, seconds)
        while not (strikers.are_done() and producers.committed >= options.commands):
            running.pause.wait(LOOK_S)
            running.supervise()
            producers.check()
    finally:
        strikers.close()
        producers.close()
    running.tell(f"{producers.committed} commands committed, {log.count} strikes; healing")
    return producers.interrupted


# After


def _heal(running: _Running) -> None:
    """Start what is not running; restart a connector task that gave up."""
    for worker in running.workers:
        worker.thaw()
    devstack.up(Wanted(name=running.site.stack.name))
    for worker in running.workers:
        worker.start()
    _mend_connector(running)


def _mend_connector(running: _Running) -> None:
    api = ConnectApi(running.site.stack.connect_url, running.clock)
    try:
        status = api.status(CONNECTOR)
        if status is not None and any(task.state == "FAILED" for task in status.tasks):
            running.tell(f"a task of {CONNECTOR} failed and is restarted: {status.tasks[0].trace}")
            running.ended.append(f"a task of {CONNECTOR} failed")
            api.restart(CONNECTOR)
    except FabricError as error:
        running.tell(f"Connect cannot be asked: {error}")


def _await_rest(running: _Running) -> None:
    """Wait until every promise has ended, or nothing has moved for long."""
    ledger = running.site.folder / "ledger.jsonl"
    moved_at, size, last = running.clock.monotonic(), -1, None
    while running.clock.monotonic() - moved_at < STILL_S:
        running.supervise()
        now = ledger.stat().st_size
        if now == size:  # a look at everything costs seconds: only when nothing arrives
            left = close_books(running.site, running.begins)
            if not left:
                running.tell("at rest: every promise has ended")
                return
            if left != last:
                moved_at = running.clock.monotonic()
                running.tell(f"{left} promises have not ended")
                _mend_connector(running)
            last = left
        else:
            moved_at = running.clock.monotonic()
        size = now
        running.pause.wait(LOOK_S)
    running.tell(f"nothing moves and {last} promises have not ended")


def _close(running: _Running) -> None:
    """Let workers leave in order, then witnesses, then write down how everything stands."""
    _ask_to_leave((*running.workers, running.guest))
    for program in (*running.workers, running.guest, *running.witnesses):
        program.leave()
    close_books(running.site, running.begins)
    (running.site.folder / "campaign.json").write_text(json.dumps(_campaign(running), indent=2))


def _campaign(running: _Running) -> Mapping[str, Any]:
    options = running.options
    mischief = {kind for place in TOWN for kind in (*place.listener, *place.proxy)}
    return {
        "seed": options.seed,
        "aggregate_prefix": f"{AGGREGATE_TYPE}/{running.site.run}-",
        "destinations": {place.name: {"profile": place.profile, "on_unsettled": place.on_unsettled} for place in TOWN},
        "demands": {
            "faults": {**dict.fromkeys(sorted(mischief), 1), **{kind.value: 1 for kind in StrikeKind}},
            "hit_in_flight": HITS,
            "deliveries": options.commands,
            "aggregates": min(options.aggregates, options.commands // 4),
        },
    }
