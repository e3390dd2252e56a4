"""What an outbox must know of its tenant, as one record: the part of applied configuration that emit resolves against.

Invariant: what a route names is among the destinations, so that no command goes to a destination whose consumer group
does not exist yet. `apply` writes the settings twice: first with the routes that were there (topics, groups and
destinations become known), and with the new ones when everything behind them waits for commands.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from waybill.commandtypes.core.versions import version_key
from waybill.contracts.fabric import OutboxConfig, RouteConfig, SchemaFormat, TenantConfig
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["HARD_PAYLOAD_LIMIT", "OutboxSettings", "TypeSchema", "source_uri"]

#: What the table itself takes, whatever a tenant is allowed: below a broker's default message size with headers.
HARD_PAYLOAD_LIMIT = 921_600


def source_uri(tenant: str, outbox: str) -> str:
    """Return the CloudEvents source of an outbox's commands."""
    return f"waybill://{tenant}/{outbox}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSchema:
    """One version of a command type."""

    command_type: str
    version: str
    format: SchemaFormat
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """One tenant in one outbox, at one version of the applied configuration."""

    tenant: Tenant
    source: str
    config_version: int
    max_payload_bytes: int
    #: The aggregate types this outbox alone numbers.
    aggregate_types: tuple[str, ...]
    destinations: tuple[DestinationName, ...]
    routes: tuple[RouteConfig, ...]
    #: The longest time to live each destination takes, in seconds; one that is missing here has no limit.
    max_ttl_s: Mapping[DestinationName, float] = field(default_factory=dict)
    #: The catalogue as far as emitting needs it, in order.
    types: tuple[TypeSchema, ...] = ()

    @classmethod
    def of(
        cls, tenant: TenantConfig, outbox: OutboxConfig, version: int, *, routes: Iterable[RouteConfig] | None = None
    ) -> Self:
        """Take the outbox's part of a tenant's configuration.

        Args:
            tenant: the tenant with all its destinations and routes.
            outbox: the one of its outboxes that is meant.
            version: the configuration version commands will carry.
            routes: in place of the tenant's; the first phase of `apply` passes those that were open before.

        Raises:
            ConfigError: a route names a destination the tenant does not have, or a payload limit no outbox takes.
        """
        chosen = tuple(tenant.routes if routes is None else routes)
        known = {destination.name for destination in tenant.destinations}
        for route in chosen:
            for name in route.destinations:
                if name not in known:
                    raise ConfigError(
                        f"tenant {tenant.name}: the route of {route.command_type} names {name}, which is no destination"
                    )
        if not 1 <= outbox.max_payload_bytes <= HARD_PAYLOAD_LIMIT:
            raise ConfigError(
                f"outbox {outbox.name} of tenant {tenant.name}: max_payload_bytes is from 1 to {HARD_PAYLOAD_LIMIT}"
            )
        return cls(
            tenant=tenant.name,
            source=source_uri(tenant.name, outbox.name),
            config_version=version,
            max_payload_bytes=outbox.max_payload_bytes,
            aggregate_types=tuple(sorted(outbox.aggregate_types)),
            destinations=tuple(sorted(known)),
            max_ttl_s={destination.name: destination.max_ttl_s for destination in tenant.destinations},
            types=tuple(
                TypeSchema(command_type=declared.name, version=each.version, format=declared.format, schema=each.schema)
                for declared in sorted(tenant.command_types, key=lambda declared: declared.name)
                for each in sorted(declared.versions, key=lambda each: version_key(each.version))
            ),
            routes=tuple(sorted(chosen, key=lambda route: route.command_type)),
        )
