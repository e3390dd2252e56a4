"""What all destinations of a worker share: controls in force, a tenant's limits, the process's connections.

Twice a second every valve is told what is in force for it. With every tick a bound that several destinations share is
divided anew among those that have something to send, so that none of them takes it all.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from waybill.contracts.fabric import FabricConfig, FlowLimits, TenantConfig
from waybill.delivery.controls.follow import Controls, ControlSource
from waybill.delivery.controls.valve import Allowance, Pool
from waybill.delivery.core.controls.shares import Bucket, share_out, share_per_process
from waybill.delivery.core.controls.standing import WHOLE_TENANT, Decider, Standing, changed, in_force
from waybill.delivery.group import DestinationGroup
from waybill.kernel.clock import Clock

__all__ = ["MAX_IN_FLIGHT", "Traffic"]

#: Attempts a process has in flight at most; each holds a connection.
MAX_IN_FLIGHT: Final = 4096

#: Ticks between two looks at whether there is enough for all.
_CROWD_TICKS: Final = 4

Key = tuple[str, str]
Groups = Mapping[Key, DestinationGroup]


class Traffic:
    """Tells the valves; lives on the loop."""

    def __init__(self, controls: ControlSource, clock: Clock, worker: str, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._controls, self._clock, self._worker = Controls(controls), clock, worker
        self._max_in_flight = max_in_flight
        #: By tenant: its pool, and what of its limits is this process's.
        self._pools: dict[str, tuple[Pool, Allowance]] = {}
        #: All destinations together may have more in flight than the process.
        self._is_crowded = False
        #: What that leaves to each; empty while there is enough for all.
        self._bounds: Mapping[Key, int] = {}
        self._turn = 0

    async def start(self, stop: asyncio.Event) -> None:
        """Wait until controls are known, or until the worker is to stop: nothing is attempted before."""
        await self._controls.first(stop)

    async def stop(self) -> None:
        """Write down what this worker decided, as far as that is possible now."""
        await self._controls.stop()

    def join(self, key: Key, group: DestinationGroup) -> None:
        """Take a destination in: what ends its attempts is written down."""
        group.senders.valve.on_stop = partial(self._stopped, key)

    def follow(self, groups: Groups, config: FabricConfig) -> None:
        """Tell every valve what is in force, and ask anew."""
        self._controls.refresh()
        partitions = {tenant.name: tenant.partitions for tenant in config.tenants}
        for key, group in groups.items():
            self._restrict(key, group, partitions.get(group.tenant, 1))
        self._is_crowded = sum(group.target.config.concurrency for group in groups.values()) > self._max_in_flight
        before, self._pools = self._pools, {}
        for tenant in config.tenants:
            self._limit(tenant, groups, before.get(tenant.name))
        for group in groups.values():
            if group.tenant in before and group.tenant not in self._pools:
                group.senders.valve.share(None, None, None)

    def tick(self, groups: Groups) -> None:
        """Divide what is shared; costs nothing while nothing is."""
        if not self._pools and not self._is_crowded and not self._bounds:
            return
        self._turn += 1
        if self._turn % _CROWD_TICKS == 0:
            self._bounds = self._crowd(groups)
            for key, group in groups.items():
                if group.tenant not in self._pools:
                    group.senders.valve.share(None, None, self._bounds.get(key))
        for tenant, (pool, allowance) in self._pools.items():
            self._share({key: group for key, group in groups.items() if group.tenant == tenant}, pool, allowance)

    # Deciding

    def _restrict(self, key: Key, group: DestinationGroup, partitions: int) -> None:
        control = self._controls.of(*key)
        standing = control.standing if control else Standing.RUNNING
        limits = in_force(group.target.config.limits, control.limits if control else FlowLimits())
        _drain(group, is_draining=standing is Standing.DRAINING)
        valve = group.senders.valve
        was_drained = valve.is_drained and valve.standing is standing
        is_drained = standing is Standing.DRAINING and (was_drained or _is_empty(group))
        valve.restrict(standing, _allowance(limits, _taken(group), partitions), is_drained=is_drained)

    def _limit(self, tenant: TenantConfig, groups: Groups, before: tuple[Pool, Allowance] | None) -> None:
        control = self._controls.of(tenant.name, WHOLE_TENANT)
        limits = in_force(tenant.limits, control.limits if control else FlowLimits())
        if limits == FlowLimits():
            return
        owned = sum(_taken(group) for group in groups.values() if group.tenant == tenant.name)
        allowance = _allowance(limits, owned, tenant.partitions * len(tenant.destinations))
        self._pools[tenant.name] = (before[0] if before else Pool(Bucket()), allowance)

    def _share(self, groups: Groups, pool: Pool, allowance: Allowance) -> None:
        """Divide a tenant's limits among its destinations."""
        left: Mapping[Key, int] = {}
        if allowance.rate_per_s is not None:
            begin = pool.bucket.fill(allowance.rate_per_s, self._clock.monotonic())
            wants = [group.senders.ready for group in groups.values()]
            left = dict(zip(groups, share_out(begin, wants, self._turn), strict=True))
        most = self._bounds
        if allowance.in_flight is not None:
            shares = share_out(allowance.in_flight, _wants(groups), self._turn)
            most = {key: min(share, most.get(key, share)) for key, share in zip(groups, shares, strict=True)}
        for key, group in groups.items():
            group.senders.valve.share(pool, left.get(key), most.get(key))

    def _crowd(self, groups: Groups) -> Mapping[Key, int]:
        """Return bounds of attempts in flight while all destinations together want more than the process has."""
        if not self._is_crowded:
            return {}
        wants = _wants(groups)
        if sum(wants) <= self._max_in_flight:
            return {}
        return dict(zip(groups, share_out(self._max_in_flight, wants, self._turn), strict=True))

    def _stopped(self, key: Key, standing: Standing, reason: str) -> None:
        who = Decider(at=self._clock.now(), by=f"worker {self._worker}", reason=reason)
        control = changed(self._controls.of(*key), key, who, standing=standing)
        if control is not None:
            self._controls.add(control)


def _wants(groups: Groups) -> list[int]:
    """Return how many attempts each destination would have in flight if it could."""
    return [
        min(group.senders.inflight + group.senders.ready, group.target.config.concurrency) for group in groups.values()
    ]


def _allowance(limits: FlowLimits, owned: int, partitions: int) -> Allowance:
    rate, most = limits.rate_per_s, limits.in_flight
    return Allowance(
        rate_per_s=None if rate is None else share_per_process(rate, owned, partitions),
        in_flight=None if most is None else max(int(share_per_process(most, owned, partitions)), 1),
    )


def _taken(group: DestinationGroup) -> int:
    return sum(actor.is_taken for actor in group.actors.values())


def _is_empty(group: DestinationGroup) -> bool:
    """Whether nothing is under way, and all that was read is settled or stored."""
    return group.senders.inflight == 0 and not any(actor.lanes.unsettled for actor in group.actors.values())


def _drain(group: DestinationGroup, *, is_draining: bool) -> None:
    """Read nothing more, or go on reading."""
    if is_draining == group.limits.is_closed:
        return
    group.limits.is_closed = is_draining
    for actor in list(group.actors.values()):
        if not is_draining:
            actor.pump()
        elif actor.is_taken and not actor.is_held:
            actor.is_held = True
            group.hold_reading(actor, hold=True)
