"""`waybill requests`: fold requests, and look at what they have come to."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated, Any

import psycopg
import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra import log
from waybill.infra.addresses import Addresses
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.readmodel import Settings
from waybill.requests.main import Places, run
from waybill.requests.query import MAX_PAGE, list_requests, show_request

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What requests, the parents of deliveries, have come to.")

TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")]


@app.command("run")
def run_command(
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="Only this tenant; repeatable. Default: every tenant.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Fold requests until SIGTERM or SIGINT. SIGKILL is as safe: what was not written is read again.

    One process is enough; more of them share the tenants and take over.
    """
    log.configure(level=log_level)
    known = Addresses.load()
    places = Places(
        kafka=known.need("kafka"), registry_url=known.need("registry_url"), control_dsn=known.need("control_dsn")
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console.print("folding requests", highlight=False)
    run(places, Settings(tenants=frozenset(tenant or ()), name="requests"), stop)


@app.command("list")
def list_command(
    tenant: TenantOption = None,
    is_complete: Annotated[
        bool | None, typer.Option("--complete/--open", help="Only those that are complete, or are not.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on behind this request; it needs --tenant.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many at most.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List requests in the order of their ids, and how much of each is done."""
    if after is not None and tenant is None:
        raise ConfigError("--after goes on behind a request of one tenant: name it with --tenant")
    place = (tenant, after) if tenant is not None and after is not None else None
    with _control() as connection:
        found = list_requests(connection, tenant, is_complete=is_complete, after=place, limit=limit)
    if as_json:
        print_json([_document(row) for row in found])
        return
    columns = ("tenant", "request", "is", "commands", "done", "excused", "open", "changed")
    print_table("requests", columns, [_cells(row) for row in found])


@app.command("show")
def show_command(
    request: Annotated[str, typer.Argument(metavar="ID", help="The request's id.")],
    tenant: TenantOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a request waits for: its deliveries, what was told about it, and until when it leans on exceptions."""
    with _control() as connection:
        found = show_request(connection, tenant, request)
    if not found:
        raise ConfigError(f"no request {request!r} was read yet: `waybill requests list` shows which were")
    if as_json:
        print_json([_document(row) for row in found])
        return
    for row in found:
        print_table("request", ("what", "is"), _facts(row))
        columns = ("destination", "delivery", "required", "state", "counts as", "error", "at")
        print_table("deliveries", columns, [_delivery(each) for each in row["deliveries"]])


@contextmanager
def _control() -> Iterator[psycopg.Connection[Any]]:
    with closing(connect(Addresses.load().need("control_dsn"), application_name="waybill-cli")) as connection:
        yield connection


def _is(row: Mapping[str, Any]) -> str:
    if row["is_complete"]:
        return "complete"
    return "open" if row["size"] is not None else "not sealed"


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "is_sealed": row["size"] is not None}


def _of(row: Mapping[str, Any]) -> str:
    return f"{row['commands']} of {row['size'] if row['size'] is not None else '?'}"


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["tenant"], row["request_id"], _is(row), _of(row), row["done"], row["excused"], row["open"], row["changed_at"],
    )  # fmt: skip


def _facts(row: Mapping[str, Any]) -> list[tuple[str, object]]:
    told = [(f"{turn['turn']} ({turn['number']})", turn["at"]) for turn in row["turns"]]
    return [
        ("request", row["request_id"]),
        ("tenant", row["tenant"]),
        ("is", _is(row)),
        ("commands", _of(row)),
        ("leans on exceptions until", row["leans_until"] or "none"),
        *told,
    ]


def _delivery(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["destination"], row["delivery_id"], "yes" if row["required"] else "no", row["state"], _counts_as(row),
        row["error_code"] or row["detail"], row["at"],
    )  # fmt: skip


def _counts_as(row: Mapping[str, Any]) -> str:
    if row["is_replaced"]:
        return "replaced"
    if row["state"] == "acknowledged":
        return "done"
    if not row["required"]:
        return "not required"
    return "excused" if row["excused_until"] is not None else "open"
