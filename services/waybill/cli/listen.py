"""`waybill listen module:listener`: run a listener alone."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.cli.output import JsonFlag, console
from waybill.kernel.errors import ConfigError
from waybill.listener.server import serve

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="Run a listener alone: `waybill listen module:listener`.")

TargetArgument = Annotated[str, typer.Argument(help="module:attribute of a Listener, or of an ASGI application.")]
HostOption = Annotated[str, typer.Option("--host", help="Address to bind.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")]


@app.command()
def listen(
    target: TargetArgument, host: HostOption = "127.0.0.1", port: PortOption = 8000, as_json: JsonFlag = False
) -> None:
    """Serve a listener until SIGTERM or Ctrl-C; requests under way are finished first.

    With --json the address is one JSON line on stdout, printed when requests are taken.
    """
    found = _load(target)

    def told(url: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url, "target": target}) + "\n")
            sys.stdout.flush()
        else:
            console.print(f"{target} listens on {url} (health: {url}/healthz)", markup=False, highlight=False)

    serve(found, host=host, port=port, on_start=told)


def _load(target: str) -> Any:
    """Import the application; the current folder is looked in first, as for a script."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r}: expected module:attribute, for example app:listener")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    found: Any
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise ConfigError(f"{module_name} needs a module that is not here: {error.name}") from error
        raise ConfigError(f"no module {module_name!r} here or in the environment") from error
    for name in attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise ConfigError(f"module {module_name!r} has no {attribute!r}")
    if not callable(found):
        raise ConfigError(f"{target!r} is not an ASGI application")
    return found
