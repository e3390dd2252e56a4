"""One seed, from its schedule to its verdict: a time in which things go wrong, then a time in which nothing does.

In the second everything must come to rest; what is not at rest then, or breaks a law at any time, fails the seed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from waybill.contracts.decision import DecisionKind
from waybill.infra.log import silenced
from waybill.simulator.database import Copy
from waybill.simulator.inspection import inspect, is_at_rest, what_is_left
from waybill.simulator.laws import Violation
from waybill.simulator.network import CALM
from waybill.simulator.orders import partition_of
from waybill.simulator.rewinding import rebuild_soon, set_back
from waybill.simulator.schedule import Choice, Command, CommandKind, Fault, FaultKind, Rewind, Schedule, draw
from waybill.simulator.trace import Trace
from waybill.simulator.world import World

__all__ = ["REST_S", "Verdict", "play", "run_seed", "run_seeds", "settle"]

#: When nothing goes wrong any more everything comes to rest within so many seconds: transactions, sessions, leases
#: and drains run out, retries come due.
REST_S: Final = 60.0
_INSPECT_S: Final = 0.25
#: People look again after a rebuild: what an owner had not told when it ran may stand still only now.
_AGAIN_S: Final = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to."""

    seed: int
    violations: tuple[Violation, ...]
    #: Virtual seconds it took, attempts made, effects at listeners.
    seconds: float
    attempts: int
    effects: int
    trace: Trace

    @property
    def ok(self) -> bool:
        """Whether no law was broken."""
        return not self.violations


def run_seeds(first: int, count: int) -> Iterator[Verdict]:
    """Run seeds one after the other."""
    for seed in range(first, first + count):
        yield run_seed(seed)


def run_seed(seed: int, *, is_traced: bool = False) -> Verdict:
    """Run one seed; with a trace it costs more and does the same."""
    return play(draw(seed), is_traced=is_traced)


def play(schedule: Schedule, *, is_traced: bool = False) -> Verdict:
    """Run a schedule."""
    trace = Trace(is_kept=is_traced)
    with silenced():
        world = World(schedule.setup, trace)
        try:
            _chaos(world, schedule)
            settle(world)
        except Exception as error:  # a run that cannot go on is a finding with a trace, not the end of the campaign
            world.laws.broken("I4", f"the run ended by {type(error).__name__}: {error}")
        finally:
            world.close()
    return Verdict(
        seed=schedule.setup.seed,
        violations=tuple(world.laws.violations),
        seconds=world.timeline.now,
        attempts=world.laws.attempts,
        effects=len(world.laws.effects),
        trace=trace,
    )


def settle(world: World) -> None:
    """Let nothing go wrong any more, wait for rest, and check what must hold then."""
    world.trace("world", "from here on nothing goes wrong")
    world.network.weather = CALM
    for listener in world.listeners.values():
        listener.script.clear()
    world.apply()
    for process in world.processes.values():
        process.loop.fuse = None
        process.thaw()
    rested = world.timeline.run_until(lambda: _look(world), REST_S, _INSPECT_S)
    if not rested:
        world.laws.broken("I4", f"not at rest after {REST_S:.0f} s: {'; '.join(what_is_left(world))}")
    if not world.laws.violations:
        world.laws.check_rest()


def _look(world: World) -> bool:
    for failure in world.failures():
        world.laws.broken("I4", f"a worker broke: {failure}")
    world.start_all()
    inspect(world)
    return bool(world.laws.violations) or is_at_rest(world)


# The time in which things go wrong


def _chaos(world: World, schedule: Schedule) -> None:
    world.start_all()
    for command in schedule.commands:
        world.timeline.at(command.at_s, _emit, world, command)
    for choice in schedule.choices:
        world.timeline.at(choice.at_s, _decide, world, choice)
    for fault in schedule.faults:
        world.timeline.at(fault.at_s, _strike, world, fault)
    if schedule.rewind is not None:
        _rewind(world, schedule.rewind)
    world.timeline.run_until(lambda: _inspected(world), schedule.chaos_s, _INSPECT_S)


def _rewind(world: World, rewind: Rewind) -> None:
    copies: list[Copy] = []
    world.timeline.at(rewind.copied_s, lambda: copies.append(world.database.copy()))
    world.timeline.at(rewind.at_s, lambda: set_back(world, copies[0]))
    world.timeline.at(rewind.rebuilt_s, rebuild_soon, world)
    world.timeline.at(rewind.rebuilt_s + _AGAIN_S, rebuild_soon, world)


def _inspected(world: World) -> bool:
    for failure in world.failures():
        world.laws.broken("I4", f"a worker broke: {failure}")
    inspect(world)
    return bool(world.laws.violations)


def _emit(world: World, command: Command) -> None:  # noqa: C901 - one line per kind
    partition = partition_of(command.aggregate, world.setup.partitions)
    world.relay.hole(partition, command.hole)
    kind, aggregate = command.kind, command.aggregate
    world.trace("relay", f"{kind} {aggregate}")
    if kind is CommandKind.PLAIN:
        world.relay.emit(aggregate)
    elif kind is CommandKind.SHORT:
        world.relay.emit(aggregate, life=timedelta(seconds=command.number % 40 / 10))
    elif kind is CommandKind.POISON:
        world.relay.emit(aggregate, expiresat="soon")
    elif kind is CommandKind.UNREADABLE:
        world.relay.emit_unreadable(partition)
    elif kind is CommandKind.STRAY:
        world.relay.emit(aggregate, destinations=[*world.destinations, "nobody"])
    elif kind is CommandKind.EARLY:
        world.relay.emit(aggregate, configversion=str(world.config.version + 1))
    elif kind is CommandKind.REPLACING:
        earlier = [order for _, order in world.orders.deliveries() if order.aggregate == aggregate]
        if earlier:
            world.relay.emit(aggregate, replaces=str(earlier[-1].command_id))
        else:
            world.relay.emit(aggregate)
    elif kind is CommandKind.HIDDEN:
        transaction = world.relay.open_transaction()
        world.relay.emit(aggregate, transaction=transaction)
        world.timeline.after(command.number / 500, world.relay.end_transaction, transaction)
    else:
        earlier = world.orders.between(partition, 0, world.orders.end(partition))
        if earlier and not (chosen := earlier[command.number % len(earlier)]).is_unroutable:
            world.relay.repeat(chosen)


def _decide(world: World, choice: Choice) -> None:
    """Decide about a delivery as it is seen in the topics."""
    listed = list(world.orders.deliveries())
    if not listed:
        return
    destination, order = listed[choice.number % len(listed)]
    state = world.laws.states.get((destination, order.delivery_id(destination)))
    version = None
    if choice.kind is not DecisionKind.CANCEL:
        version = max(0, (0 if state is None else int(state["version"])) - choice.is_stale)
    world.decide(order, choice.kind, version=version, destination=destination)


def _strike(world: World, fault: Fault) -> None:
    world.trace("fault", f"{fault.kind} {fault.place} {fault.seconds:.3f} {fault.number}")
    _FAULTS[fault.kind](world, fault)


def _revive(world: World, name: str) -> None:
    if not world.processes[name].is_alive:
        world.start(name)


def _name(world: World, fault: Fault) -> str:
    names = list(world.processes)
    return names[fault.place % len(names)]


def _kill(world: World, fault: Fault) -> None:
    name = _name(world, fault)
    world.processes[name].kill()
    world.timeline.after(fault.seconds, _revive, world, name)


def _kill_in(world: World, fault: Fault) -> None:
    name = _name(world, fault)
    world.processes[name].loop.fuse = fault.number
    world.timeline.after(3.0 + fault.seconds, _revive, world, name)


def _stop(world: World, fault: Fault) -> None:
    name = _name(world, fault)
    process = world.processes[name]
    if process.is_running:
        process.stop()
        world.timeline.after(6.0 + fault.seconds, _revive, world, name)


def _evict(world: World, fault: Fault) -> None:
    members = world.groups.members()
    if members:
        group, member = members[fault.place % len(members)]
        world.groups.evict(group, member, fault.seconds)


def _outage(world: World, fault: Fault) -> None:
    before = world.network.weather
    world.network.weather = before.with_database_away()
    world.timeline.after(fault.seconds, _end_outage, world)


def _end_outage(world: World) -> None:
    if world.network.weather is not CALM:
        world.network.weather = world.setup.weather


def _apply(world: World, fault: Fault) -> None:
    """Add a destination; a command that names it comes before any process knows it."""
    world.apply(seen_after_s=fault.seconds, newcomer="late")
    world.relay.emit(f"subject/{fault.number % 3}")


def _clock(world: World, fault: Fault) -> None:
    clock = world.clocks[_name(world, fault)]
    clock.ahead += timedelta(seconds=fault.seconds)
    ahead = [each.ahead.total_seconds() for each in world.clocks.values()]
    world.laws.skew_s += max(*ahead, 0.0) - min(*ahead, 0.0)


_FAULTS: Final[dict[FaultKind, Callable[[World, Fault], None]]] = {
    FaultKind.KILL: _kill,
    FaultKind.KILL_IN: _kill_in,
    FaultKind.STOP: _stop,
    FaultKind.FREEZE: lambda world, fault: world.processes[_name(world, fault)].freeze(fault.seconds),
    FaultKind.EVICT: _evict,
    FaultKind.SHUFFLE: lambda world, fault: world.groups.shuffle(world.group(fault.place)),
    FaultKind.HOLD: lambda world, fault: world.database.hold_share(world.key(fault.place)),
    FaultKind.OUTAGE: _outage,
    FaultKind.CLOCK: _clock,
    FaultKind.APPLY: _apply,
}
