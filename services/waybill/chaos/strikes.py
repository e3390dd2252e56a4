"""Doing to workers and services what the schedule says, and writing down when.

Two threads work off their rows side by side. What is killed is started again, as a supervisor would: a worker under
its own slot, a service by `waybill dev up`. A row ends when its time is over and its first round is complete, so that
every kind of strike has come. Only processes of the campaign or of its stack are touched, by their id.
"""

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import psutil

from waybill import devstack
from waybill.chaos.core.schedule import WORKERS, Strike, StrikeKind, services, strikes
from waybill.chaos.programs import Program
from waybill.devstack import Stack, Wanted
from waybill.devstack.processes import find
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock

__all__ = ["FaultLog", "Strikers", "Targets"]

GONE_WITHIN_S: Final = 20.0
LOOK_S: Final = 0.2
#: A kill that finds nothing under way teaches little: it waits so long for its victim to send. A freeze waits less, so
#: that workers are struck while a service is away too.
AT_WORK_WITHIN_S: Final = {StrikeKind.WORKER_KILL: 60.0, StrikeKind.WORKER_FREEZE: 5.0}


class FaultLog:
    """The book of strikes."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = path.open("a")
        self._clock = clock
        self._lock = threading.Lock()
        self.count = 0

    def now(self) -> float:
        """Return wall-clock seconds, the same clock as the witnesses'."""
        return self._clock.now().timestamp()

    def note(self, kind: str, target: str, at: float, **more: Any) -> None:
        """Append one strike, after it."""
        line = {"kind": kind, "target": target, "at": at, "until": self.now(), **more}
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self.count += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What may be struck."""

    stack: Stack
    workers: Sequence[Program]
    #: The worker that joins and leaves.
    guest: Program
    #: Where workers send to.
    ports: Collection[int]
    #: Starts connector tasks again that gave up, as a supervisor does; called when a service is back.
    mend: Callable[[], None]


class Strikers:
    """The two rows of one campaign."""

    def __init__(self, targets: Targets, log: FaultLog, tell: Callable[[str], None]) -> None:
        self._stack, self._workers, self._guest = targets.stack, targets.workers, targets.guest
        self._ports, self._mend, self._log, self._tell = targets.ports, targets.mend, log, tell
        self._clock = SystemClock()
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._acts: Mapping[StrikeKind, Callable[[Strike], None]] = {
            StrikeKind.WORKER_KILL: self._kill_worker,
            StrikeKind.WORKER_FREEZE: self._freeze_worker,
            StrikeKind.MEMBER_CHURN: self._churn,
            StrikeKind.CONNECT_KILL: self._kill_connect,
            StrikeKind.BROKER_KILL: self._kill_broker,
            StrikeKind.BROKER_FREEZE: self._freeze_broker,
            StrikeKind.POSTGRES_KILL: self._kill_postgres,
        }

    def start(self, seed: int, seconds: float) -> None:
        """Begin to strike, for so many seconds and at least a round."""
        end = self._clock.monotonic() + seconds
        for row in (WORKERS, services(self._stack.brokers)):
            self._threads.append(threading.Thread(target=self._strike, args=(seed, row, end), daemon=True))
        for thread in self._threads:
            thread.start()

    def are_done(self) -> bool:
        """Whether both rows are done; raises what one of them raised."""
        if self._failed is not None:
            raise self._failed
        return not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """End both rows as soon as what is under way allows."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _strike(self, seed: int, row: tuple[StrikeKind, ...], end: float) -> None:
        try:
            for strike in strikes(seed, row):
                if strike.round and self._clock.monotonic() + strike.pause_s + strike.lasts_s > end:
                    return
                if self._stop.wait(strike.pause_s):
                    return
                self._acts[strike.kind](strike)
        except BaseException as error:  # shown by the thread that waits
            self._failed = error

    # Workers

    def _victim(self, strike: Strike) -> tuple[Program, list[int], float]:
        """Return a worker with a request under way, its ports and the time; one that sends nothing is hit as it is."""
        worker = self._workers[int(strike.victim * len(self._workers))]
        deadline = self._clock.monotonic() + AT_WORK_WITHIN_S[strike.kind]
        while True:
            senders = self._senders()
            ports = worker.ports_to(self._ports) if senders else []
            if senders.intersection(ports) or self._clock.monotonic() > deadline or self._stop.wait(LOOK_S):
                return worker, ports, self._log.now()

    def _senders(self) -> set[int]:
        """Return the ports from which a request is under way, as the proxy has it."""
        with suppress(OSError, ValueError), urlopen(f"http://127.0.0.1:{min(self._ports)}/", timeout=5) as answer:
            return set(json.load(answer))
        return set()

    def _kill_worker(self, strike: Strike) -> None:
        worker, ports, at = self._victim(strike)
        worker.kill()
        self._tell(f"{worker.title} is killed")
        self._stop.wait(strike.lasts_s)
        worker.start()
        self._log.note(strike.kind, worker.title, at, ports=ports)

    def _freeze_worker(self, strike: Strike) -> None:
        worker, ports, at = self._victim(strike)
        worker.freeze()
        self._tell(f"{worker.title} is frozen for {strike.lasts_s:.0f} s")
        self._stop.wait(strike.lasts_s)
        until = self._log.now()
        worker.thaw()
        self._log.note(strike.kind, worker.title, at, ports=ports, until=until)

    def _churn(self, strike: Strike) -> None:
        at = self._log.now()
        self._guest.start()
        self._tell(f"{self._guest.title} joins for {strike.lasts_s:.0f} s")
        self._stop.wait(strike.lasts_s)
        self._guest.leave()
        self._log.note(strike.kind, self._guest.title, at)

    # Services

    def _kill_connect(self, strike: Strike) -> None:
        self._kill_service(strike, "connect")

    def _kill_postgres(self, strike: Strike) -> None:
        self._kill_service(strike, "postgres")

    def _kill_broker(self, strike: Strike) -> None:
        self._kill_service(strike, f"kafka-{1 + int(strike.victim * self._stack.brokers)}")

    def _freeze_broker(self, strike: Strike) -> None:
        at = self._log.now()
        process = find(self._stack.folder, ["kafka-1"]).get("kafka-1")
        if process is None:
            return
        victims = [process, *process.children(recursive=True)]
        self._tell(f"kafka-1 is frozen for {strike.lasts_s:.0f} s")
        try:
            for victim in victims:
                victim.suspend()
            self._stop.wait(strike.lasts_s)
        finally:
            for victim in victims:
                victim.resume()
        self._log.note(strike.kind, "kafka-1", at)

    def _kill_service(self, strike: Strike, service: str) -> None:
        at = self._log.now()
        process = find(self._stack.folder, [service]).get(service)
        if process is not None:
            victims = [process, *process.children(recursive=True)]  # the server first: it must not tidy up
            for victim in victims:
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
            psutil.wait_procs(victims, timeout=GONE_WITHIN_S)
        self._tell(f"{service} is killed")
        self._stop.wait(strike.lasts_s)
        devstack.up(Wanted(name=self._stack.name, services=(service,)))
        self._tell(f"{service} is back after {self._log.now() - at:.0f} s")
        if process is not None:
            self._log.note(strike.kind, service, at)
        self._mend()
