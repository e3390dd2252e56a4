"""What an apply needs from the parts it may not know: topics, consumer groups, outboxes, connectors.

Every method is idempotent: the applier calls all of them on every run, so that a run that died anywhere is finished
by the next. The `drift` methods only look. Adapters raise `UnavailableError`, `ConfigError` or `RefusedError`, each
saying what to do; they are put together in `waybill.cli.fabric_ports`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from waybill.contracts.fabric import FabricConfig, OutboxConfig, TenantConfig

__all__ = ["Drift", "Groups", "OutboxView", "Outboxes", "Ports", "Relays", "Topics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One place where what is there differs from what was applied."""

    #: What it is about: `topic waybill.acme.state`, `outbox acme/orders`.
    subject: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxView:
    """What one outbox is to know: its own object and its tenant's destinations and routes, at one version."""

    outbox: OutboxConfig
    tenant: TenantConfig
    #: The version in which the tenant last changed; 0 before its first, the outbox then accepts nothing.
    version: int


class Topics(Protocol):
    """The topics of a tenant and the schemas of what is in them."""

    def ensure(self, tenant: TenantConfig) -> None:
        """Make what is missing; never shrink, change partitions or delete."""
        ...

    def drift(self, tenant: TenantConfig) -> Iterable[Drift]:
        """Compare declared topics with those there."""
        ...


class Groups(Protocol):
    """The consumer groups of a tenant: none reads before its start is committed, since `auto.offset.reset=error`."""

    def ensure(self, tenant: TenantConfig, current: TenantConfig | None) -> None:
        """Commit the start of every group that has none.

        Args:
            tenant: as wanted.
            current: as applied. A destination that is in it had its start committed: a missing one is lost, and
                refused rather than guessed.

        Raises:
            RefusedError: an applied destination's group has lost its offset.
        """
        ...

    def drift(self, tenant: TenantConfig) -> Iterable[Drift]:
        """Name groups without a committed offset on some partition."""
        ...


class Outboxes(Protocol):
    """The producer databases."""

    def sync(self, view: OutboxView) -> None:
        """Make the outbox know exactly this.

        Raises:
            UnavailableError: its database does not answer.
            RefusedError: the outbox is not installed there, or belongs to another tenant or name.
        """
        ...

    def drift(self, view: OutboxView) -> Iterable[Drift]:
        """Compare what the outbox knows with the view."""
        ...


class Relays(Protocol):
    """The connectors that carry the outboxes and the control database's own outbox into topics."""

    def prepare(self, config: FabricConfig) -> None:
        """Make the replication slots: a row committed before its slot exists would reach no topic."""
        ...

    def connect(self, config: FabricConfig) -> None:
        """Put every connector and wait until it runs."""
        ...

    def drift(self, config: FabricConfig) -> Iterable[Drift]:
        """Compare connectors and their states with what is applied."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All of them."""

    topics: Topics
    groups: Groups
    outboxes: Outboxes
    relays: Relays
