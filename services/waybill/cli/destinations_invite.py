"""`waybill destinations invite`: write the kit for a new destination team."""

from pathlib import Path
from typing import Annotated, Final

import typer

from waybill.cli.fabric_file import read_fabric
from waybill.cli.output import JsonFlag, console, print_json
from waybill.contracts.fabric import FabricConfig, Level, Profile, Transport
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.onboarding import Invitation, make_kit, write_kit
from waybill.onboarding.core.invitation import Declared, TopicDoor, catalogued, declared_of, rendered

__all__ = ["invite_command"]

_BROKERS: Final = "kafka.example:9092"


def invite_command(  # noqa: PLR0913, PLR0917 - one parameter per flag is how a command line is declared
    tenant: Annotated[str, typer.Argument(help="The tenant whose commands will be sent.")],
    destination: Annotated[str, typer.Argument(help="The name of the destination; need not be declared yet.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make, or a file that ends in .zip.")],
    types: Annotated[
        list[str] | None, typer.Option("--type", help="A command type it will receive. Repeatable.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="fabric.yaml: types, their pages, level and transport as it declares them."),
    ] = None,
    level: Annotated[Level | None, typer.Option("--level", help="What is expected; else as declared, else L1.")] = None,
    profile: Annotated[
        Profile | None,
        typer.Option("--profile", help="What the team says it can bear; else as declared, else durable_idempotent."),
    ] = None,
    keys_url: Annotated[
        str | None, typer.Option("--keys-url", help="Where the public keys are followed, as https://….")
    ] = None,
    transport: Annotated[
        Transport | None, typer.Option("--transport", help="How deliveries reach it; else as declared, else http.")
    ] = None,
    kafka: Annotated[
        str, typer.Option("--kafka", help="Over Kafka: the brokers as the team reaches them, host:port,….")
    ] = _BROKERS,
    keys_dir: Annotated[
        Path | None, typer.Option("--keys-dir", help="Folder of all tenants' keys; else as for `waybill keys`.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write all that a team needs for its first listener: keys, samples, a listener, the steps.

    Over HTTP it runs with Node alone. Over Kafka it tells of topics, group and rights, and runs with the Python SDK.
    Nothing in it is a secret of the fabric: samples and sandbox are signed with keys made for this kit. What is at
    --out already stays.
    """
    if keys_url is not None and not keys_url.startswith(("https://", "http://")):
        raise ConfigError("--keys-url: expected https://…")
    config = _declared(file)
    declared = declared_of(config, tenant, destination)
    command_types = tuple(sorted({*(types or ()), *declared.command_types}))
    invited = Invitation(
        tenant=Tenant(tenant),
        destination=DestinationName(destination),
        command_types=command_types,
        catalogue=catalogued(config, tenant, command_types),
        as_json=rendered(config, tenant),
        level=level or declared.level or Level.L1,
        profile=profile or declared.profile,
        keys_url=keys_url,
        topic=_topic(declared, transport, kafka),
        has_secret=declared.has_secret,
    )
    files = make_kit(invited, keys_dir or Path(Addresses.load().need("keys_dir")), SystemClock().now())
    write_kit(files, out)
    if as_json:
        print_json({"out": str(out), "command_types": list(invited.command_types), "files": sorted(files)})
    else:
        console.print(f"wrote {len(files)} files to {out}; README.md has the steps", markup=False, soft_wrap=True)


def _topic(declared: Declared, transport: Transport | None, brokers: str) -> TopicDoor | None:
    if declared.transport is not None and transport not in {None, declared.transport}:
        raise ConfigError(f"--transport {transport}: it is declared as {declared.transport}")
    wanted = transport or declared.transport or Transport.HTTP
    return TopicDoor(brokers=brokers, group=declared.group) if wanted is Transport.KAFKA else None


def _declared(file: Path | None) -> FabricConfig:
    if file is None:
        return FabricConfig(version=0)
    found = read_fabric(file)
    if isinstance(found, FabricConfig):
        return found
    raise ConfigError(f"{file} has problems: `waybill apply --dry-run -f {file}` names them")
