"""One campaign, from a stack that may not be up to a verdict.

The order: stack, database and keys, listener, proxy, apply, workers; then producers and strikes side by side; then
healing, waiting for rest, closing the books, judging. Everything started is ended, whatever happens.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from waybill import devstack
from waybill.chaos.books import read_books
from waybill.chaos.closing import close_books, stand
from waybill.chaos.core.schedule import WORKERS as STRUCK_WORKERS
from waybill.chaos.core.schedule import services
from waybill.chaos.core.verdict import Verdict, judge
from waybill.chaos.producers import Load, Producers
from waybill.chaos.programs import Program, WitnessProgram
from waybill.chaos.rest import await_rest, heal, mend_relay
from waybill.chaos.running import Options, Running
from waybill.chaos.site import Site, Tell, apply, make_site, open_stack
from waybill.chaos.strikes import FaultLog, Strikers, Targets
from waybill.chaos.town import AGGREGATE_TYPE, TENANT, TOWN
from waybill.devstack.ground import WAYBILL
from waybill.infra.clock import SystemClock

__all__ = ["Options", "Report", "judge_again", "run_campaign"]

WORKERS: Final = 2
WARM_UP_S: Final = 60.0
#: Part of a campaign's time in which everything is committed; the rest is for what the database's death held up.
COMMITTED_IN: Final = 0.9
#: Attempts that kills and freezes of a campaign must have found under way, at least.
HITS: Final = 3


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
        heal(running)
        is_at_rest = await_rest(running)
        _close(running, is_at_rest=is_at_rest)
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


def _set_up(undo: ExitStack, site: Site, options: Options, tell: Tell) -> Running:
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
    return Running(
        site=site,
        options=options,
        tell=tell,
        witnesses=(proxy, listener),
        workers=workers,
        guest=guest,
        ports=frozenset(ways.values()),
        begins=begins,
        log=FaultLog(folder / "faults.jsonl", SystemClock()),
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


def _under_fire(running: Running) -> int:
    """Emit and strike until both are done; return how many transactions were interrupted."""
    options, seconds = running.options, running.options.minutes * 60
    load = Load(
        seed=options.seed, commands=options.commands, aggregates=options.aggregates, seconds=seconds * COMMITTED_IN
    )
    producers = Producers(running.site.producer_dsn, running.site.run, load)
    targets = Targets(
        stack=running.site.stack,
        workers=running.workers,
        guest=running.guest,
        ports=running.ports,
        mend=lambda: mend_relay(running),
    )
    strikers = Strikers(targets, running.log, running.tell)
    running.tell(f"{options.commands} commands over {seconds:.0f} s to {len(TOWN)} destinations")
    try:
        _warm_up(running)
        strikers.start(options.seed, seconds)
        while not all([strikers.are_done(), producers.are_done()]):
            running.look()
    finally:
        strikers.close()
        producers.close()
    running.tell(f"{producers.committed} commands committed, {running.log.count} strikes; healing")
    return producers.interrupted


def _warm_up(running: Running) -> None:
    """Wait until the first delivery is there, so that strikes hit work; not for ever."""
    deadline = running.clock.monotonic() + WARM_UP_S
    while not running.ledger.stat().st_size and running.clock.monotonic() < deadline:
        running.look()


# After


def _close(running: Running, *, is_at_rest: bool) -> None:
    """Let workers leave in order, then witnesses; write down how everything stands unless that was written at rest."""
    _ask_to_leave((*running.workers, running.guest))
    for program in (*running.workers, running.guest, *running.witnesses):
        program.leave()
    if not is_at_rest:
        close_books(running.site, running.begins)
    (running.site.folder / "campaign.json").write_text(json.dumps(_campaign(running), indent=2))


def _campaign(running: Running) -> Mapping[str, Any]:
    options = running.options
    struck = (*STRUCK_WORKERS, *services(running.site.stack.brokers))
    mischief = {kind for place in TOWN for kind in (*place.listener, *place.proxy)}
    return {
        "seed": options.seed,
        "aggregate_prefix": f"{AGGREGATE_TYPE}/{running.site.run}-",
        "destinations": {place.name: {"profile": place.profile, "on_unsettled": place.on_unsettled} for place in TOWN},
        "demands": {
            "faults": {**dict.fromkeys(sorted(mischief), 1), **{kind.value: 1 for kind in struck}},
            "hit_in_flight": HITS,
            "deliveries": options.commands,
            "aggregates": min(options.aggregates, options.commands // 4),
        },
    }
