"""`waybill catalogue`: what command types there are, and what may be in them."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from waybill.cli.fabric_file import read_fabric
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.commandtypes import schema_uri
from waybill.commandtypes.core.asyncapi import asyncapi
from waybill.commandtypes.core.pages import pages
from waybill.contracts.fabric import CommandTypeConfig, FabricConfig, TenantConfig, TypeVersion
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Command types: what they order and what is in them."
)

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="A fabric.yaml in place of what is applied; - reads standard input.")
]


@app.callback()
def _group() -> None:
    """Command types: what they order and what is in them."""


@app.command("list")
def list_command(tenant: TenantArgument, file: FileOption = None, as_json: JsonFlag = False) -> None:
    """List the command types of a tenant's catalogue."""
    found, _ = _tenant(tenant, file)
    if as_json:
        print_json({"tenant": tenant, "command_types": [_document(found, each) for each in found.command_types]})
        return
    rows = [
        (each.name, each.owner, each.pii, ", ".join(version.version for version in each.versions), each.description)
        for each in found.command_types
    ]
    print_table(f"command types of {tenant}", ("type", "owner", "pii", "versions", "description"), rows)


@app.command()
def show(
    tenant: TenantArgument,
    command_type: Annotated[str, typer.Argument(help="The command type.")],
    file: FileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one command type: where it goes, and the schema and example of each version."""
    found, _ = _tenant(tenant, file)
    declared = next((each for each in found.command_types if each.name == command_type), None)
    if declared is None:
        known = ", ".join(each.name for each in found.command_types) or "none"
        raise ConfigError(f"{command_type} is not in the catalogue of {tenant}; in it are: {known}")
    if as_json:
        print_json(_document(found, declared))
        return
    print_table(f"{declared.name}: {declared.description}", ("field", "value"), _fields(found, declared))
    rows = [(each.version, _pretty(each.schema), each.example) for each in declared.versions]
    print_table("versions", ("version", "schema", "example"), rows)


@app.command()
def docs(
    tenant: TenantArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder to write into; files of the same names are replaced.")],
    file: FileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a page for each command type, one that lists them, and the AsyncAPI document."""
    found, version = _tenant(tenant, file)
    files = {**pages(found, version), "asyncapi.json": _json(asyncapi(found, version))}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out}: {error.strerror}") from error
    if as_json:
        print_json({"out": str(out), "files": sorted(files)})
    else:
        console.print(f"wrote {len(files)} files to {out}", markup=False, highlight=False)


@app.command("asyncapi")
def asyncapi_command(
    tenant: TenantArgument,
    file: FileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the catalogue as an AsyncAPI 3.0.0 document."""
    print_json(asyncapi(*_tenant(tenant, file)))


def _tenant(name: str, file: Path | None) -> tuple[TenantConfig, int]:
    """Return a tenant as applied, or as a file declares it, and the version of its configuration."""
    config = _applied() if file is None else _declared(file)
    found = config.tenant(name)
    if found is None:
        known = ", ".join(tenant.name for tenant in config.tenants) or "none"
        raise ConfigError(f"no tenant {name} in {file or 'the applied configuration'}; in it are: {known}")
    return found, config.version


def _declared(file: Path) -> FabricConfig:
    found = read_fabric(file)
    if isinstance(found, FabricConfig):
        return found
    raise ConfigError(f"{file} has problems: `waybill apply --dry-run -f {file}` names them")


def _applied() -> FabricConfig:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-catalogue", autocommit=True)) as connection:
        try:
            return load_applied(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return FabricConfig(version=0)


def _document(tenant: TenantConfig, declared: CommandTypeConfig) -> dict[str, Any]:
    return {
        "name": declared.name,
        "owner": declared.owner,
        "pii": declared.pii,
        "description": declared.description,
        "format": declared.format,
        "destinations": _destinations(tenant, declared),
        "versions": [_version(tenant, declared, each) for each in declared.versions],
    }


def _version(tenant: TenantConfig, declared: CommandTypeConfig, version: TypeVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "data_schema": schema_uri(tenant.name, declared.name, version.version),
        "schema": json.loads(version.schema),
        "example": version.example,
    }


def _destinations(tenant: TenantConfig, declared: CommandTypeConfig) -> list[str]:
    return [name for route in tenant.routes if route.command_type == declared.name for name in route.destinations]


def _fields(tenant: TenantConfig, declared: CommandTypeConfig) -> list[tuple[str, str]]:
    return [
        ("owner", declared.owner),
        ("pii", declared.pii),
        ("format", declared.format),
        ("destinations", ", ".join(_destinations(tenant, declared)) or "whom producers name"),
        ("data_schema", schema_uri(tenant.name, declared.name, "<version>")),
    ]


def _pretty(text: str) -> str:
    return _json(json.loads(text)).rstrip()


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
