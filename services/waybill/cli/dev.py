"""`waybill dev`: start, look at and end the local stack."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.devstack import Stack, Wanted, down, launcher, load, reset, status, up
from waybill.kernel.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="The local stack: Kafka, Connect, registry and PostgreSQL on this machine."
)

NameOption = Annotated[
    str | None, typer.Option("--name", help="Which stack; the default is WAYBILL_STACK, else `default`.")
]


def _progress() -> Callable[[str], None]:
    began = time.monotonic()

    def show(line: str) -> None:
        console.print(f"[{time.monotonic() - began:5.1f} s] {line}", markup=False, highlight=False, soft_wrap=True)

    return show


def _record(stack: Stack) -> dict[str, object]:
    """Return what may be shown: addresses without passwords (`waybill dev env` prints those that log in)."""
    return {
        "name": stack.name,
        "backend": stack.backend,
        "folder": str(stack.folder),
        "brokers": stack.brokers,
        "kafka": stack.kafka,
        "connect_url": stack.connect_url,
        "registry_url": stack.registry_url,
        "postgres": f"{stack.postgres_host}:{stack.postgres_port}",
        "ports": dict(stack.ports),
    }


def _ports(texts: list[str]) -> dict[str, int]:
    ports = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number.isdigit() or not 0 < int(number) < 65_536:
            raise ConfigError(f"--port {text}: expected NAME=NUMBER, for example postgres=5432")
        ports[name] = int(number)
    return ports


@app.command("up")
def up_command(  # noqa: PLR0913 - one parameter per option of the command
    *,
    name: NameOption = None,
    brokers: Annotated[int | None, typer.Option(help="1, or 3 for replication factor 3 / min in-sync 2.")] = None,
    port: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER, repeatable: a port you want.")] = None,
    service: Annotated[
        list[str] | None, typer.Option(help="Start this service only, repeatable; the others can follow later.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--stack", "--backend", help="process (the default), containers or external.")
    ] = None,
    kafka: Annotated[str | None, typer.Option(envvar="WAYBILL_KAFKA", help="external: bootstrap servers.")] = None,
    connect_url: Annotated[
        str | None, typer.Option(envvar="WAYBILL_CONNECT_URL", help="external: Connect's REST address.")
    ] = None,
    registry_url: Annotated[
        str | None, typer.Option(envvar="WAYBILL_REGISTRY_URL", help="external: root of the Confluent-compatible API.")
    ] = None,
    postgres: Annotated[str | None, typer.Option(envvar="WAYBILL_POSTGRES", help="external: HOST:PORT.")] = None,
    secrets: Annotated[
        str | None, typer.Option(envvar="WAYBILL_SECRETS", help="external: a file of ROLE=PASSWORD lines.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start the stack and wait until every service does its work. Safe to repeat."""
    given = {
        "kafka": kafka,
        "connect_url": connect_url,
        "registry_url": registry_url,
        "postgres": postgres,
        "secrets": secrets,
    }
    addresses = {key: value for key, value in given.items() if value}
    wanted = Wanted(
        name=name,
        backend=backend,
        brokers=brokers,
        ports=_ports(port or []),
        services=tuple(service) if service else None,
        addresses=addresses,
    )
    stack = up(wanted, _progress())
    record = _record(stack)
    if as_json:
        print_json(record)
    else:
        rows = [(key, value) for key, value in record.items() if key != "ports"]
        print_table(f"stack {stack.name} is up", ("what", "where"), rows)


@app.command("status")
def status_command(name: NameOption = None, as_json: JsonFlag = False) -> None:
    """Show each service: up, starting or stopped. Exit code 1 unless all are up."""
    rows = status(name)
    if as_json:
        print_json(rows)
    else:
        print_table(f"stack {load(name).name}", ("service", "state", "pid", "address", "log"), rows)
    if any(row["state"] != "up" for row in rows):
        raise typer.Exit(1)


@app.command("down")
def down_command(name: NameOption = None, as_json: JsonFlag = False) -> None:
    """End the stack's own processes; data stays. Safe to repeat."""
    ended = down(name, _progress())
    if as_json:
        print_json({"ended": ended})
    else:
        typer.echo(f"ended: {', '.join(ended)}" if ended else "nothing was running")


@app.command("reset")
def reset_command(name: NameOption = None, as_json: JsonFlag = False) -> None:
    """End the stack and delete its data; downloaded programs stay."""
    reset(name, _progress())
    if as_json:
        print_json({"reset": True})
    else:
        typer.echo("deleted")


@app.command("logs")
def logs_command(
    service: Annotated[str | None, typer.Argument(help="postgres, kafka-1, connect or registry; none is all.")] = None,
    name: NameOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many last lines of each.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing; Ctrl-C ends it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the end of the services' logs."""
    stack = load(name)
    files = launcher.log_files(stack, service)
    if follow:
        raise typer.Exit(subprocess.call(["tail", "-n", str(lines), "-F", *map(str, files)]))
    ends = {file.stem: _end_of(file, lines) for file in files}
    if as_json:
        print_json(ends)
        return
    for title, text in ends.items():
        typer.echo(f"==> {title}")
        for line in text:
            typer.echo(line)


def _end_of(file: Path, lines: int) -> list[str]:
    with file.open("rb") as handle:
        handle.seek(0, os.SEEK_END)
        handle.seek(max(0, handle.tell() - 400 * lines))
        return handle.read().decode(errors="replace").splitlines()[-lines:]


@app.command("env")
def env_command(name: NameOption = None, as_json: JsonFlag = False) -> None:
    """Print `export` lines with the stack's addresses, for `eval`. They hold passwords."""
    variables = launcher.variables(load(name))
    if as_json:
        print_json(variables)
        return
    for variable, value in variables.items():
        typer.echo(f"export {variable}='{value}'")


@app.command("lock", hidden=True)
def lock_command() -> None:
    """Print the lock file of the stack's programs, resolved anew (for who changes their versions)."""
    from waybill.devstack.locking import lock_text, resolve

    with tempfile.TemporaryDirectory() as scratch:
        typer.echo(lock_text(resolve(Path(scratch))), nl=False)
