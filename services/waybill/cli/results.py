"""`waybill results`: what destinations said later of deliveries they accepted, by whatever door it came."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from waybill.cli.output import JsonFlag, print_json, print_table
from waybill.delivery.core.results.weighing import Weighed
from waybill.delivery.results.reading import ResultFilter, find_results, list_results
from waybill.infra.addresses import Addresses
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.submission.stating import RefusedResults

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What destinations said later of deliveries they accepted.")

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]

_COLUMNS: Final = ("arrived_at", "door", "destination", "result_id", "delivery_id", "weighed", "reason", "quarantined")


@app.command("list")
def list_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: TenantArgument,
    destination: Annotated[str | None, typer.Option("--destination", help="Only of this destination.")] = None,
    delivery: Annotated[str | None, typer.Option("--delivery", help="Only of this delivery, by its id.")] = None,
    weighed: Annotated[
        Weighed | None, typer.Option("--weighed", help="Only what this became of; waiting: not yet weighed.")
    ] = None,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Only of destinations whose clock was wrong.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List results, newest first: what became of each, and why a refused one was.

    The door is `topic` for what was heard there, published or posted, and `api` for what was posted and refused before.
    """
    wanted = ResultFilter(
        tenant=tenant,
        destination=destination,
        delivery=_uuid("--delivery", delivery) if delivery is not None else None,
        weighed=weighed,
        is_quarantined=quarantined,
        limit=limit,
    )
    with _control() as connection:
        rows = [_heard(row) for row in list_results(connection, wanted)]
        if wanted.delivery is None and weighed in {None, Weighed.REFUSED} and not quarantined:
            rows += [_refused(row) for row in RefusedResults.newest(connection, tenant, limit, destination)]
    rows = _newest(rows)[:limit]
    if as_json:
        print_json({"results": rows})
    else:
        print_table(f"results of {tenant}", _COLUMNS, rows)


@app.command("show")
def show_command(
    tenant: TenantArgument,
    result_id: Annotated[str, typer.Argument(metavar="ID", help="The result's id, as its sender gave it.")],
    as_json: JsonFlag = False,
) -> None:
    """Show one result: what it says, who signed it, what became of it, and each copy. Exit 2 when nobody sent it."""
    identity = _uuid("ID", result_id)
    with _control() as connection:
        rows = [_whole(row) for row in find_results(connection, tenant, identity)]
        rows += [_refused(row) for row in RefusedResults.of(connection, tenant, identity)]
    if not rows:
        raise ConfigError(f"{tenant}: no result {result_id} came; `waybill results list {tenant}` shows those that did")
    if as_json:
        print_json({"tenant": tenant, "records": rows})
        return
    for row in rows:
        lines = [(name, value) for name, value in row.items() if value is not None]
        print_table(f"result {result_id}", ("what", "value"), lines)


def _heard(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name != "is_quarantined"}
    return {"door": "topic", **kept, "quarantined": row["is_quarantined"]}


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with what was signed, byte for byte as it was sent where it was believed."""
    found = _heard(row)
    body = found.pop("body")
    return {**found, "body": bytes(body).decode() if body is not None else None}


def _refused(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the API refused at its own door in the form of the others."""
    return {
        "door": "api",
        "arrived_at": row["refused_at"],
        "destination": row["principal"],
        "result_id": row["result_id"],
        "weighed": Weighed.REFUSED.value,
        "reason": row["reason"],
        "access_key_id": row["key_id"],
        "quarantined": False,
        "body_sha256": row["body_sha256"],
    }


def _newest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["arrived_at"], reverse=True)


@contextmanager
def _control() -> Iterator[psycopg.Connection[Any]]:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        try:
            yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error


def _uuid(what: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise ConfigError(
            f"{what} {text}: expected a whole id, such as 0199f3c0-0000-7000-8000-000000000000"
        ) from error
