"""`waybill events`: what became of deliveries and of destinations, told to destinations."""

import signal
import threading
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.events import DELIVERY_EVENTS, DESTINATION_EVENTS
from waybill.events.main import run
from waybill.infra import log
from waybill.infra.addresses import Addresses

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="What became of deliveries and destinations, told to destinations like commands."
)


@app.command("run")
def run_command(
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /healthz and /readyz here; 0 takes a free port.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Write the events that routes ask for into the outbox until SIGTERM or SIGINT. SIGKILL is as safe.

    One process is enough; of several, one works for each tenant and the others take over.
    """
    log.configure(level=log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(Addresses.load(), stop, console.print, metrics_port=metrics_port)


@app.command("types")
def types_command(as_json: JsonFlag = False) -> None:
    """Show the events there are: the types that routes may ask for."""
    told = [(event, "delivery", state.value) for state, event in DELIVERY_EVENTS.items()]
    told += [(event, "destination", standing) for standing, event in DESTINATION_EVENTS.items()]
    if as_json:
        print_json([{"type": event, "about": about, "state": state} for event, about, state in told])
        return
    print_table("events", ("type", "about", "when it became"), told)
