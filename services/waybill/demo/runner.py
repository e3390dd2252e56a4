"""One run of the demonstration, from a stack that may not be up to a verdict.

The order: stack, databases and keys, listeners (their addresses go into `fabric.yaml`), apply, workers and read model,
producers, a few repeats by hand, wait, judge. Everything started is ended in reverse order, whatever happens. Every
wait is bounded, and a wait that was too long says where the deliveries are stuck.
"""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from waybill import devstack
from waybill.contracts.states import State
from waybill.demo.books import collect, known_of, read_model, requests_by_delivery
from waybill.demo.core.script import plan_steps
from waybill.demo.core.verdict import Issued, Known, Verdict, judge
from waybill.demo.producers import Producers
from waybill.demo.programs import Program
from waybill.demo.repeats import repeat_commands
from waybill.demo.site import Site, apply, open_stack, prepare
from waybill.demo.town import DISPATCH, PRIVACY, TENANTS, Stop, stops
from waybill.devstack.ground import tail
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import UnavailableError
from waybill.readmodel import ReadModel
from waybill.testing.ledger_listener import Ledger, LedgerProcess

__all__ = ["Options", "Report", "Snapshot", "run_demo"]

LOOK_S: Final = 0.5
REPEATED: Final = 3
#: After everything is acknowledged, how long the repeats may take to come round.
REPEATS_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for."""

    commands: int = 400
    #: Leave the stack up although it was started for this.
    keep: bool = False
    #: Longest wait for everything to settle, after the last command was emitted.
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How things stand, for a view."""

    seconds: float
    committed: int
    planned: int
    #: Rows of tenant, destination, state, deliveries.
    counts: Sequence[Mapping[str, Any]]
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it."""

    verdict: Verdict
    stack: str
    rolled_back: int
    setup_s: float
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Where progress goes."""

    tell: Callable[[str], None]
    show: Callable[[Snapshot], None]


@dataclass(slots=True, kw_only=True)
class _Running:
    """What one run has going."""

    site: Site
    run: str
    options: Options
    view: View
    programs: list[Program]
    producers: Producers
    stops: tuple[Stop, ...]
    began: float
    clock: SystemClock = field(default_factory=SystemClock)
    pause: threading.Event = field(default_factory=threading.Event)

    def check(self) -> bool:
        """Look after programs and producers; return whether all is emitted."""
        for program in self.programs:
            program.check()
        return self.producers.check()


def run_demo(options: Options, view: View) -> Report:
    """Run it.

    Raises:
        UnavailableError: something did not start or did not settle in time; says what, and where things are stuck.
    """
    clock = SystemClock()
    began = clock.monotonic()
    with ExitStack() as undo:
        stack, is_ours = open_stack(view.tell)
        if is_ours and not options.keep:
            undo.callback(_take_down, stack.name, view.tell)
        running = _set_up(undo, stack, options, view)
        running.began = clock.monotonic()
        _settle(running)
        books = collect(running.site, running.producers)
        return Report(
            verdict=judge(books),
            stack=stack.name,
            rolled_back=running.producers.rolled_back,
            setup_s=round(running.began - began, 1),
            run_s=round(clock.monotonic() - running.began, 1),
        )


def _take_down(name: str, tell: Callable[[str], None]) -> None:
    tell(f"taking the stack {name!r} down; its data stay (`waybill dev reset --name {name}` deletes them)")
    devstack.down(name)


def _set_up(undo: ExitStack, stack: devstack.Stack, options: Options, view: View) -> _Running:
    site, run = prepare(stack, view.tell), secrets.token_hex(3)
    chosen = stops(options.commands)
    urls = _start_listeners(undo, site, chosen)
    for stop in chosen:
        view.tell(f"listener {stop.tenant}/{stop.name} at {urls[stop.key]}: {stop.story}")
    apply(site, urls, view.tell)
    programs = [
        undo.enter_context(Program(title, words, site.environ(), site.folder))
        for title, words in (
            *((f"worker of {tenant}", ["worker", "run", "--tenant", tenant]) for tenant in TENANTS),
            ("read model", ["read-model", "run", *(word for tenant in TENANTS for word in ("--tenant", tenant))]),
        )
    ]
    undo.callback(_ask_to_leave, programs)
    view.tell(f"started {', '.join(program.title for program in programs)}; emitting {options.commands} commands")
    producers = Producers(site, run, plan_steps(options.commands, run, privacy=PRIVACY, dispatch=DISPATCH))
    undo.callback(producers.close)
    return _Running(
        site=site,
        run=run,
        options=options,
        view=view,
        programs=programs,
        producers=producers,
        stops=chosen,
        began=0.0,
    )


def _ask_to_leave(programs: Sequence[Program]) -> None:
    for program in programs:
        program.ask_to_leave()


def _start_listeners(undo: ExitStack, site: Site, chosen: Sequence[Stop]) -> dict[tuple[str, str], str]:
    """Start them side by side; return where each takes requests."""
    processes = {}
    for stop in chosen:
        ledger = Ledger(
            dsn=site.listeners_dsn,
            tenant=stop.tenant,
            destination=stop.name,
            jwks=site.jwks(stop.tenant),
            behaviour=stop.behaviour,
        )
        process = LedgerProcess(ledger, log=site.folder / f"listener-{stop.tenant}-{stop.name}.log")
        undo.callback(process.stop)
        processes[stop.key] = process
    with ThreadPoolExecutor(len(processes)) as pool:
        list(pool.map(LedgerProcess.__enter__, processes.values()))
    return {key: process.url for key, process in processes.items()}


def _settle(running: _Running) -> None:
    """Wait until everything is emitted, repeated, and terminal."""
    with read_model(running.site) as model:
        while not running.check():
            _look(running, model)
        issued = running.producers.issued()
        running.view.tell(
            f"all committed: {running.producers.commands} commands, {len(issued)} deliveries; "
            f"{running.producers.rolled_back} transactions were rolled back"
        )
        deadline = running.clock.monotonic() + running.options.timeout_s
        repeated = _repeat(running, model, issued, deadline)
        running.view.tell(f"{len(repeated)} commands that are already done come out of the relay once more")
        ids = [each.delivery_id for each in issued]
        while len(found := known_of(model, ids)) < len(ids) or any(not _is_settled(known) for known in found.values()):
            _check_time(running, model, ids, deadline)
            _look(running, model)
        _await_repeats(running, model, ids, repeated)


def _is_settled(known: Known) -> bool:
    return known.state not in {State.QUEUED, State.DELIVERED, State.RETRYING}


def _look(running: _Running, model: ReadModel) -> None:
    running.check()
    mine = {each.delivery_id for each in running.producers.issued()}
    found = model.standing(list(mine))
    counts: dict[tuple[str, str, str], int] = {}
    for row in found:
        key = (row["tenant"], row["destination"], row["state"])
        counts[key] = counts.get(key, 0) + 1
    running.view.show(
        Snapshot(
            seconds=running.clock.monotonic() - running.began,
            committed=running.producers.commands,
            planned=running.options.commands,
            counts=[
                {"tenant": tenant, "destination": destination, "state": state, "deliveries": count}
                for (tenant, destination, state), count in sorted(counts.items())
            ],
            attempts=sum(row["attempts"] for row in found),
        )
    )
    running.pause.wait(LOOK_S)


def _repeat(running: _Running, model: ReadModel, issued: Sequence[Issued], deadline: float) -> dict[UUID, int]:
    """Have the commands of some finished deliveries repeated; return those with the requests each had before.

    Of those that took one request: what was retried left a row, by which a repeat is settled without being sent. So
    does what took long; both ways are the fabric's right.
    """
    theirs = {each.delivery_id: each.command_id for each in issued if each.tenant == DISPATCH}
    wanted = min(REPEATED, len(theirs))
    while True:
        known, before = known_of(model, list(theirs)), requests_by_delivery(running.site)
        done = [one for one in theirs if one in known and known[one].state is State.ACKNOWLEDGED]
        at_once = [one for one in done if before[one] == 1]
        if len(at_once) >= wanted or len(done) == len(theirs):
            chosen = (at_once or done)[:wanted]
            break
        _check_time(running, model, list(theirs), deadline)
        _look(running, model)
    repeat_commands(running.site.stack.kafka, DISPATCH, {theirs[one] for one in chosen})
    return {one: before[one] for one in chosen}


def _await_repeats(running: _Running, model: ReadModel, ids: Sequence[UUID], before: Mapping[UUID, int]) -> None:
    """Wait until the repeats came and every request is audited; what did not come in time, the verdict tells."""
    deadline = running.clock.monotonic() + REPEATS_S
    while running.clock.monotonic() < deadline:
        known, now = known_of(model, ids), requests_by_delivery(running.site)
        has_come = all(known[one].attempts > requests for one, requests in before.items())
        if has_come and all(known[one].attempts >= now[one] for one in ids):
            return
        _look(running, model)


def _check_time(running: _Running, model: ReadModel, ids: Sequence[UUID], deadline: float) -> None:
    """Say where deliveries are stuck when the time is over."""
    if running.clock.monotonic() < deadline:
        return
    found = model.standing(ids)
    stuck = [row for row in found if row["state"] != State.ACKNOWLEDGED]
    lines = [f"not settled within {running.options.timeout_s:.0f} s after the last commit"]
    if missing := len(ids) - len(found):
        lines.append(f"{missing} of {len(ids)} deliveries are not in the read model: see `waybill connect status`")
    lines += [
        f"{row['tenant']}/{row['destination']} {row['delivery_id']}: {row['state']}, {row['attempts']} attempts"
        f"{', ' + row['error_code'] if row['error_code'] else ''} (`waybill deliveries show {row['delivery_id']}`)"
        for row in stuck[:5]
    ]
    lines += [f"{program.log} ends with:\n{tail(program.log)}" for program in running.programs]
    raise UnavailableError("\n".join(lines))
