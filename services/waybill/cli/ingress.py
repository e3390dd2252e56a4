"""`waybill ingress`: events of producers that only speak Kafka, copied into the outbox."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.names import ingress_topic
from waybill.fabric.store import load_applied
from waybill.infra import log
from waybill.infra.addresses import Addresses, environment, home_folder
from waybill.infra.postgres import connect
from waybill.ingress.core.events import event_key
from waybill.ingress.core.judging import PRINCIPAL
from waybill.ingress.main import RunOptions, run
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.readmodel import ReadModel
from waybill.submission.core.resubmission import submission_id
from waybill.submission.outboxes import Outboxes
from waybill.submission.store import Submission, told_command

__all__ = ["app"]

_REFUSED = ("recorded_at", "cause", "detail", "aggregate", "partition", "offset", "value_sha256")

app = typer.Typer(no_args_is_help=True, help="Events of producers that only speak Kafka, copied into the outbox.")


@app.command("run")
def run_command(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant; all that ask for it without it.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /healthz and /readyz here; 0 takes a free port.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Name of this process among all of its kind, stable over restarts.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Copy events into the outbox until SIGTERM or SIGINT. SIGKILL is as safe: what is read again is known.

    Takes every tenant whose fabric.yaml asks for an ingress. Start more of them and Kafka shares the partitions out.
    """
    environ = environment()
    log.configure(level=log_level)
    slots = home_folder(environ, Path.cwd()) / "ingress-slots"
    options = RunOptions(tenant=tenant, metrics_port=metrics_port, slot=slot)
    run(Addresses.load(), options, environ, slots, console.print)


@app.command("find")
def find_command(
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    source: Annotated[str, typer.Option("--source", help="The event's source.")],
    identity: Annotated[str, typer.Option("--id", help="The event's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show what became of an event: its command and deliveries, and how often it came again. Exit 1 when it was not taken."""
    found = asyncio.run(_find(Tenant(tenant), event_key(source, identity)))
    if found is None:
        if as_json:
            print_json({"taken": False})
        else:
            console.print("not taken: not read yet, a dead letter, or longer ago than events are remembered")
        raise typer.Exit(1)
    commands = [told_command(each) for each in found.commands]
    if as_json:
        document = {
            "submission": found.submission_id,
            "accepted_at": found.accepted_at,
            "came_again": found.resubmissions,
            "commands": commands,
        }
        print_json({"taken": True, **document})
        return
    rows = [
        (
            command["commandId"],
            command["aggregate"],
            delivery["destination"],
            delivery["sequence"],
            delivery["deliveryId"],
        )
        for command in commands
        for delivery in command["deliveries"]
    ]
    title = f"taken {found.accepted_at:%Y-%m-%d %H:%M:%S} UTC, came again {found.resubmissions} times"
    print_table(title, ("command", "aggregate", "destination", "sequence", "delivery"), rows)


@app.command("refused")
def refused_command(
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List events that were refused, newest first, as the read model knows them: where each lies, and why."""
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        found = ReadModel(connection).refused(tenant, ingress_topic(Tenant(tenant)), limit)
    rows = [{column: row[column] for column in _REFUSED} for row in found]
    if as_json:
        print_json({"refused": rows})
    else:
        print_table(f"refused events of {tenant}", _REFUSED, rows)


async def _find(tenant: Tenant, key: str) -> Submission | None:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        applied = load_applied(connection).tenant(tenant)
    if applied is None:
        raise ConfigError(f"{tenant}: no such tenant is applied")
    outboxes = Outboxes(application_name="waybill-cli")
    try:
        for config in applied.outboxes:
            async with outboxes.connection(config) as (there, submissions):
                found = await submissions.find(there, tenant, submission_id(tenant, PRINCIPAL, key))
            if found is not None:
                return found
    finally:
        await outboxes.close()
    return None
