"""`waybill apply` and `waybill diff`: from `fabric.yaml` to a fabric that is as the file says."""

import getpass
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from waybill.cli.fabric_file import read_fabric
from waybill.cli.fabric_ports import RelayLogin, real_ports
from waybill.cli.migrate import migrate_all
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.fabric import FabricConfig
from waybill.fabric import Applied, Applier, Drift, FabricStore, Plan, Problem, Result, Step, plan, render
from waybill.fabric.core.document import Plain
from waybill.fabric.core.plan import Action, Change
from waybill.infra.addresses import Addresses, environment
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["apps"]

apply_app = typer.Typer(help="Make the fabric what fabric.yaml says.")
diff_app = typer.Typer(help="Show where file, applied configuration and reality differ.")
apps = {"apply": apply_app, "diff": diff_app}

FileOption = Annotated[Path, typer.Option("--file", "-f", help="The fabric.yaml; - reads standard input.")]
RelaySecretOption = Annotated[
    str | None,
    typer.Option(
        "--relay-secret",
        help="FILE:KEY where Kafka Connect finds the relay's password. Default: WAYBILL_RELAY_SECRET, else the local stack's.",
    ),
]
RelayUserOption = Annotated[str, typer.Option("--relay-user", help="Role the connectors log in with.")]


@apply_app.command()
def apply_command(  # noqa: PLR0913, PLR0917 - one parameter per flag is how a command line is declared
    file: FileOption,
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would change; write nothing anywhere."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask before changing something."),
    comment: str = typer.Option("", "--comment", help="Why; kept with the version."),
    relay_user: RelayUserOption = "waybill_relay",
    relay_secret: RelaySecretOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make the fabric what fabric.yaml says: topics, groups, outboxes, rows, connectors, in that order.

    The same file twice changes nothing; an apply that was interrupted is finished by repeating it. Exit 2 when the file
    is wrong or a step is refused, 3 when a part does not answer.
    """
    wanted = _read(file, as_json=as_json)
    addresses = Addresses.load()
    control_dsn = addresses.need("control_dsn")
    current = _applied(control_dsn)
    step = plan(current, wanted)
    if dry_run or step.refusals:
        _show_plan(step, current.version, as_json=as_json, dry_run=dry_run)
        if step.refusals:
            raise typer.Exit(2)
        return
    _ask(step, yes=yes or as_json)
    ports = real_ports(addresses, SystemClock(), _login(relay_user, relay_secret))
    migrate_all(control_dsn)
    who = Applied(at=SystemClock().now(), by=_user(), comment=comment)
    with _store(control_dsn) as store:
        result = Applier(store, ports, _tell).apply(wanted, who)
    _show_result(result, current.version, as_json=as_json)


@diff_app.command()
def diff_command(
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A fabric.yaml to compare with what is applied.")
    ] = None,
    applied: bool = typer.Option(False, "--applied", help="Print what is applied as a fabric.yaml and end."),
    relay_user: RelayUserOption = "waybill_relay",
    relay_secret: RelaySecretOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare the file with what is applied, and what is applied with topics, groups, outboxes and connectors.

    With a file only its tenants are looked at. Changes nothing. Exit 1 when anything differs.
    """
    addresses = Addresses.load()
    control_dsn = addresses.need("control_dsn")
    current = _applied(control_dsn)
    if applied:
        sys.stdout.write(render(current))
        return
    wanted = _read(file, as_json=as_json) if file is not None else None
    step = plan(current, wanted) if wanted is not None else Plan(changes=(), refusals=())
    found: list[Drift] = []
    if current.version:
        ports = real_ports(addresses, SystemClock(), _login(relay_user, relay_secret))
        with _store(control_dsn) as store:
            names = {tenant.name for tenant in wanted.tenants} if wanted is not None else None
            found = list(Applier(store, ports, _tell).drift(names))
    _show_diff(step, found, current.version, as_json=as_json)
    if step.changes or step.refusals or found:
        raise typer.Exit(1)


def _read(file: Path, *, as_json: bool) -> FabricConfig:
    """Read the file or print all its problems and end with 2."""
    found = read_fabric(file)
    if isinstance(found, FabricConfig):
        return found
    if as_json:
        print_json({"file": str(file), "problems": [_problem(problem) for problem in found]})
    else:
        for problem in found:
            line = f":{problem.line}" if problem.line else ""
            path = f" {problem.path}:" if problem.path else ""
            sys.stderr.write(f"{file}{line}:{path} {problem.message} [{problem.rule}]\n")
    raise typer.Exit(2)


def _problem(problem: Problem) -> dict[str, Any]:
    return {"line": problem.line, "field": problem.path, "rule": problem.rule, "message": problem.message}


def _applied(control_dsn: str) -> FabricConfig:
    """Return what is applied; nothing where `waybill migrate` never ran."""
    with _store(control_dsn) as store:
        try:
            return store.current()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return FabricConfig(version=0)


@contextmanager
def _store(control_dsn: str) -> Iterator[FabricStore]:
    with closing(connect(control_dsn, application_name="waybill-apply", autocommit=True)) as connection:
        yield FabricStore(connection)


def _login(user: str, secret: str | None) -> RelayLogin:
    place = secret or environment().get("WAYBILL_RELAY_SECRET")
    if place is None:
        from waybill.devstack import load as load_stack  # only here: an installation without a local stack lacks it

        try:
            place = f"{load_stack().secrets_file}:relay.password"
        except (ConfigError, UnavailableError) as error:
            raise ConfigError(
                "where does Kafka Connect find the relay's password? Give --relay-secret FILE:KEY, a properties file "
                "on Connect's machine that its file provider may read"
            ) from error
    path, colon, key = place.rpartition(":")
    if not colon or not path or not key:
        raise ConfigError(f"--relay-secret {place}: expected FILE:KEY")
    return RelayLogin(user=user, secret_file=path, secret_key=key)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _tell(step: Step) -> None:
    console.print(f"{step.value} …", markup=False, highlight=False)


def _ask(step: Plan, *, yes: bool) -> None:
    """Ask a person at a terminal; a script is taken at its word."""
    if yes or not step.changes or not sys.stdin.isatty():
        return
    _print_changes(step)
    if not typer.confirm("Apply these changes?", err=True):
        raise typer.Exit(1)


def _cell(value: Plain) -> str:
    if value is None:
        return ""
    if isinstance(value, list):  # of objects only what each is called, which is its first key
        return ", ".join(str(next(iter(each.values()))) if isinstance(each, dict) else str(each) for each in value)
    return str(value)


def _print_changes(step: Plan) -> None:
    print_table("changes", ("action", "object", "field", "old", "new"), (row for c in step.changes for row in _rows(c)))


def _rows(change: Change) -> Iterator[tuple[str, ...]]:
    """One row for each field that changes; one in all for an object that comes or goes."""
    action, name = change.action.value, str(change.key)
    if change.action is Action.UPDATE:
        for field in change.fields:
            yield action, name, field.field, _cell(field.old), _cell(field.new)
        return
    old, new = (
        "; ".join(f"{each.field} {_cell(value)}" for each in change.fields if (value := pick(each)) not in (None, ""))
        for pick in (attrgetter("old"), attrgetter("new"))
    )
    yield action, name, "", old, new


def _plan_document(step: Plan) -> dict[str, Any]:
    return {
        "changes": [
            {
                "action": change.action.value,
                "kind": change.key.kind.value,
                "tenant": change.key.tenant,
                "name": change.key.name,
                "fields": [{"field": each.field, "old": each.old, "new": each.new} for each in change.fields],
            }
            for change in step.changes
        ],
        "refusals": [
            {
                "kind": refusal.key.kind.value,
                "tenant": refusal.key.tenant,
                "name": refusal.key.name,
                "rule": refusal.rule,
                "message": refusal.message,
            }
            for refusal in step.refusals
        ],
    }


def _show_plan(step: Plan, version: int, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json({"version": version, "dry_run": dry_run, "applied": False, **_plan_document(step)})
        return
    if step.changes:
        _print_changes(step)
    _print_refusals(step)
    if dry_run and not step.refusals:
        console.print(f"version {version}: {_count(step)}, nothing written", highlight=False)


def _print_refusals(step: Plan) -> None:
    for refusal in step.refusals:
        sys.stderr.write(f"refused: {refusal.key}: {refusal.message} [{refusal.rule}]\n")


def _count(step: Plan) -> str:
    return f"{len(step.changes)} changes" if step.changes else "no change"


def _show_result(result: Result, before: int, *, as_json: bool) -> None:
    if result.plan.refusals:  # another apply came between
        _show_plan(result.plan, result.version, as_json=as_json, dry_run=False)
        raise typer.Exit(2)
    if as_json:
        document = {"version": result.version, "previous": before, "dry_run": False, "applied": True}
        print_json({**document, **_plan_document(result.plan)})
        return
    if result.plan.changes:
        _print_changes(result.plan)
    console.print(f"version {result.version}: {_count(result.plan)}", highlight=False)


def _show_diff(step: Plan, found: list[Drift], version: int, *, as_json: bool) -> None:
    if as_json:
        drift = [{"subject": each.subject, "expected": each.expected, "found": each.found} for each in found]
        is_in_step = not (step.changes or step.refusals or found)
        print_json({"version": version, "in_step": is_in_step, **_plan_document(step), "drift": drift})
        return
    if step.changes:
        _print_changes(step)
    _print_refusals(step)
    if found:
        rows = [(each.subject, each.expected, each.found) for each in found]
        print_table("reality", ("subject", "expected", "found"), rows)
    if not (step.changes or step.refusals or found):
        console.print(f"version {version}: in step", highlight=False)
