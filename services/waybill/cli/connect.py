"""`waybill connect`: connector files linted, put, and watched without believing them."""

from pathlib import Path
from typing import Annotated, Final

import typer
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.addresses import Addresses, environment, stack_folder
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError
from waybill.relay import (
    OutboxConnection,
    OutboxKind,
    Recovery,
    ensure_connector,
    lint_files,
    observe,
    recover,
    render_connector,
)
from waybill.relay.core.rules import RULES

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Connectors as files: lint, put, watch.")

_SECRET_KEY: Final = "relay.password"  # noqa: S105 - the name of a key, not what is under it

ConnectOption = Annotated[
    str | None, typer.Option("--connect", help="Connect's REST root. Default: WAYBILL_CONNECT_URL.")
]
KafkaOption = Annotated[str | None, typer.Option("--kafka", help="Bootstrap servers. Default: WAYBILL_KAFKA.")]


@app.command("lint")
def lint_command(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Connector files. Default: those of this installation.")
    ] = None,
    rules: bool = typer.Option(False, "--rules", help="Print the rules and their reasons instead."),
    as_json: JsonFlag = False,
) -> None:
    """Refuse every setting that once lost, repeated or stalled somebody's rows. Exit 2 when one is found."""
    if rules:
        rows = [{"rule": rule.id, "why": rule.why} for rule in RULES]
        if as_json:
            print_json({"rules": rows})
        else:
            print_table("rules", ("rule", "why"), rows)
        return
    chosen = files or sorted(resource_dir("connect").glob("*.json"))
    faults = lint_files(chosen)
    if as_json:
        print_json(
            {
                "files": [str(file) for file in chosen],
                "faults": [
                    {"file": f.file, "line": f.line, "key": f.key, "expected": f.expected, "rule": f.rule, "why": f.why}
                    for f in faults
                ],
            }
        )
        if faults:
            raise typer.Exit(2)
    elif faults:
        raise ConfigError("\n".join(str(fault) for fault in faults))
    else:
        console.print(f"{len(chosen)} connector files: no fault")


@app.command("apply")
def apply_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    dsn: Annotated[str, typer.Option("--dsn", help="The outbox's database, with a role that may make slots.")],
    name: Annotated[str, typer.Option("--name", help="Name of the outbox; the connector is waybill-<name>.")],
    schema: Annotated[str, typer.Option("--schema", help="Database schema of the outbox.")] = "waybill",
    kind: Annotated[OutboxKind, typer.Option("--kind", help="Which table it relays.")] = OutboxKind.OUTBOX,
    user: Annotated[str, typer.Option("--user", help="Role Connect logs in with.")] = "waybill_relay",
    secret_file: Annotated[
        str | None, typer.Option("--secret-file", help="Properties file on Connect's machine. Default: the stack's.")
    ] = None,
    secret_key: Annotated[str, typer.Option("--secret-key", help="Key of the password in it.")] = _SECRET_KEY,
    address: Annotated[
        str | None, typer.Option("--address", help="host:port of the database as Connect sees it. Default: as --dsn.")
    ] = None,
    sslmode: Annotated[str, typer.Option("--sslmode", help="TLS from Connect to PostgreSQL.")] = "prefer",
    connect: ConnectOption = None,
    kafka: KafkaOption = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the configuration and put nothing."),
    as_json: JsonFlag = False,
) -> None:
    """Make slot and connector of one outbox, and prove that its task runs. Idempotent."""
    parts = _parts(dsn)
    host, _, port = (address or f"{parts['host']}:{parts['port']}").rpartition(":")
    outbox = OutboxConnection(
        name=name,
        host=host,
        port=int(port) if port.isdigit() else 5432,
        database=parts["dbname"],
        user=user,
        secret_file=secret_file or _stack_secrets(),
        secret_key=secret_key,
        schema=schema,
        kind=kind,
        sslmode=sslmode,
    )
    if dry_run:
        print_json(render_connector(outbox))
        return
    addresses, clock = Addresses.load(), SystemClock()
    api = ConnectApi(connect or addresses.need("connect_url"), clock)

    def close_hole(found: OutboxConnection) -> None:
        console.print(f"outbox {found.name} has rows older than any slot: comparing them with the topics")
        brokers = kafka or addresses.need("kafka")
        recover(
            Recovery(connector=found.connector, dsn=dsn, api=api, kafka=brokers, clock=clock, progress=console.print)
        )

    result = ensure_connector(api, dsn, outbox, close_hole=close_hole)
    if as_json:
        print_json(
            {
                "connector": result.connector,
                "slot_created": result.slot_created,
                "config_changed": result.config_changed,
                "state": result.state,
            }
        )
    else:
        done = "put" if result.config_changed else "in step"
        console.print(f"{result.connector}: {done}, {result.state}" + (", slot made" if result.slot_created else ""))


@app.command("status")
def status_command(
    connector: Annotated[list[str] | None, typer.Argument(help="Connectors. Default: all waybill-…")] = None,
    dsn: Annotated[
        list[str] | None,
        typer.Option("--dsn", help="A database of each server with outboxes. Default: the control database's server."),
    ] = None,
    stalled_after_s: Annotated[
        float, typer.Option("--stalled-after", help="Seconds without a heartbeat that mean stalled.")
    ] = 30.0,
    connect: ConnectOption = None,
    kafka: KafkaOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say how each pipe really is: slot, lag, last heartbeat. Exit 1 when one is not healthy."""
    addresses, clock = Addresses.load(), SystemClock()
    dsns = dsn or ([addresses.control_dsn] if addresses.control_dsn else [])
    api = ConnectApi(connect or addresses.need("connect_url"), clock)
    admin = KafkaAdmin(kafka or addresses.need("kafka"), clock)
    pipes = observe(api, admin, clock, dsns, connectors=connector, stalled_after_s=stalled_after_s)
    documents = [pipe.document() for pipe in pipes]
    if as_json:
        print_json({"connectors": documents})
    else:
        columns = ("connector", "health", "state", "slot", "behind", "heartbeat_age_s", "because")
        print_table("connectors", columns, [_row(document) for document in documents])
        for document in documents:
            if document["advice"]:
                console.print(f"{document['connector']}: {document['advice']}")
    if any(document["health"] not in {"healthy", "starting"} for document in documents):
        raise typer.Exit(1)


def _row(document: dict[str, object]) -> dict[str, object]:
    slot = document["slot"]
    found = slot if isinstance(slot, dict) else {}
    unknown = "missing" if document["slot_known"] else "not asked"
    return {**document, "slot": found.get("wal_status") or unknown, "behind": found.get("behind_bytes")}


def _parts(dsn: str) -> dict[str, str]:
    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError as error:
        raise ConfigError("--dsn: expected postgresql://user:password@host:port/database") from error
    if not parts.get("host") or not parts.get("dbname"):
        raise ConfigError("--dsn: expected a host and a database in postgresql://user:password@host:port/database")
    return {"host": str(parts["host"]), "port": str(parts.get("port") or 5432), "dbname": str(parts["dbname"])}


def _stack_secrets() -> str:
    path = stack_folder(environment(), Path.cwd()) / "secrets" / "connect.properties"
    if not path.is_file():
        raise ConfigError("--secret-file: expected the properties file Connect's `file` provider may read")
    return str(path)
