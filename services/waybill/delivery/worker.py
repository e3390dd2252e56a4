"""One worker process: a group per destination, an intake per tenant, one committer, following the configuration.

It owns nothing but its slot: which partitions it works on, Kafka decides; what it must remember lies in Kafka and
PostgreSQL. A new destination starts a group, a changed one gets another target from the next attempt on, one that
is gone is drained and left, all within seconds of `waybill apply`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from waybill.contracts.decision import Decision
from waybill.contracts.fabric import DestinationConfig, FabricConfig, OnUnsettled
from waybill.delivery import metrics
from waybill.delivery.beacons.lookout import Lookout
from waybill.delivery.committer import Committer, Pace
from waybill.delivery.controls.follow import ControlSource, NoControls
from waybill.delivery.controls.reporting import NoReports, Reporter, ReportSink
from waybill.delivery.controls.rescue import Rescue
from waybill.delivery.controls.traffic import MAX_IN_FLIGHT, Traffic
from waybill.delivery.controls.watch import StuckWatch
from waybill.delivery.core.lanes import Limits
from waybill.delivery.core.records import Recorder, SchemaIds
from waybill.delivery.desk import Feeds
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.group import DestinationGroup, GroupSettings
from waybill.delivery.handover.listeners import ListenerOffsets
from waybill.delivery.intake import Intake, IntakeSettings
from waybill.delivery.ports import Clients, ConfigSource, SignerSource, Standing
from waybill.delivery.results.hearing import arrived
from waybill.delivery.rows import RowTools
from waybill.delivery.sender import Target, outbound_of
from waybill.delivery.store import TaskStore
from waybill.egress.client import GuardedClient
from waybill.infra.kafka import TransactionalProducer
from waybill.infra.log import get_logger
from waybill.infra.topic_feed import TopicFeed
from waybill.infra.topic_reader import PlacedRecord, TopicReader
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import Tenant

__all__ = ["MakeStanding", "Worker", "WorkerParts", "WorkerSettings"]

#: So many destinations of six partitions one process was measured with (`waybill bench fanout`).
MEASURED_DESTINATIONS: Final = 500
_RESTART_S: Final = 5.0
#: How often a client of a former configuration is looked at.
_RETIRE_S: Final = 0.2
#: Signing keys are read again this often, in ticks.
_KEYS_TICKS: Final = 600

Key = tuple[str, str]
#: Makes who knows what was acknowledged, from what runs one statement.
MakeStanding = Callable[[Callable[[str, Mapping[str, Any]], Awaitable[list[tuple[Any, ...]]]]], Standing]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How one worker process is set up."""

    bootstrap: str
    #: Stable over restarts, never used by two processes at once: it names the transactional producer.
    slot: str
    #: Only this tenant, only this destination; None is all.
    tenant: str | None = None
    destination: str | None = None
    with_intake: bool = True
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=Pace)
    drain_s: float = 5.0
    #: Attempts in flight over all destinations.
    max_in_flight: int = MAX_IN_FLIGHT
    #: The worker looks at due work this often, at the configuration every tenth time.
    tick_s: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is given."""

    config: ConfigSource
    signers: SignerSource
    store: TaskStore
    schema_ids: SchemaIds
    #: Reads a value of the decisions topic; may block.
    read_decision: Callable[[bytes], Decision]
    clock: Clock
    failpoints: Failpoints = field(default_factory=Failpoints)
    clients: Clients = field(default_factory=Clients)
    controls: ControlSource = field(default_factory=NoControls)
    reports: ReportSink = field(default_factory=NoReports)


class Worker:
    """One worker process on one loop."""

    def __init__(self, settings: WorkerSettings, parts: WorkerParts) -> None:
        self._settings, self._parts = settings, parts
        self.groups: dict[Key, DestinationGroup] = {}
        self.intakes: dict[str, Intake] = {}
        self.registry = CollectorRegistry()
        self._meter = metrics.Meter(self.registry)
        self.tools = RowTools(
            store=parts.store, clock=parts.clock, failpoints=parts.failpoints, still=Lookout(parts.store.run).still
        )
        self._traffic = Traffic(parts.controls, parts.clock, settings.slot, settings.max_in_flight)
        self._watch, self._rescue = StuckWatch(parts.clock), Rescue(parts.clock)
        self._reporter = Reporter(parts.reports, parts.clock, settings.slot)
        self._restart_at: dict[Key, float] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._seen_version, self._wanted_groups = -1, 0
        self._broken: BaseException | None = None
        self._committer: Committer | None = None
        self._feeds: Feeds | None = None
        self._log = get_logger("delivery").bind(worker=settings.slot)

    def is_alive(self) -> Mapping[str, bool]:
        """Answer `/healthz`."""
        return {"loop": self._broken is None, "moving": not self._watch.stuck}

    def is_ready(self) -> Mapping[str, bool]:
        """Answer `/readyz`: configured, connected, every group able to work."""
        committer = self._committer
        groups = list(self.groups.values())
        return {
            "configured": self._seen_version > 0,
            "kafka": committer is not None and committer.is_connected,
            "groups": len(groups) == self._wanted_groups and all(group.problem is None for group in groups),
            "database": not any(actor.problem for group in groups for actor in list(group.actors.values())),
            "retention": not self._rescue.old,
            "intake": all(intake.problem is None for intake in list(self.intakes.values())),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain and give everything back.

        Raises:
            InvariantBroken: a promise of this code did not hold; nothing was drained.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        await self._parts.store.open()
        strand = self._parts.clients.strand("committer")
        self._committer = Committer(self._make_producer, self._parts.clock, self._break, strand, self._settings.pace)
        self._committer.start()
        self._feeds = _feeds(self._settings, self._parts, self._break)
        self._log.info("worker.started")
        try:
            await self._traffic.start(stop)
            ticks = 0
            while not stop.is_set() and self._broken is None:
                if ticks % 10 == 0:
                    self._follow(force=ticks % _KEYS_TICKS == 0)
                    self._watch.look(self.groups, self._committer)
                    self._rescue.look(self.groups)
                    self._traffic.follow(self.groups, self._parts.config.current())
                    self._reporter.look(self.groups)
                    self._meter.measure(self.groups, self.intakes, self._committer, self._watch.stuck, self._rescue.old)
                self._tick()
                ticks += 1
                await asyncio.sleep(self._settings.tick_s)
        finally:
            if self._broken is None:
                await self._drain()
                await self._traffic.stop()
                await self._reporter.leave()
            await self._feeds.close()
            await self._committer.close()
            await self._parts.store.close()
        if self._broken is not None:
            raise self._broken
        self._log.info("worker.stopped")

    def _make_producer(self) -> TransactionalProducer:
        settings, parts = self._settings, self._parts
        return parts.clients.producer(settings.bootstrap, f"waybill.{settings.slot}", at_step=parts.failpoints)

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = error

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._log.error("worker.broken", message=context.get("message"), exc_info=error)
        if isinstance(error, BaseException):
            self._break(error)

    async def _drain(self) -> None:
        await asyncio.gather(
            *(group.stop() for group in self.groups.values()), *(intake.stop() for intake in self.intakes.values())
        )
        await asyncio.gather(*self._leaving, return_exceptions=True)

    # Configuration

    def _follow(self, *, force: bool) -> None:
        config = self._parts.config.current()
        wanted = _wanted(config, self._settings)
        self._wanted_groups = len(wanted)
        if config.version != self._seen_version:
            warn_of_crowd(self._log, len(wanted))
        if config.version != self._seen_version or force:
            self._seen_version = config.version
            for key, group in list(self.groups.items()):
                if key not in wanted:
                    self._leave(key, group)
                else:
                    self._retarget(group, wanted[key], config.version)
        now = self._parts.clock.monotonic()
        for key, destination in wanted.items():
            found = self.groups.get(key)
            if found is not None and found.has_ended.is_set():
                self._log.warning("group.restarting", destination=key[1])
                self._leave(key, found)
                self._restart_at[key] = now + _RESTART_S
            elif found is None and self._restart_at.get(key, 0.0) <= now:
                self._join(key, destination, config.version)
        if self._settings.with_intake:
            self._follow_intakes(config)

    def _join(self, key: Key, destination: DestinationConfig, version: int) -> None:
        assert self._committer is not None
        assert self._feeds is not None
        try:
            target = self._target(destination, version, None)
        except (ConfigError, UnavailableError) as error:
            self._restart_at[key] = self._parts.clock.monotonic() + _RESTART_S
            self._log.error("destination.unusable", tenant=key[0], destination=key[1], reason=str(error))
            return
        settings = _group_settings(self._settings, self._parts.clients, self._feeds, self._wanted_groups)
        group = self.groups[key] = DestinationGroup(target, self._committer, self.tools, settings)
        self._traffic.join(key, group)
        group.start()

    def _retarget(self, group: DestinationGroup, destination: DestinationConfig, version: int) -> None:
        before = group.target.client
        try:
            group.retarget(self._target(destination, version, group.target))
        except (ConfigError, UnavailableError) as error:
            self._log.error("destination.kept", destination=destination.name, reason=str(error))
        if group.target.client is not before:
            self._in_background(_retire(before, group.senders.under_way()))

    def _target(self, destination: DestinationConfig, version: int, before: Target | None) -> Target:
        """Make a target; connections are kept unless what they are made from changed."""
        recorder = Recorder(destination, version, self._settings.slot, self._parts.schema_ids)
        signer = self._parts.signers.signer(destination)
        outbound = outbound_of(destination, self._parts.config.current())
        if before is not None and before.client.outbound == outbound:
            client = before.client
        else:
            client = self._parts.clients.http(outbound)
        target = Target(recorder, signer, client, self._parts.clock, self._parts.failpoints)
        target.halting_on_expiry = halting_on_expiry(self._parts.config.current(), destination.tenant)
        return target

    def _leave(self, key: Key, group: DestinationGroup) -> None:
        del self.groups[key]
        self._part(group)

    def _part(self, group: DestinationGroup | Intake) -> None:
        self._in_background(group.stop())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _follow_intakes(self, config: FabricConfig) -> None:
        assert self._committer is not None
        for tenant in config.tenants:
            key = (tenant.name, "")
            found = self.intakes.get(tenant.name)
            if found is not None and found.has_ended.is_set():
                self._part(self.intakes.pop(tenant.name))
                self._restart_at[key] = self._parts.clock.monotonic() + _RESTART_S
                continue
            if self._settings.tenant not in {None, tenant.name} or found is not None:
                continue
            if self._restart_at.get(key, 0.0) > self._parts.clock.monotonic():
                continue
            settings, parts = _intake_settings(tenant.name, self._settings, self._parts), self._parts
            self.intakes[tenant.name] = Intake(settings, self._committer, parts.config.current, parts.clock)
            self.intakes[tenant.name].start()

    # Time

    def _tick(self) -> None:
        self._traffic.tick(self.groups)
        for group in self.groups.values():
            group.tick()
        for intake in self.intakes.values():
            intake.tick()


def _wanted(config: FabricConfig, settings: WorkerSettings) -> dict[Key, DestinationConfig]:
    return {
        (tenant.name, destination.name): destination
        for tenant in config.tenants
        if settings.tenant in {None, tenant.name}
        for destination in tenant.destinations
        if settings.destination in {None, destination.name}
    }


def warn_of_crowd(log: FilteringBoundLogger, destinations: int) -> None:
    """Say when a process is given more destinations than were ever seen to keep their memberships in one."""
    if destinations > MEASURED_DESTINATIONS:
        log.warning(
            "worker.crowded",
            destinations=destinations,
            measured=MEASURED_DESTINATIONS,
            advice="a process with so many may lose its partitions: run several, each with its own --tenant or --destination",
        )


def _group_settings(settings: WorkerSettings, clients: Clients, feeds: Feeds, among: int) -> GroupSettings:
    return GroupSettings(
        bootstrap=settings.bootstrap,
        worker=settings.slot,
        limits=settings.limits,
        drain_s=settings.drain_s,
        clients=clients,
        among=among,
        feeds=feeds,
    )


def _intake_settings(tenant: Tenant, settings: WorkerSettings, parts: WorkerParts) -> IntakeSettings:
    return IntakeSettings(
        tenant=tenant,
        bootstrap=settings.bootstrap,
        worker=settings.slot,
        dead_letter_schema=parts.schema_ids.dead_letter,
        clients=parts.clients,
    )


def _feeds(settings: WorkerSettings, parts: WorkerParts, on_broken: Callable[[BaseException], None]) -> Feeds:
    """Make what reads decisions and results for all groups; each connects when the first partition is watched."""

    def decisions() -> TopicReader:
        return parts.clients.topics(settings.bootstrap, f"waybill-decisions.{settings.slot}")

    def results() -> TopicReader:
        return parts.clients.topics(settings.bootstrap, f"waybill-results.{settings.slot}", tells_end=True)

    def decide(record: PlacedRecord) -> Decision:
        return parts.read_decision(record.value or b"")

    strand = parts.clients.strand
    return Feeds(
        decisions=TopicFeed(decisions, decide, strand("decisions"), on_broken),
        results=TopicFeed(results, arrived, strand("results"), on_broken),
        listeners=ListenerOffsets(lambda: parts.clients.offsets(settings.bootstrap), strand("listeners"), on_broken),
    )


def halting_on_expiry(config: FabricConfig, tenant: str) -> frozenset[str]:
    """Return the command types of a tenant whose route says that an aggregate halts behind one that expired."""
    found = config.tenant(tenant)
    routes = found.routes if found is not None else ()
    return frozenset(route.command_type for route in routes if route.on_expiry is OnUnsettled.HALT)


async def _retire(client: GuardedClient, is_used: Callable[[], bool]) -> None:
    """Close the connections of a former configuration once no attempt uses them."""
    while is_used():  # noqa: ASYNC110 - facts without an event
        await asyncio.sleep(_RETIRE_S)
    await client.close()
