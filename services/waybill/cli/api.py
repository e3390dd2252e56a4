"""`waybill api run`: the submission API, for producers that come over HTTP."""

import json
import sys
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console
from waybill.infra import log
from waybill.infra.addresses import Addresses
from waybill.kernel.errors import ConfigError
from waybill.submission.main import run

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The submission API: commands over HTTP into the outbox.")


@app.callback()
def _group() -> None:
    """The submission API: commands over HTTP into the outbox."""


@app.command("run")
def run_command(
    listen: Annotated[str, typer.Option("--listen", help="host:port; port 0 takes a free one.")] = "127.0.0.1:8090",
    as_json: JsonFlag = False,
) -> None:
    """Serve the submission API until SIGTERM or Ctrl-C; requests under way are finished first.

    With --json the address is one JSON line on stdout, printed when requests are taken. TLS is the business of what
    stands before it.
    """
    host, port = _address(listen)
    log.configure()

    def told(url: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url}) + "\n")
            sys.stdout.flush()
        else:
            console.print(f"submission API on {url} (health: {url}/healthz)", markup=False, highlight=False)

    run(Addresses.load().need("control_dsn"), host=host, port=port, on_start=told)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen {text}: expected host:port, such as 127.0.0.1:8090")
    return host.strip("[]"), int(port)
