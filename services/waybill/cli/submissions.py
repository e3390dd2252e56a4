"""`waybill submissions`: what waits for a person, and what a resubmission may do."""

import asyncio
import getpass
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.fabric import OutboxConfig
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.submission import read_rule
from waybill.submission.outboxes import Outboxes
from waybill.submission.rules import list_rules, set_rule
from waybill.submission.store import Submission, Submissions

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Submissions that wait for a person, and the rules of resubmissions.")

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, in words, for the audit; no personal data.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who decides. Default: the user of this session.")]

COLUMNS = ("submission", "principal", "accepted_at", "ambiguous_at", "resubmissions", "commands")
_LIMIT = 1_000


@app.command("list")
def list_command(tenant: TenantArgument, as_json: JsonFlag = False) -> None:
    """List the tenant's ambiguous submissions: asked for again where the principal's rule leaves it to a person."""

    async def read() -> list[Submission]:
        found: list[Submission] = []
        async for connection, submissions in _each(_outboxes(tenant)):
            found += await submissions.ambiguous(connection, Tenant(tenant), None, _LIMIT)
        return found

    rows = [_row(each) for each in asyncio.run(read())]
    if as_json:
        print_json({"submissions": rows})
    else:
        print_table(
            f"ambiguous submissions of {tenant}",
            COLUMNS,
            [{**row, "commands": "\n".join(row["commands"])} for row in rows],
        )


@app.command("settle")
def settle_command(
    tenant: TenantArgument,
    submission: Annotated[UUID, typer.Argument(metavar="ID", help="The submission.")],
    why: WhyOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Note that a person looked at an ambiguous submission and dealt with it. Exit 2 where none of this id waits."""
    decided = (SystemClock().now(), by or _user(), _reason(why))

    async def settle() -> bool:
        async for connection, submissions in _each(_outboxes(tenant)):
            if await submissions.settle(connection, Tenant(tenant), submission, decided):
                return True
        return False

    if not asyncio.run(settle()):
        raise ConfigError(f"{submission}: no submission of {tenant} with this id waits for a person")
    if as_json:
        print_json({"submission": submission, "settled_by": decided[1], "why": decided[2]})
    else:
        console.print(f"{submission}: settled", markup=False, highlight=False)


@app.command("rule")
def rule_command(
    tenant: TenantArgument,
    principal: Annotated[str, typer.Argument(help="The holder of the API keys.")],
    rule: Annotated[str, typer.Argument(help="never, always, or 'within 24h'.")],
    why: WhyOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what a resubmission of a principal may do: be answered always, within a time, or never but by a person."""
    wanted = read_rule(rule)
    with _control() as connection:
        set_rule(connection, SystemClock(), (Tenant(tenant), principal), wanted, (by or _user(), _reason(why)))
    if as_json:
        print_json({"tenant": tenant, "principal": principal, "rule": str(wanted)})
    else:
        console.print(f"{tenant}/{principal}: {wanted}", markup=False, highlight=False)


@app.command("rules")
def rules_command(
    tenant: Annotated[str | None, typer.Argument(help="Only this tenant.")] = None, as_json: JsonFlag = False
) -> None:
    """Show the rules that were set, the one in force first, with who and why. Where there is none it is `always`."""
    with _control() as connection:
        rows = list_rules(connection, tenant)
    if as_json:
        print_json({"rules": list(rows)})
    else:
        print_table("rules of resubmissions", ("tenant", "principal", "rule", "set_at", "set_by", "why"), rows)


def _row(submission: Submission) -> dict[str, Any]:
    return {
        "submission": str(submission.submission_id),
        "principal": submission.principal,
        "accepted_at": submission.accepted_at,
        "ambiguous_at": submission.ambiguous_at,
        "resubmissions": submission.resubmissions,
        "commands": [each["commandId"] for each in submission.commands],
    }


def _outboxes(tenant: str) -> tuple[OutboxConfig, ...]:
    with _control() as connection:
        found = load_applied(connection).tenant(tenant)
    if found is None:
        raise ConfigError(f"{tenant}: no such tenant is applied")
    return found.outboxes


async def _each(configs: tuple[OutboxConfig, ...]) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], Submissions]]:
    async with _opened() as outboxes:
        for config in configs:
            async with outboxes.connection(config) as (connection, submissions):
                yield connection, submissions


@asynccontextmanager
async def _opened() -> AsyncIterator[Outboxes]:
    outboxes = Outboxes()
    try:
        yield outboxes
    finally:
        await outboxes.close()


@contextmanager
def _control() -> Iterator[psycopg.Connection[Any]]:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        try:
            yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error


def _reason(why: str) -> str:
    if not why.strip():
        raise ConfigError("--why: expected the reason, for whoever reads it later")
    return why.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
