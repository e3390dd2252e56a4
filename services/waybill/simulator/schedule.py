"""A seed's schedule: what the world consists of, which commands come when, what goes wrong and when."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final

from waybill.contracts.decision import DecisionKind
from waybill.contracts.fabric import OnUnsettled, Profile
from waybill.delivery.failpoints import STEPS
from waybill.simulator.network import CALM, Weather
from waybill.simulator.workers import Setup

__all__ = ["Choice", "Command", "CommandKind", "Fault", "FaultKind", "Rewind", "Schedule", "draw"]


class FaultKind(StrEnum):
    """What goes wrong."""

    #: A process is killed, and started again after `seconds`.
    KILL = "kill"
    #: It is killed after `number` more callbacks of its loop.
    KILL_IN = "kill_in"
    #: It is asked to drain and end, and started again after `seconds`.
    STOP = "stop"
    #: It stands still for `seconds`.
    FREEZE = "freeze"
    #: One of its memberships ends without its knowledge; it learns after `seconds`.
    EVICT = "evict"
    #: A group's partitions are spread anew.
    SHUFFLE = "shuffle"
    #: A session holds an owner's row and stands still.
    HOLD = "hold"
    #: The database is away for `seconds`.
    OUTAGE = "outage"
    #: A process's wall clock is set by `seconds`.
    CLOCK = "clock"
    #: A destination is added, and processes see it after `seconds`.
    APPLY = "apply"


class CommandKind(StrEnum):
    """What comes out of the outbox."""

    PLAIN = "plain"
    #: Expires soon.
    SHORT = "short"
    #: Names its destinations and cannot be read further: ends in its lanes.
    POISON = "poison"
    #: Names nobody that can be read: intake's.
    UNREADABLE = "unreadable"
    #: Names a destination that does not exist beside one that does: intake's and the other's.
    STRAY = "stray"
    #: Resolved against a configuration that comes later.
    EARLY = "early"
    #: Replaces an earlier command of its aggregate.
    REPLACING = "replacing"
    #: The relay publishes an earlier record again.
    REPEAT = "repeat"
    #: Somebody's transaction hides what follows for a while.
    HIDDEN = "hidden"


#: After the last possible byte a request is at most this long on its way: a listener's "not done" is then final.
SETTLE_S: Final = 20.0
_PROFILES: Final = (Profile.DURABLE_IDEMPOTENT, Profile.DURABLE_IDEMPOTENT, *Profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    kind: FaultKind
    #: Which process, group or partition: the place in a list, wrapped around.
    place: int = 0
    seconds: float = 0.0
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, or what the log has instead."""

    at_s: float
    kind: CommandKind
    aggregate: str
    #: Offsets left out before it.
    hole: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What people decide about some delivery, on the version they see."""

    at_s: float
    kind: DecisionKind
    number: int
    #: They have seen one version less than there is.
    is_stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The database is set back to a copy of itself, and rebuilt."""

    copied_s: float
    at_s: float
    rebuilt_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One run."""

    setup: Setup
    #: From here on nothing goes wrong any more.
    chaos_s: float
    commands: tuple[Command, ...]
    faults: tuple[Fault, ...] = field(default_factory=tuple)
    choices: tuple[Choice, ...] = field(default_factory=tuple)
    rewind: Rewind | None = None


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = Random(f"schedule/{seed}")  # noqa: S311 - dice, no secrets
    chaos_s = rng.uniform(1.0, 6.0)
    workers = rng.choice((1, 2, 2, 3))
    faults = _faults(rng, chaos_s)
    strikes = _strikes(rng, workers)
    repeats = rng.random() < 0.3
    bears = Random(f"profile/{seed}")  # noqa: S311 - dice, no secrets
    setup = Setup(
        seed=seed,
        workers=workers,
        partitions=rng.choice((1, 2, 2, 3)),
        destinations=("crm", "erp") if rng.random() < 0.3 else ("crm",),
        with_intake=rng.random() < 0.3,
        most=rng.choice((1, 2, 5, 50)),
        max_records=rng.choice((2, 6, 4000)),
        concurrency=rng.choice((1, 2, 8)),
        hot_attempts=rng.choice((0, 1, 3)),
        total_s=rng.choice((1.0, 3.0, 5.0)),
        session_s=rng.choice((0.6, 1.5, 4.0)),
        weather=_weather(rng),
        strikes=strikes,
        on_unsettled=Random(f"unsettled/{seed}").choice(tuple(OnUnsettled)),  # noqa: S311 - dice, no secrets
        profile=bears.choice(_PROFILES),
        settle_after_s=bears.choice((None, SETTLE_S)),
    )
    commands = _commands(rng, chaos_s, repeats=repeats, short=not repeats or bears.random() < 0.5)
    replacing = Random(f"replacing/{seed}")  # noqa: S311 - dice, no secrets
    if not repeats and replacing.random() < 0.3:
        commands = tuple(_replacing(command, replacing) for command in commands)
    choices = () if repeats else _choices(Random(f"choices/{seed}"), chaos_s)  # noqa: S311 - dice, no secrets
    seeing = Random(f"evidence/{seed}")  # noqa: S311 - dice, no secrets
    choices = tuple(_seen(choice, seeing) for choice in choices)
    return Schedule(
        setup=setup,
        chaos_s=chaos_s,
        commands=commands,
        faults=faults,
        choices=choices,
        rewind=_rewind(seed, chaos_s) if setup.profile is Profile.DURABLE_IDEMPOTENT else None,
    )


def _replacing(command: Command, rng: Random) -> Command:
    """Let some plain commands replace an earlier one."""
    is_chosen = command.kind is CommandKind.PLAIN and rng.random() < 0.4
    return replace(command, kind=CommandKind.REPLACING) if is_chosen else command


def _choices(rng: Random, chaos_s: float) -> tuple[Choice, ...]:
    found = [
        Choice(
            at_s=rng.uniform(0.2, chaos_s + 3.0),
            kind=rng.choice((DecisionKind.CANCEL, DecisionKind.CANCEL, DecisionKind.REDRIVE, DecisionKind.SKIP)),
            number=rng.randrange(1000),
            is_stale=rng.random() < 0.2,
        )
        for _ in range(rng.choice((0, 0, 1, 3, 8)))
    ]
    return tuple(sorted(found, key=lambda choice: choice.at_s))


def _seen(choice: Choice, rng: Random) -> Choice:
    """Let people have seen that what they would send again, or skip, was done."""
    is_chosen = choice.kind is not DecisionKind.CANCEL and rng.random() < 0.4
    return replace(choice, kind=DecisionKind.ACKNOWLEDGE) if is_chosen else choice


def _rewind(seed: int, chaos_s: float) -> Rewind | None:
    """Draw from dice of its own: the other draws of a seed stay what they are.

    Not with listeners that forget: an intent that is lost with its owner before a transaction named its beacon is a
    known limit (ADR 0049).
    """
    rng = Random(f"rewind/{seed}")  # noqa: S311 - dice, no secrets
    if rng.random() > 0.1:
        return None
    copied_s, at_s = sorted((rng.uniform(0.0, chaos_s), rng.uniform(0.0, chaos_s)))
    return Rewind(copied_s=copied_s, at_s=at_s, rebuilt_s=at_s + rng.uniform(0.0, 8.0))


def _faults(rng: Random, chaos_s: float) -> tuple[Fault, ...]:
    kinds = rng.choices(list(_OFTEN), list(_OFTEN.values()), k=rng.choice((0, 1, 1, 2, 3)))
    found = []
    for kind in kinds:
        for _ in range(rng.choice((1, 1, 2, 3))):
            fault = Fault(
                at_s=rng.uniform(0.1, chaos_s),
                kind=kind,
                place=rng.randrange(6),
                seconds=_SECONDS[kind](rng),
                number=rng.randrange(1, 400),
            )
            found.append(fault)
    return tuple(sorted(found, key=lambda fault: fault.at_s))


_OFTEN: Final = {
    FaultKind.KILL: 2,
    FaultKind.KILL_IN: 2,
    FaultKind.STOP: 1,
    FaultKind.FREEZE: 3,
    FaultKind.EVICT: 4,
    FaultKind.SHUFFLE: 3,
    FaultKind.HOLD: 1,
    FaultKind.OUTAGE: 1,
    FaultKind.CLOCK: 1,
    FaultKind.APPLY: 1,
}
_SECONDS: Final[dict[FaultKind, Callable[[Random], float]]] = {
    FaultKind.KILL: lambda rng: rng.uniform(0.0, 4.0),
    FaultKind.KILL_IN: lambda rng: rng.uniform(0.0, 4.0),
    FaultKind.STOP: lambda rng: rng.uniform(0.0, 2.0),
    FaultKind.FREEZE: lambda rng: rng.choice((0.3, 2.0, 4.0, 6.0, 12.0)) * rng.uniform(0.5, 1.0),
    FaultKind.EVICT: lambda rng: rng.uniform(0.0, 6.0),
    FaultKind.SHUFFLE: lambda _: 0.0,
    FaultKind.HOLD: lambda _: 0.0,
    FaultKind.OUTAGE: lambda rng: rng.uniform(0.2, 4.0),
    FaultKind.CLOCK: lambda rng: rng.uniform(-3.0, 3.0),
    FaultKind.APPLY: lambda rng: rng.uniform(0.0, 2.0),
}


def _strikes(rng: Random, workers: int) -> dict[tuple[str, str, int], float | None]:
    if rng.random() > 0.4:
        return {}
    return {
        (f"w{rng.randrange(workers)}", rng.choice(STEPS), rng.choice((1, 1, 2, 3, 8))): (
            None if rng.random() < 0.4 else rng.choice((0.5, 2.0, 5.0, 10.0))
        )
        for _ in range(rng.choice((1, 2, 3)))
    }


def _weather(rng: Random) -> Weather:
    if rng.random() < 0.2:
        return CALM

    def often(likelihood: float, most: float) -> float:
        return rng.uniform(0.0, most) if rng.random() < likelihood else 0.0

    return Weather(
        slow=often(0.4, 0.3),
        slow_s=rng.choice((0.3, 1.5, 4.0)),
        transaction_fails=often(0.2, 0.1),
        transaction_lost=often(0.2, 0.1),
        database_fails=often(0.2, 0.3),
        answer_lost=often(0.2, 0.3),
        listener_fails=often(0.7, 0.5),
        listener_refuses=often(0.2, 0.05),
    )


def _commands(rng: Random, chaos_s: float, *, repeats: bool, short: bool) -> tuple[Command, ...]:
    aggregates = [f"subject/{number}" for number in range(rng.choice((1, 2, 4)))]
    rare: list[CommandKind] = [CommandKind.POISON, CommandKind.UNREADABLE, CommandKind.STRAY, CommandKind.HIDDEN]
    rare.append(CommandKind.EARLY)
    rare = rng.sample(rare, rng.choice((0, 0, 1, 2)))
    if repeats:
        rare += [CommandKind.REPEAT] * 3
    if short:
        rare += [CommandKind.SHORT] * 3
    found = []
    for _ in range(rng.choice((3, 8, 16))):
        command = Command(
            at_s=rng.uniform(0.0, chaos_s) if rng.random() < 0.7 else 0.0,
            kind=rng.choice(rare) if rare and rng.random() < 0.25 else CommandKind.PLAIN,
            aggregate=rng.choice(aggregates),
            hole=rng.randrange(1, 4) if rng.random() < 0.2 else 0,
            number=rng.randrange(1000),
        )
        found.append(command)
    return tuple(sorted(found, key=lambda command: command.at_s))
