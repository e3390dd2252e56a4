"""`waybill schemas`: the Avro files against the rules and the registry."""

from pathlib import Path
from typing import Annotated

import typer

from waybill.catalog import SchemaResult, apply_schemas, check_schemas, load_schemas
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.addresses import Addresses
from waybill.infra.registry import Registry

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Avro schemas as files: lint, compatibility, registration.")

RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="Confluent-compatible root. Default: WAYBILL_REGISTRY_URL.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of schema files. Default: those of this installation.", exists=True),
]


@app.command("check")
def check_command(
    registry: RegistryOption = None,
    folder: FolderOption = None,
    offline: bool = typer.Option(False, "--offline", help="Lint the files only; ask no registry."),
    as_json: JsonFlag = False,
) -> None:
    """Lint the files and ask the registry whether they fit. Exit 1 when one is incompatible, 2 when one is wrong."""
    files = load_schemas(folder)
    if offline:
        _show([SchemaResult(subject=f.subject, file=f.file, state="linted", schema_id=None) for f in files], as_json)
        return
    results = check_schemas(_registry(registry), files)
    _show(results, as_json)
    if any(result.state == "incompatible" for result in results):
        raise typer.Exit(1)


@app.command("apply")
def apply_command(
    registry: RegistryOption = None,
    folder: FolderOption = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Register nothing: the same as check."),
    as_json: JsonFlag = False,
) -> None:
    """Register what is new: FULL_TRANSITIVE first, then the check, then the version. All or nothing."""
    files = load_schemas(folder)
    if dry_run:
        check_command(registry=registry, folder=folder, offline=False, as_json=as_json)
        return
    results = apply_schemas(_registry(registry), files)
    _show(results, as_json)


def _registry(url: str | None) -> Registry:
    return Registry(url or Addresses.load().need("registry_url"))


def _show(results: list[SchemaResult], as_json: bool) -> None:
    if as_json:
        rows = [
            {"subject": r.subject, "file": r.file, "state": r.state, "id": r.schema_id, "messages": list(r.messages)}
            for r in results
        ]
        print_json({"schemas": rows})
        return
    rows_shown = [(r.subject, r.file, r.state, r.schema_id) for r in results]
    print_table("schemas", ("subject", "file", "state", "id"), rows_shown)
    for result in results:
        for message in result.messages:
            console.print(f"{result.file}: {message}")
