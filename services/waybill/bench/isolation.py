"""Isolation: what the healthy wait longer because others are sick.

First the worker's most is measured with a listener that takes its time. Then, at a part of that most, pairs of
arms in worlds of their own: the healthy traffic alone, and the same healthy traffic beside a key that has half of
all commands, one aggregate in a hundred that always fails, and a destination that never answers. What is compared
is the time from the record in Kafka to the first byte at the listener, of the healthy deliveries only.
"""

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from waybill.bench.core.pairs import MIN_PAIRS, Arm, abba, percentile
from waybill.bench.deliver import DeliverOptions, bench_deliver, running_worker
from waybill.bench.workload import Offer, Stream
from waybill.bench.world import DESTINATION, InstantListener, Shape, World, instant_listener, make_world
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName

__all__ = ["IsolationOptions", "bench_isolation", "offers"]

HANGING: Final = DestinationName("hanging")
#: Shares of the measured most.
LEVELS: Final = (0.5, 0.9)
_WARM_UP_S: Final = 5.0
_PATIENCE_S: Final = 120.0
#: A producer this far behind its schedule did not make the load that was asked for.
_LATE_S: Final = 1.0
#: One command in so many goes to the destination that hangs, one aggregate in so many is dead.
_HANGS: Final = 50
_DEAD: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationOptions:
    """How much is compared."""

    #: Healthy deliveries measured in each arm.
    samples: int = 20_000
    pairs: int = 5
    listener_ms: int = 50
    aggregates: int = 2_000
    timeout_s: float = 30.0


def offers(aggregates: int, arm: Arm, seed: int) -> Iterator[Offer]:
    """Yield a stream's commands without end: healthy ones, and in the subject's arm the sick ones between them."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    for number in itertools.count():
        key = rng.randrange(aggregates)
        if arm is Arm.SUBJECT:
            yield Offer(DESTINATION, "hot", is_measured=False)
            if key % _DEAD == 0:
                yield Offer(DESTINATION, f"dead-{key}", is_measured=False)
                continue
            if number % _HANGS == 0:
                yield Offer(HANGING, str(key), is_measured=False)
        elif key % _DEAD == 0:
            continue
        yield Offer(DESTINATION, str(key))


def _per_healthy(arm: Arm) -> float:
    """Return how many commands a stream holds for each healthy one."""
    dead = 1 / (_DEAD - 1)
    return 1 + (1 + dead) + dead + 1 / _HANGS if arm is Arm.SUBJECT else 1.0


@dataclass(slots=True)
class _Level:
    """What was found at one part of the most."""

    share: float
    healthy_per_s: float
    #: How far the producer fell behind its schedule at worst.
    late_s: float = 0.0
    p99_ms: dict[Arm, list[float]] = field(default_factory=lambda: {Arm.SUBJECT: [], Arm.BASELINE: []})

    def report(self) -> dict[str, Any]:
        """Return the level's part of the report."""
        ratios = [a / b for a, b in zip(self.p99_ms[Arm.SUBJECT], self.p99_ms[Arm.BASELINE], strict=True)]
        return {
            "share_of_most": self.share,
            "healthy_per_s": round(self.healthy_per_s),
            "producer_late_s": round(self.late_s, 1),
            "healthy_p99_ratio": round(statistics.median(ratios), 2),
            "healthy_p99_ratio_each": [round(ratio, 2) for ratio in ratios],
            "p99_ms_beside_the_sick": [round(value, 1) for value in self.p99_ms[Arm.SUBJECT]],
            "p99_ms_alone": [round(value, 1) for value in self.p99_ms[Arm.BASELINE]],
        }


async def _measure(
    world: World, listener: InstantListener, level: _Level, arm: Arm, options: IsolationOptions
) -> list[float]:
    """Run one arm; return milliseconds from the record in Kafka to the first byte, of the healthy."""
    seconds = options.samples / level.healthy_per_s
    stream = Stream(world.stack.kafka, world.tenants[0], SystemClock())
    said = offers(options.aggregates, arm, seed=int(level.share * 100))
    rate = level.healthy_per_s * _per_healthy(arm)
    async with running_worker(world, listener.url):
        await asyncio.to_thread(stream.run, said, rate, _WARM_UP_S)
        warm = set(stream.produced)
        level.late_s = max(level.late_s, await asyncio.to_thread(stream.run, said, rate, seconds))
        wanted = stream.produced.keys() - warm
        arrivals: dict[str, float] = {}
        deadline = time.monotonic() + _PATIENCE_S
        while not wanted <= arrivals.keys():
            if time.monotonic() > deadline:
                missing = len(wanted - arrivals.keys())
                raise UnavailableError(f"{missing} healthy deliveries did not arrive within {_PATIENCE_S:.0f} s")
            arrivals |= (await asyncio.to_thread(listener.ledger))["arrivals"]
            await asyncio.sleep(0.2)
    return [(arrivals[delivery] - stream.produced[delivery]) * 1000 for delivery in wanted]


def _nowhere(line: str) -> None:
    """Say nothing: each arm makes a world of its own."""


def _arm(level: _Level, arm: Arm, options: IsolationOptions, progress: Callable[[str], None]) -> None:
    shape = Shape(destinations=(DESTINATION, HANGING), concurrency=512, timeout_s=options.timeout_s)
    with (
        make_world(_nowhere, shape=shape) as world,
        instant_listener(keep_arrivals=True, delay_ms=options.listener_ms) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        took = runner.run(_measure(world, listener, level, arm, options))
    p50, p99 = percentile(took, 50), percentile(took, 99)
    level.p99_ms[arm].append(p99)
    progress(f"{'beside the sick' if arm is Arm.SUBJECT else 'alone'}: p50 {p50:.0f} ms, p99 {p99:.0f} ms")


def bench_isolation(options: IsolationOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    progress(f"measuring the most with a listener of {options.listener_ms} ms")
    most = bench_deliver(
        DeliverOptions(commands=10_000, pairs=2, listener_ms=options.listener_ms, aggregates=options.aggregates),
        _nowhere,
    )["deliveries_per_s"]
    levels = [_Level(share, most * share / _per_healthy(Arm.SUBJECT)) for share in LEVELS]
    for level in levels:
        for number, arm in enumerate(abba(options.pairs)):
            progress(f"{level.share:.0%} of {most}/s, pair {number // 2 + 1} of {options.pairs}")
            _arm(level, arm, options, progress)
    return {
        "bench": "isolation",
        "commands": options.samples * options.pairs * 2 * len(levels),
        "pairs": options.pairs,
        "samples": options.samples,
        "listener_ms": options.listener_ms,
        "aggregates": options.aggregates,
        "timeout_s": options.timeout_s,
        "most_per_s": most,
        "levels": [level.report() for level in levels],
        "healthy_p99_ratio": max(level.report()["healthy_p99_ratio"] for level in levels),
        "invalid": options.pairs < MIN_PAIRS or any(level.late_s > _LATE_S for level in levels),
    }
