"""`waybill outbox`: put the outbox into a producer's database, look it over, keep its days."""

from collections.abc import Sequence
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.outbox.check import check as check_database
from waybill.outbox.core.preflight import Finding, Severity
from waybill.outbox.housekeeping import Action, Housekeeping
from waybill.outbox.housekeeping import housekeep as run_housekeeping
from waybill.outbox.install import Roles, sql_text
from waybill.outbox.install import install as run_install

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The outbox in a producer's database.")

DsnOption = Annotated[
    str, typer.Option("--dsn", envvar="WAYBILL_OUTBOX_DSN", help="The producer's database, as a libpq URI.")
]
SchemaOption = Annotated[str, typer.Option("--schema", help="The outbox's database schema.")]
AppRoleOption = Annotated[str, typer.Option("--app-role", help="The role the application logs in as.")]
RelayRoleOption = Annotated[str, typer.Option("--relay-role", help="The role the relay logs in as.")]


@app.command()
def sql(
    schema: SchemaOption = "waybill",
    app_role: AppRoleOption = "waybill_app",
    relay_role: RelayRoleOption = "waybill_relay",
) -> None:
    """Print the migrations, for a team that runs Flyway, Alembic or Django; it opens no transaction itself."""
    typer.echo(sql_text(schema=schema, roles=Roles(app=app_role, relay=relay_role)))


@app.command()
def install(
    dsn: DsnOption,
    schema: SchemaOption = "waybill",
    app_role: AppRoleOption = "waybill_app",
    relay_role: RelayRoleOption = "waybill_relay",
    as_json: JsonFlag = False,
) -> None:
    """Make or upgrade the outbox, as the role that is to own it (not the application's)."""
    with connect(dsn, application_name="waybill outbox install") as connection:
        done = run_install(connection, schema=schema, roles=Roles(app=app_role, relay=relay_role))
    if as_json:
        print_json({"schema": schema, "applied": [f"{item.number:04d}_{item.name}" for item in done]})
    elif done:
        print_table(f"schema {schema}", ("number", "applied"), [(f"{item.number:04d}", item.name) for item in done])
    else:
        console.print(f"schema {schema} is up to date", highlight=False)


@app.command()
def check(
    dsn: DsnOption,
    schema: SchemaOption = "waybill",
    app_role: AppRoleOption = "waybill_app",
    relay_role: RelayRoleOption = "waybill_relay",
    as_json: JsonFlag = False,
) -> None:
    """Look a producer's database over; exit code 1 when commands would be lost, stuck or forgeable."""
    roles = Roles(app=app_role, relay=relay_role)
    with connect(dsn, application_name="waybill outbox check", autocommit=True) as connection:
        findings = check_database(connection, SystemClock(), schema=schema, roles=roles)
    is_good = all(finding.severity is not Severity.FAIL for finding in findings)
    if as_json:
        print_json({"ok": is_good, "findings": [_finding(finding) for finding in findings]})
    else:
        _table(findings)
    if not is_good:
        raise typer.Exit(1)


@app.command()
def housekeep(
    dsn: DsnOption,
    schema: SchemaOption = "waybill",
    ahead_days: Annotated[int, typer.Option("--ahead", min=1, help="Days to make partitions for.")] = 7,
    keep_days: Annotated[int, typer.Option("--keep", min=1, help="Days to keep after a day is over.")] = 7,
    slot: Annotated[
        str | None, typer.Option("--slot", help="The relay's slot; default: every logical slot of the database.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make the days ahead, drop the days that are over and relayed; exit code 1 when people must look."""
    with connect(dsn, application_name="waybill outbox housekeep", autocommit=True) as connection:
        steps = run_housekeeping(
            connection, schema, Housekeeping(ahead_days=ahead_days, keep_days=keep_days, slot=slot)
        )
    rows = [(step.action.value, step.partition, step.reason) for step in steps]
    if as_json:
        print_json({"steps": [dict(zip(("action", "partition", "reason"), row, strict=True)) for row in rows]})
    elif rows:
        print_table(f"partitions of {schema}.outbox", ("action", "partition", "reason"), rows)
    else:
        console.print("nothing to do", highlight=False)
    if any(step.action is Action.BLOCKED for step in steps):
        raise typer.Exit(1)


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "severity": finding.severity.value,
        "found": finding.found,
        "advice": finding.advice,
    }


def _table(findings: Sequence[Finding]) -> None:
    columns = ("severity", "check", "found", "advice")
    print_table("outbox check", columns, [_finding(finding) for finding in findings])
