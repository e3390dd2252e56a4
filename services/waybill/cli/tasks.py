"""`waybill tasks`: open tasks after the control database was set back."""

from dataclasses import asdict
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.delivery.beacons.main import Scope, rebuild_tasks
from waybill.infra import log
from waybill.infra.addresses import Addresses

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Open tasks after the control database was set back.")


@app.callback()
def _root() -> None:
    """Open tasks after the control database was set back."""


@app.command("rebuild")
def rebuild_command(
    tenant: Annotated[str, typer.Option("--tenant", help="Whose deliveries.")],
    destination: Annotated[str | None, typer.Option("--destination", help="Only this destination.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Only this partition.")] = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Write nothing, shut nobody out: only count."),
    as_json: JsonFlag = False,
) -> None:
    """After the control database was restored, or failed over with a loss: write again what it lost, from the topics.

    Partitions whose database was not set back are left alone. Workers may run: they go on by themselves. Safe to run
    twice, and to end anywhere. Exit 1 when a partition is refused because the topics do not hold what is needed.
    """
    log.configure(level="warning")
    scope = Scope(tenant=tenant, destination=destination, partition=partition)
    found = rebuild_tasks(Addresses.load(), scope, lambda what: console.print(what, highlight=False), dry_run=dry_run)
    if as_json:
        print_json({"tenant": tenant, "dry_run": dry_run, "partitions": [asdict(each) for each in found]})
    else:
        columns = ("destination", "partition", "set back", "knew until", "commands", "rows", "ambiguous", "notes")
        rows = [
            (
                each.destination,
                each.partition,
                "refused" if each.refused else "yes" if each.was_rewound else "no",
                each.known_until,
                each.commands,
                each.rows,
                each.ambiguous,
                each.notes,
            )
            for each in found
        ]
        print_table("would be written" if dry_run else "written", columns, rows)
    if any(each.refused for each in found):
        raise typer.Exit(1)
