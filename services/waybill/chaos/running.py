"""What was asked of a campaign, and what one has going."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from waybill.chaos.closing import Standing
from waybill.chaos.core.verdict import CRASH
from waybill.chaos.programs import Program, WitnessProgram
from waybill.chaos.site import Site, Tell
from waybill.chaos.strikes import FaultLog
from waybill.infra.clock import SystemClock

__all__ = ["Options", "Running"]

LOOK_S: Final = 1.0
#: How a worker ends that does not find what it needs to start.
UNAVAILABLE: Final = 3


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


@dataclass(slots=True, kw_only=True)
class Running:
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
    log: FaultLog
    clock: SystemClock = field(default_factory=SystemClock)
    pause: threading.Event = field(default_factory=threading.Event)
    ended: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """The listener's book."""
        return self.site.folder / "ledger.jsonl"

    def look(self) -> None:
        """Wait a moment, then start again what ended by itself."""
        self.pause.wait(LOOK_S)
        self.supervise()

    def supervise(self) -> None:
        """Start again what ended by itself, and remember it."""
        for program in (*self.workers, self.guest):
            if (code := program.revive()) is not None:
                self.ended.append(f"{program.title} ended with exit code {code}")
                self.tell(f"{self.ended[-1]}; it was started again")
                if code != UNAVAILABLE:
                    self.log.note(CRASH, program.title, self.log.now())
