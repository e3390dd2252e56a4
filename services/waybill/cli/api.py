"""`waybill api run`: the submission API, for producers that come over HTTP."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from waybill.access.issuers_file import read_issuers
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.fabric.store import load_applied
from waybill.infra import log
from waybill.infra.addresses import Addresses
from waybill.infra.postgres import connect
from waybill.infra.secrets import read_secret
from waybill.kernel.errors import ConfigError
from waybill.submission.main import ApiOptions, run
from waybill.submission.role import ROLE, control_sql, grant_beside_outbox, grant_in_control, outbox_sql
from waybill.submission.stating import RefusedResults

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The submission API: commands over HTTP into the outbox.")


@app.callback()
def _group() -> None:
    """The submission API: commands over HTTP into the outbox."""


@app.command("run")
def run_command(
    listen: Annotated[str, typer.Option("--listen", help="host:port; port 0 takes a free one.")] = "127.0.0.1:8090",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Serve /metrics, /healthz, /readyz on this port of 127.0.0.1; 0: a free one."
        ),
    ] = None,
    issuers: Annotated[
        Path | None, typer.Option("--issuers", help="A file that names whose OpenID Connect tokens are taken, too.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve the submission API until SIGTERM or Ctrl-C; requests under way are finished first.

    With --json the addresses are one JSON line on stdout, printed when requests are taken. TLS is the business of what
    stands before it.
    """
    host, port = _address(listen)
    log.configure()

    def told(url: str, metrics: str | None) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url} if metrics is None else {"url": url, "metrics": metrics}) + "\n")
            sys.stdout.flush()
        else:
            console.print(f"submission API on {url} (health: {url}/healthz)", markup=False, highlight=False)
            if metrics is not None:
                console.print(f"metrics on {metrics}", markup=False, highlight=False)

    addresses = Addresses.load()
    options = ApiOptions(
        host=host,
        port=port,
        metrics_port=metrics_port,
        kafka=addresses.kafka,
        issuers=read_issuers(issuers) if issuers is not None else (),
    )
    run(addresses.need("control_dsn"), options, told)


@app.command("provision")
def provision_command(
    role: Annotated[str, typer.Option("--role", help="The role; it is made without login.")] = ROLE,
    print_sql: Annotated[
        bool, typer.Option("--print", help="Print the SQL for each database, for whoever may run it; change nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the role the API logs in as: in the control database and beside the outboxes of all applied tenants.

    Connects as `waybill migrate` and `waybill apply` do. Again it changes nothing; repeat it when an outbox was added
    or waybill was upgraded. Then give the role a login, and the API connection strings that use it.
    """
    addresses = Addresses.load()
    with closing(connect(addresses.need("control_dsn"), application_name="waybill-cli", autocommit=True)) as control:
        places = [outbox for tenant in load_applied(control).tenants for outbox in tenant.outboxes]
        if not print_sql:
            grant_in_control(control, role)
    texts = [("the control database", control_sql(role))]
    for outbox in places:
        title = f"outbox {outbox.tenant}/{outbox.name}, schema {outbox.schema}"
        texts.append((title, outbox_sql(outbox.schema, role)))
        if not print_sql:
            dsn = read_secret(outbox.dsn, f"dsn of outbox {outbox.name}")
            with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
                grant_beside_outbox(connection, outbox.schema, role)
    if as_json:
        print_json({"role": role, "databases": [{"database": name, "sql": text} for name, text in texts]})
    elif print_sql:
        for name, text in texts:
            typer.echo(f"-- In {name}:\n{text}")
    else:
        print_table(f"role {role}", ("database",), [(name,) for name, _ in texts])


@app.command("refused")
def refused_command(
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List results that were posted and refused, newest first: who tried, with which key, and why."""
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        rows = RefusedResults.newest(connection, tenant, limit)
    if as_json:
        print_json({"refused": list(rows)})
    else:
        columns = ("refused_at", "principal", "key_id", "reason", "result_id", "body_sha256")
        print_table(f"refused results of {tenant}", columns, rows)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen {text}: expected host:port, such as 127.0.0.1:8090")
    return host.strip("[]"), int(port)
