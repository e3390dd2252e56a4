"""Apply a wanted configuration: seven steps in an order that never lets a command out before it can arrive.

1. **topics**: every tenant's topics and schemas.
2. **groups**: the committed start of every consumer group. A new destination starts at the end taken here, before
   any route to it exists, so it owns everything from its first command on.
3. **slots**: the replication slots, before the first row that must pass through them.
4. **outboxes**: each outbox is there and knows what is applied *now*; no new route yet. The catalogue it learns as
   wanted: versions are only added, and who reads the rows must not name one that an outbox does not know. An outbox that does not answer
   stops the apply here, before anything is announced.
5. **rows**: the new version, in one transaction; workers follow it from here on.
6. **routes**: the outboxes learn the new version and stamp it on commands; workers that meet it wait until they know it.
7. **connectors**: the outboxes' and the control database's own.

Every step is idempotent and every run takes all of them for the tenants it names, changed or not: an apply that was
killed anywhere is finished by repeating it, and the same file twice makes no new version. One advisory lock
serializes all applies. An outbox stamps the version in which its tenant last changed, so that another tenant's apply
is none of its business.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from waybill.contracts.fabric import FabricConfig, OutboxConfig, TenantConfig
from waybill.fabric.core.plan import Plan, complete, plan
from waybill.fabric.ports import Drift, OutboxView, Ports
from waybill.fabric.store import Applied, FabricStore

__all__ = ["Applier", "Result", "Step"]


class Step(StrEnum):
    """The steps of an apply, in order."""

    #: Topics and schemas exist.
    TOPICS = "topics"
    #: Every consumer group has a committed start.
    GROUPS = "groups"
    #: Every outbox has its replication slot.
    SLOTS = "slots"
    #: Every outbox answers and knows what is applied.
    OUTBOXES = "outboxes"
    #: The new version is in the tables.
    ROWS = "rows"
    #: Every outbox knows the new version.
    ROUTES = "routes"
    #: Every connector is there and runs.
    CONNECTORS = "connectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an apply did. With refusals in the plan nothing was done and the version is the old one."""

    version: int
    plan: Plan


class Applier:
    """The shell around `plan`: reads what is applied, decides, and takes the steps."""

    def __init__(self, store: FabricStore, ports: Ports, tell: Callable[[Step], object]) -> None:
        self._store = store
        self._ports = ports
        #: Called before each step, for progress.
        self._tell = tell

    def apply(self, wanted: FabricConfig, applied: Applied) -> Result:
        """Make the fabric what is wanted.

        Raises:
            UnavailableError, ConfigError, RefusedError: a step could not be taken; the steps before it stay, and
                repeating the apply is safe.
        """
        with self._store.locked():
            current = self._store.current()
            step = plan(current, wanted)
            if step.refusals:
                return Result(version=current.version, plan=step)
            self._prepare(current, wanted)
            self._tell(Step.ROWS)
            self._store.open_routes(tenant.name for tenant in wanted.tenants)
            version = self._store.record(complete(current, wanted), step.changes, applied)
            self._finish(wanted)
            return Result(version=version, plan=step)

    def _prepare(self, current: FabricConfig, wanted: FabricConfig) -> None:
        self._tell(Step.TOPICS)
        for tenant in wanted.tenants:
            self._ports.topics.ensure(tenant)
        self._tell(Step.GROUPS)
        for tenant in wanted.tenants:
            self._ports.groups.ensure(tenant, current.tenant(tenant.name))
        self._tell(Step.SLOTS)
        self._ports.relays.prepare(wanted)
        self._tell(Step.OUTBOXES)
        versions = self._store.tenant_versions()
        for tenant in wanted.tenants:
            for outbox in tenant.outboxes:
                self._ports.outboxes.sync(_as_applied(current, tenant, outbox, versions.get(tenant.name, 0)))

    def _finish(self, applied: FabricConfig) -> None:
        self._tell(Step.ROUTES)
        for view in self._views(applied.tenants):
            self._ports.outboxes.sync(view)
        self._tell(Step.CONNECTORS)
        self._ports.relays.connect(applied)

    def _views(self, tenants: Iterable[TenantConfig]) -> Iterator[OutboxView]:
        versions = self._store.tenant_versions()
        for tenant in tenants:
            for outbox in tenant.outboxes:
                yield OutboxView(outbox=outbox, tenant=tenant, version=versions[tenant.name])

    def drift(self, names: Container[str] | None = None) -> Iterator[Drift]:
        """Compare what is applied with what is there; changes nothing.

        Args:
            names: the tenants to look at; all of them by default.
        """
        applied = self._store.current()
        chosen = tuple(tenant for tenant in applied.tenants if names is None or tenant.name in names)
        for tenant in chosen:
            yield from self._ports.topics.drift(tenant)
            yield from self._ports.groups.drift(tenant)
        for view in self._views(chosen):
            yield from self._ports.outboxes.drift(view)
        yield from self._ports.relays.drift(replace(applied, tenants=chosen))


def _as_applied(current: FabricConfig, tenant: TenantConfig, outbox: OutboxConfig, version: int) -> OutboxView:
    """Return the view of what is applied now, with the wanted catalogue; a new outbox gets its place and owns nothing yet.

    The place (dsn, schema) is the wanted one: a database that moved is asked where it is now.
    """
    before = current.tenant(tenant.name) or replace(tenant, outboxes=(), destinations=(), routes=())
    known = next((item for item in before.outboxes if item.name == outbox.name), None)
    here = replace(known, dsn=outbox.dsn) if known else replace(outbox, aggregate_types=())
    return OutboxView(outbox=here, tenant=replace(before, command_types=tenant.command_types), version=version)
