"""Says how the destinations of this worker stand, where people who ask can see it: one row of its own.

Written when it changes and every few seconds, whole, so that nothing outlives what it tells of; gone when the worker
leaves. Nothing waits for it and nothing is decided from it: no delivery, no valve, no other worker. A row that cannot
be written is left out, and the next one says what is so then.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

from waybill.delivery.core.controls.circuit import CircuitState
from waybill.delivery.core.controls.ramp import ramp
from waybill.delivery.core.controls.reports import EVERY_S, Report
from waybill.delivery.group import DestinationGroup
from waybill.delivery.rows import surface
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FabricError

__all__ = ["NoReports", "ReportSink", "Reporter", "report_of"]

#: A worker that leaves waits no longer than this for its row to be gone.
_LEAVE_S: Final = 1.0


class ReportSink(Protocol):
    """Where reports go. Both methods may raise TransientError."""

    async def write(self, worker: str, reports: Sequence[Report]) -> None:
        """Put these in the place of what the worker said before."""
        ...

    async def remove(self, worker: str) -> None:
        """Forget what the worker said."""
        ...


class NoReports:
    """Nobody asks."""

    async def write(self, worker: str, reports: Sequence[Report]) -> None:
        """Write nothing."""

    async def remove(self, worker: str) -> None:
        """Remove nothing."""


class Reporter:
    """Reports of one worker; lives on the loop."""

    def __init__(self, sink: ReportSink, clock: Clock, worker: str) -> None:
        self._sink, self._clock, self._worker = sink, clock, worker
        self._said: tuple[Report, ...] | None = None
        self._said_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._log = get_logger("delivery")

    def look(self, groups: Mapping[tuple[str, str], DestinationGroup]) -> None:
        """Say how destinations stand, unless the same was said a moment ago or the last word is still on its way."""
        if self._task is not None:
            return
        mono = self._clock.monotonic()
        now, owned = self._clock.now(), [group for group in groups.values() if _owns(group)]
        reports = tuple(report for group in owned if not (report := report_of(group, now, mono)).is_plain)
        if reports == self._said and mono - self._said_at < EVERY_S:
            return
        self._said, self._said_at = reports, mono
        self._task = asyncio.get_running_loop().create_task(self._write(reports))
        self._task.add_done_callback(surface)

    async def leave(self) -> None:
        """Take back what was said, if that is possible now."""
        with suppress(TimeoutError, FabricError):
            async with asyncio.timeout(_LEAVE_S):
                if self._task is not None:
                    await self._task
                await self._sink.remove(self._worker)

    async def _write(self, reports: Sequence[Report]) -> None:
        try:
            await self._sink.write(self._worker, reports)
        except FabricError as error:  # nothing depends on it
            if not self._is_away:
                self._log.warning("reports.skipped", reason=str(error))
            self._is_away = True
        else:
            self._is_away = False
        finally:
            self._task = None


def report_of(group: DestinationGroup, now: datetime, mono: float) -> Report:
    """Return how a destination stands in this worker at an instant, as wall clock and boot-time seconds."""
    config, valve = group.target.config, group.senders.valve

    def at(then: float) -> datetime:
        return _tenth(now + timedelta(seconds=then - mono))

    circuit, throttle = valve.circuit, valve.throttle
    is_closed = circuit.state is CircuitState.CLOSED
    is_throttled = throttle is not None and now < throttle.until
    slowly = None if valve.reopened_at is None else ramp(mono - valve.reopened_at, config.concurrency)
    return Report(
        tenant=config.tenant,
        destination=config.name,
        held_back=None if valve.why is None else valve.why.value,
        held_back_since=None if valve.why is None else at(valve.why_since),
        circuit=circuit.state,
        circuit_since=None if is_closed else at(circuit.opened_at),
        next_probe=None if is_closed else at(circuit.probe_at),
        throttled_since=throttle.since if throttle is not None and is_throttled else None,
        throttled_until=throttle.until if throttle is not None and is_throttled else None,
        ramp=slowly,
        concurrency=None if slowly is None else config.concurrency,
        ramp_since=None if slowly is None or valve.reopened_at is None else at(valve.reopened_at),
    )


def _owns(group: DestinationGroup) -> bool:
    return any(actor.is_taken for actor in group.actors.values())


def _tenth(instant: datetime) -> datetime:
    """Round to tenths of a second: the two clocks drift, and what did not change must be the same twice."""
    rounded = instant + timedelta(milliseconds=50)
    return rounded.replace(microsecond=rounded.microsecond // 100_000 * 100_000)
