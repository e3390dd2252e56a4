"""The ingress of all tenants that ask for one, in one process: follows the configuration, keeps groups running.

Runs on one loop. Kafka shares the partitions of each topic out among the processes there are.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from prometheus_client import CollectorRegistry

from waybill.delivery.committer import Committer
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.ports import Clients, ConfigSource
from waybill.infra.kafka import TransactionalProducer
from waybill.infra.log import get_logger
from waybill.ingress.group import IngressGroup, IngressSettings
from waybill.ingress.metrics import Meter
from waybill.ingress.taking import Taking
from waybill.kernel.clock import Clock
from waybill.kernel.errors import TransientError
from waybill.kernel.ids import Tenant
from waybill.submission.outboxes import Outboxes

__all__ = ["Ingress", "ServiceSettings"]

_TICK_S: Final = 0.05
_LOOK_S: Final = 0.5
_RESTART_S: Final = 2.0
_TELL_S: Final = 10.0
_FORGET_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """How one process runs."""

    bootstrap: str
    #: Stable over restarts, never used by two processes at once: it names the transactional producer.
    slot: str
    dead_letter_schema: int
    #: Only this tenant; None is all.
    tenant: str | None = None
    failpoints: Failpoints = field(default_factory=Failpoints)
    clients: Clients = field(default_factory=Clients)


class Ingress:
    """One ingress process on one loop."""

    def __init__(self, settings: ServiceSettings, config: ConfigSource, outboxes: Outboxes, clock: Clock) -> None:
        self._settings, self._config, self._outboxes, self._clock = settings, config, outboxes, clock
        self.groups: dict[str, IngressGroup] = {}
        self.registry = CollectorRegistry()
        self._meter, self._lags = Meter(self.registry), dict[str, int]()
        self._taking = Taking(outboxes)
        self._committer: Committer | None = None
        self._restart_at: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_configured, self._wanted = False, 0
        self._broken: BaseException | None = None
        self._log = get_logger("ingress").bind(slot=settings.slot)

    def is_alive(self) -> Mapping[str, bool]:
        """Answer `/healthz`."""
        return {"loop": self._broken is None}

    def is_ready(self) -> Mapping[str, bool]:
        """Answer `/readyz`: configured, connected, no group in trouble, every outbox answers."""
        groups = list(self.groups.values())
        return {
            "configured": self._is_configured,
            "kafka": self._committer is not None and self._committer.is_connected,
            # One that ended and waits to be started again is missing.
            "groups": len(groups) == self._wanted and all(group.problem is None for group in groups),
            "outboxes": not any(group.blocked for group in groups),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Copy until `stop` is set, then finish what outboxes were asked and give everything back.

        Raises:
            InvariantBroken: a promise of this code did not hold; nothing was given back.
        """
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        self._committer = Committer(
            self._make_producer, self._clock, self._break, self._settings.clients.strand("committer")
        )
        self._committer.start()
        self._log.info("ingress.started")
        self._spawn(self._measure())
        self._spawn(self._forget())
        try:
            look_at = 0.0
            while not stop.is_set() and self._broken is None:
                if self._clock.monotonic() >= look_at:
                    look_at = self._clock.monotonic() + _LOOK_S
                    self._follow()
                    self._meter.measure(self.groups, self._lags, self._clock.monotonic())
                for group in self.groups.values():
                    group.tick()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _TICK_S)
        finally:
            if self._broken is None:
                await asyncio.gather(*(group.stop() for group in self.groups.values()))
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._committer.close()
            await self._outboxes.close()
        if self._broken is not None:
            raise self._broken
        self._log.info("ingress.stopped", **self._counted())

    def _follow(self) -> None:
        """Run a group for each tenant that asks for it, and for no other."""
        assert self._committer is not None
        config, now = self._config.current(), self._clock.monotonic()
        self._is_configured = config.version > 0
        wanted = {
            tenant.name
            for tenant in config.tenants
            if tenant.ingress is not None and self._settings.tenant in {None, tenant.name}
        }
        self._wanted = len(wanted)
        for name, group in list(self.groups.items()):
            if group.has_ended.is_set() or name not in wanted:
                self._restart_at[name] = now + _RESTART_S
                self._spawn(self.groups.pop(name).stop())
        for name in sorted(wanted - self.groups.keys()):
            if self._restart_at.get(name, 0.0) <= now:
                self.groups[name] = self._group(name, self._committer)
                self.groups[name].start()

    def _group(self, tenant: Tenant, committer: Committer) -> IngressGroup:
        settings = IngressSettings(
            tenant=tenant,
            bootstrap=self._settings.bootstrap,
            worker=self._settings.slot,
            dead_letter_schema=self._settings.dead_letter_schema,
            clients=self._settings.clients,
        )
        return IngressGroup(settings, committer, self._taking, self._config.current, self._clock)

    def _make_producer(self) -> TransactionalProducer:
        settings = self._settings
        name = f"waybill.ingress.{settings.slot}"
        return settings.clients.producer(settings.bootstrap, name, at_step=settings.failpoints)

    async def _measure(self) -> None:
        """Ask how much lies before each group, and tell what was done, where that changed."""
        told: dict[str, object] = {}
        while True:
            await asyncio.sleep(_TELL_S)
            for name, group in list(self.groups.items()):
                with suppress(TransientError, TimeoutError):
                    async with asyncio.timeout(_TELL_S):
                        self._lags[name] = await group.lag()
            counted = self._counted()
            if counted != told:
                self._log.info("ingress.progress", **counted, lag=sum(self._lags.values()))
                told = counted

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(_FORGET_S)
            with suppress(psycopg.Error):  # an hour later is as good
                await self._outboxes.forget(self._clock.now())

    def _counted(self) -> dict[str, object]:
        return {
            result: sum(group.events[result] for group in self.groups.values())
            for result in ("taken", "repeated", "refused")
        }

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = error

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._log.error("ingress.broken", message=context.get("message"), exc_info=error)
        if isinstance(error, BaseException):
            self._break(error)
