"""Virtual time for everybody: what happens in the world, and what each process's loop runs, in one order.

The order is a function of the seed. Time passes only when nobody has anything to do at the present instant.
"""

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from waybill.simulator.loop import SimLoop

__all__ = ["Timeline"]


class Timeline:
    """The one who steps."""

    def __init__(self, rng: Random) -> None:
        self.now = 0.0
        self.loops: list[SimLoop] = []
        self._rng = rng
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._serial = itertools.count()

    def at(self, when: float, act: Callable[..., object], *arguments: Any) -> None:
        """Let something happen at an instant."""
        heapq.heappush(self._events, (max(when, self.now), next(self._serial), act, arguments))

    def after(self, delay: float, act: Callable[..., object], *arguments: Any) -> None:
        """Let something happen after a while."""
        self.at(self.now + delay, act, *arguments)

    def run_until(self, condition: Callable[[], bool], within_s: float, every_s: float = 0.05) -> bool:
        """Let time pass until a condition holds, looked at every so often; return whether it did in time."""
        end = self.now + within_s
        look_at = self.now
        while True:
            if self.now >= look_at:
                if condition():
                    return True
                look_at = self.now + every_s
            if not self.step(min(end, look_at)) and self.now >= end:
                return condition()

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.step(end) or self.now < end:
            pass

    def step(self, end: float) -> bool:
        """Do the next thing that happens before `end`; without one go there and return False."""
        events, now = self._events, self.now
        if events and events[0][0] <= now:
            _, _, act, arguments = heapq.heappop(events)
            act(*arguments)
            return True
        soonest = events[0][0] if events else end
        running: list[SimLoop] = []
        for loop in self.loops:
            when = loop.next_at()
            if when is not None:
                if when <= now:
                    running.append(loop)
                elif when < soonest:
                    soonest = when
        if running:
            (running[0] if len(running) == 1 else self._rng.choice(running)).run()
            return True
        if soonest >= end:
            self.now = max(now, end)
            return False
        self.now = soonest
        return True
