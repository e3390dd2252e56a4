"""`waybill worker`: run the delivery worker."""

from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import console
from waybill.delivery.main import RunOptions, run
from waybill.infra import log
from waybill.infra.addresses import Addresses, environment, home_folder
from waybill.readmodel.standing import ReadModelStanding

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Deliver commands: lanes, retries, outcomes.")


@app.callback()
def _group() -> None:
    """Deliver commands: lanes, retries, outcomes."""


@app.command("run")
def run_worker(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant; all without it.")] = None,
    destination: Annotated[str | None, typer.Option(help="Only the destination of this name.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Serve /metrics, /healthz, /readyz and the public keys here; 0 takes a free port."),
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Name of this process among all workers, stable over restarts.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run one worker process until SIGTERM or SIGINT; it drains, then leaves. SIGKILL is as safe.

    Start as many as there is work for, up to the number of partitions: Kafka shares the partitions out.
    """
    environ = environment()
    log.configure(level=log_level)
    options = RunOptions(tenant=tenant, destination=destination, metrics_port=metrics_port, slot=slot)
    slots = home_folder(environ, Path.cwd()) / "worker-slots"
    run(Addresses.load(), options, environ, slots, console.print, ReadModelStanding)
