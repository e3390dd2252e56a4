"""Who is invited, to receive what, and what is expected of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from waybill.contracts.fabric import CommandTypeConfig, FabricConfig, Level, Profile, Rendering
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, DestinationName, Tenant

__all__ = ["Invitation", "catalogued", "invited_by", "rendered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """One destination of one tenant, before or after it is declared."""

    tenant: Tenant
    destination: DestinationName
    #: At least one; sorted.
    command_types: tuple[str, ...]
    level: Level = Level.L1
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    #: Where the public keys are followed; None where they are handed out as a file only.
    keys_url: str | None = None
    #: A secret is shared beside the public keys: it is handed over by another way.
    has_secret: bool = False
    #: What the tenant's catalogue says of the command types, where it has them.
    catalogue: tuple[CommandTypeConfig, ...] = ()
    #: Types whose Avro data its routes want as JSON.
    as_json: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what no destination can be."""
        for name in (self.tenant, self.destination):
            if not NAME_PATTERN.match(name):
                raise ConfigError(f"{name!r}: lower case letters, digits and -, at most 30, a letter first")
        if not self.command_types:
            raise ConfigError(f"{self.tenant}/{self.destination}: no command type goes there; name one with --type")


def rendered(config: FabricConfig, tenant: str) -> frozenset[str]:
    """Return the types whose Avro data the tenant's routes want as JSON."""
    found = config.tenant(tenant)
    routes = found.routes if found is not None else ()
    return frozenset(route.command_type for route in routes if route.rendering is Rendering.JSON)


def invited_by(config: FabricConfig, tenant: str, destination: str) -> tuple[tuple[str, ...], Level | None, bool]:
    """Return what a configuration says of a destination: the types routed there, its level, whether it has a secret."""
    found, owner = config.tenant(tenant), config.destination(tenant, destination)
    routes = found.routes if found is not None else ()
    types = sorted({route.command_type for route in routes if destination in route.destinations})
    return tuple(types), owner.level if owner else None, owner is not None and owner.hmac_secret is not None


def catalogued(config: FabricConfig, tenant: str, command_types: Iterable[str]) -> tuple[CommandTypeConfig, ...]:
    """Return what the tenant's catalogue says of some command types; those it lacks are left out."""
    found, wanted = config.tenant(tenant), set(command_types)
    return tuple(each for each in (found.command_types if found else ()) if each.name in wanted)
