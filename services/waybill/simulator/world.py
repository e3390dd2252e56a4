"""One run's world: servers, processes, commands, and what a schedule or a test does to them.

It owns no rules: what servers do is theirs, what workers do is the worker's, what must hold is the laws'.
"""

import math
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Final

from waybill.contracts.codec import DECISION, AvroWriter
from waybill.contracts.decision import CANCELLABLE, Decision, DecisionKind, decision_id, write_decision
from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    FlowLimits,
    Profile,
    ResultSource,
    RetryPolicy,
    StatusSource,
    TenantConfig,
    Timeouts,
    Transport,
)
from waybill.contracts.names import delivery_group, intake_group
from waybill.delivery.core.controls.standing import Standing
from waybill.kernel.ids import Aggregate, DestinationName
from waybill.simulator.broker import Broker, Committed
from waybill.simulator.database import Database
from waybill.simulator.groups import Groups, Membership
from waybill.simulator.kafka_clients import Wire
from waybill.simulator.laws import BOUND, NOT_DONE, Laws
from waybill.simulator.listener import Fate, Listener
from waybill.simulator.network import Network
from waybill.simulator.orders import START, TENANT, Order, Orders, Relay
from waybill.simulator.process import SimClock, SimProcess
from waybill.simulator.store import SimControls
from waybill.simulator.tables.rows import Key
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace
from waybill.simulator.workers import Setup, Workers

__all__ = ["World"]

_DECISIONS: Final = AvroWriter(DECISION, 4)
#: How long a result is waited for that never comes.
RESULT_WAIT_S: Final = 2.0
#: How long a listener remembers; more than it declares, since a request may be late.
_MEMORY_S: Final = {
    Profile.DURABLE_IDEMPOTENT: math.inf,
    Profile.BOUNDED_DEDUPLICATION: BOUND.max_age_s + 60.0,
    Profile.NON_IDEMPOTENT: 0.0,
}


class World:
    """Everything of one run."""

    def __init__(self, setup: Setup, trace: Trace) -> None:
        self.setup, self.trace = setup, trace
        self.rng = Random(f"world/{setup.seed}")  # noqa: S311 - dice, no secrets
        self.timeline = Timeline(Random(f"order/{setup.seed}"))  # noqa: S311 - the same
        trace.now = lambda: self.timeline.now
        self.network = Network(self.rng, setup.weather)
        self.groups = Groups(self.timeline, self.rng, trace, setup.session_s)
        self.broker = Broker(self.timeline, trace, self.groups, setup.partitions)
        self.database = Database(self.timeline, trace)
        self.controls = SimControls()
        self.orders = Orders()
        self.destinations: list[str] = []
        self.relay = Relay(self.broker, self.orders, self.destinations, self.rng, lambda: self.timeline.now)
        self.laws = Laws(TENANT, self.orders, self.database, trace)
        self.laws.now = lambda: self.timeline.now
        self.broker.witness, self.database.observer = self.laws, self
        self.listeners: dict[str, Listener] = {}
        #: Whether the read model folds.
        self.is_folded = True
        self.config = FabricConfig(version=1, tenants=(TenantConfig(name=TENANT, partitions=setup.partitions),))
        for name in setup.destinations:
            self._add_destination(name)
        self.seen = self.config
        self.broker.create_group(intake_group(TENANT), self.orders.end)
        self.orders.know_group(intake_group(TENANT), None)
        self.processes = {
            name: SimProcess(name, self.timeline, trace, self) for name in (f"w{n}" for n in range(setup.workers))
        }
        self.clocks = {name: SimClock(self.timeline, START) for name in self.processes}
        wire = Wire(
            broker=self.broker, network=self.network, most=setup.most, patience=5.0, on_position=self._position_told
        )
        self.workers = Workers(self, wire)

    # Processes

    def start(self, name: str) -> SimProcess:
        """Begin a life of a worker."""
        process = self.processes[name]
        process.start(self.workers.make)
        return process

    def start_all(self) -> None:
        """Begin a life of every worker that has none."""
        for name, process in self.processes.items():
            if not process.is_alive:
                self.start(name)

    def stopped(self, process: SimProcess) -> None:
        """Let the coordinators miss a process."""
        self.groups.stopped(process)

    def woke(self, process: SimProcess) -> None:
        """Let the coordinators hear of it again."""
        self.groups.woke(process)

    def close(self) -> None:
        """End everything, so that nothing of this run acts later."""
        for process in self.processes.values():
            process.kill()
        self.timeline.run_for(0.0)

    def failures(self) -> list[str]:
        """Return the workers that ended by an error of their own."""
        return [
            f"{name}: {type(error).__name__}: {error}"
            for name, process in self.processes.items()
            if (error := process.failure()) is not None
        ]

    def group(self, place: int) -> str:
        """Return the group of a destination, wrapped around."""
        names = self.destinations
        return delivery_group(TENANT, DestinationName(names[place % len(names)]))

    def key(self, place: int) -> Key:
        """Return a partition of a destination, wrapped around."""
        names = self.destinations
        return TENANT, names[place % len(names)], place % self.setup.partitions

    def wall_clock(self) -> datetime:
        """Return the time by the clock that runs first."""
        return max(clock.now() for clock in self.clocks.values())

    # Listeners

    def listener(self, destination: str = "crm") -> Listener:
        """Return a destination's listener."""
        return self.listeners[_url(destination)]

    def script(self, order: Order, *fates: Fate, destination: str = "crm") -> None:
        """Say what becomes of the next requests of a delivery."""
        self.listener(destination).script.setdefault(order.delivery_id(destination), []).extend(fates)

    # People

    def decide(
        self, order: Order, kind: DecisionKind, *, version: int | None = None, destination: str = "crm"
    ) -> uuid.UUID:
        """Decide about a delivery; the record is in the topic at once. Without a version states are named."""
        about = uuid.UUID(order.delivery_id(destination))
        decision = Decision(
            decision_id=decision_id(about, kind, version),
            tenant=TENANT,
            destination=DestinationName(destination),
            aggregate=Aggregate(order.aggregate),
            kind=kind,
            delivery_id=about,
            sequence=None,
            version=version,
            states=CANCELLABLE if version is None else (),
            decided_by="people",
            reason="simulated",
            decided_at=START,
            evidence="ticket:1" if kind is DecisionKind.ACKNOWLEDGE else None,
        )
        self.trace("people", f"{kind} {order.told(destination)} {'' if version is None else f'v{version}'}")
        self.broker.decide(order.partition, write_decision(decision, _DECISIONS))
        return decision.decision_id

    # Configuration

    def control(
        self, standing: Standing | None = None, *, limits: FlowLimits | None = None, destination: str = "crm"
    ) -> None:
        """Let people control a destination."""
        self.trace("people", f"{destination}: {standing} {limits}")
        now = START + timedelta(seconds=self.timeline.now)
        self.controls.decide(TENANT, destination, now, standing=standing, limits=limits)

    def apply(self, *, seen_after_s: float = 0.0, newcomer: str | None = None) -> None:
        """Apply the next version, with one more destination or none; processes see it after a while."""
        if newcomer is not None and newcomer not in self.destinations:
            self._add_destination(newcomer)
        self.config = replace(self.config, version=self.config.version + 1)
        self.relay.config_version = self.config.version
        self.timeline.after(seen_after_s, self._see, self.config)

    def _see(self, config: FabricConfig) -> None:
        if config.version > self.seen.version:
            self.seen = config

    # Who sees

    def taken(self, key: Key, epoch: uuid.UUID, owner: str) -> None:
        """Tell the laws of a new owner."""
        self.laws.taken(key, epoch, self.processes[owner].who)

    def written(self, key: Key, epoch: uuid.UUID, newest: uuid.UUID | None) -> None:
        """Tell the laws of written rows."""
        self.laws.written(key, epoch, newest)

    def broken(self, law: str, what: str) -> None:
        """Tell the laws what a server found."""
        self.laws.broken(law, what)

    def _position_told(self, process: SimProcess, membership: Membership, partition: int, found: Committed) -> None:
        if self.groups.owns(membership, partition):
            self.laws.position_told(process.name, membership, partition, found)

    # Building

    def _add_destination(self, name: str) -> None:
        (tenant,) = self.config.tenants
        setup, settle = self.setup, self.setup.settle_after_s
        is_handed_over = setup.transport is Transport.KAFKA
        destination = DestinationConfig(
            tenant=TENANT,
            name=DestinationName(name),
            transport=setup.transport,
            url=None if is_handed_over else _url(name),
            results=ResultSource(keys=(), wait_s=RESULT_WAIT_S) if is_handed_over else None,
            owner="team",
            tradeoff="simulated",
            retry=RetryPolicy(base_s=0.2, cap_s=1.0, hot_attempts=setup.hot_attempts),
            timeouts=Timeouts(connect_s=1.0, read_s=setup.total_s, total_s=setup.total_s),
            concurrency=setup.concurrency,
            profile=setup.profile,
            repeats=BOUND,
            not_done=NOT_DONE if setup.profile is Profile.NON_IDEMPOTENT else frozenset(),
            status_query=None if settle is None else StatusSource(url=_url(name), settle_after_s=settle),
            on_unsettled=setup.on_unsettled,
        )
        self.config = replace(self.config, tenants=(replace(tenant, destinations=(*tenant.destinations, destination)),))
        self.destinations.append(name)
        self.listeners[_url(name)] = Listener(name, self.laws, self.network, _MEMORY_S[setup.profile])
        self.laws.profiles[name] = setup.profile
        group = delivery_group(TENANT, destination.name)
        self.broker.create_group(group, self.orders.end)
        self.orders.know_group(group, name)


def _url(destination: str) -> str:
    return f"http://{destination}.simulated/"
