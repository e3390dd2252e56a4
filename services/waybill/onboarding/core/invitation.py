"""Who is invited, to receive what, and what is expected of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from waybill.contracts.fabric import CommandTypeConfig, FabricConfig, Level, Profile, Rendering, Transport
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, DestinationName, Tenant

__all__ = ["Declared", "Invitation", "TopicDoor", "catalogued", "declared_of", "rendered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDoor:
    """How a destination that takes its deliveries from Kafka finds them."""

    #: As the team reaches them: `host:port`, separated by commas.
    brokers: str
    #: The consumer group of its listeners where the declaration names one; None is the one the fabric watches anyway.
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a configuration says of a destination; nothing where it is not there yet."""

    command_types: tuple[str, ...] = ()
    level: Level | None = None
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    has_secret: bool = False
    transport: Transport | None = None
    group: str | None = None


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
    #: None takes deliveries over HTTP.
    topic: TopicDoor | None = None
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
        if self.topic is not None and self.profile is Profile.NON_IDEMPOTENT:
            raise ConfigError("--profile non_idempotent: what was read and not committed is read again over Kafka")


def rendered(config: FabricConfig, tenant: str) -> frozenset[str]:
    """Return the types whose Avro data the tenant's routes want as JSON."""
    found = config.tenant(tenant)
    routes = found.routes if found is not None else ()
    return frozenset(route.command_type for route in routes if route.rendering is Rendering.JSON)


def declared_of(config: FabricConfig, tenant: str, destination: str) -> Declared:
    """Return what a configuration says of a destination."""
    found, owner = config.tenant(tenant), config.destination(tenant, destination)
    routes = found.routes if found is not None else ()
    types = tuple(sorted({route.command_type for route in routes if destination in route.destinations}))
    if owner is None:
        return Declared(command_types=types)
    return Declared(
        command_types=types,
        level=owner.level,
        profile=owner.profile,
        has_secret=owner.hmac_secret is not None,
        transport=owner.transport,
        group=owner.listener_group,
    )


def catalogued(config: FabricConfig, tenant: str, command_types: Iterable[str]) -> tuple[CommandTypeConfig, ...]:
    """Return what the tenant's catalogue says of some command types; those it lacks are left out."""
    found, wanted = config.tenant(tenant), set(command_types)
    return tuple(each for each in (found.command_types if found else ()) if each.name in wanted)
