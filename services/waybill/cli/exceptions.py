"""`waybill exceptions`: what may stay undone, by a second person's word and for a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from waybill.cli.decisions import connect_control, who
from waybill.cli.output import JsonFlag, print_json, print_table
from waybill.exceptions import Draft, ExceptionBook, ExceptionRecord, ExceptionState, Move
from waybill.fabric.store import load_applied
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.units import parse_duration

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What may stay undone: open, approve, reject, expire, list.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the exception.")]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, in words, for the audit; no personal data.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who does it. Default: the login that runs this.")]

COLUMNS = (
    "exception_id", "state", "in_force", "permits_closure", "tenant", "destination", "delivery_id", "source", "opened_by",
    "reviewer", "expires_at", "reason",
)  # fmt: skip


@app.command("open")
def open_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    destination: Annotated[str, typer.Argument(help="The destination that does not acknowledge.")],
    delivery: Annotated[str, typer.Argument(help="The id of the delivery, in full.")],
    source: Annotated[str, typer.Option("--source", help="A link to where the reason can be read.")],
    why: WhyOption,
    reviewer: Annotated[str, typer.Option("--reviewer", help="Who has to approve it: somebody else.")],
    expires: Annotated[str, typer.Option("--expires", help="How long it may be in force, such as 90d.")],
    permits_closure: Annotated[
        bool, typer.Option("--permits-closure", help="A request may be complete although this delivery is not.")
    ] = False,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask for an exception of one delivery. It permits nothing until its reviewer approved it."""
    draft = Draft(
        tenant=tenant,
        destination=destination,
        delivery_id=_id(delivery),
        source=source.strip(),
        reason=why.strip(),
        permits_closure=permits_closure,
        opened_by=who(by).strip(),
        reviewer=reviewer.strip(),
        expires_at=SystemClock().now() + _duration(expires),
    )
    with _book() as (connection, book):
        applied = load_applied(connection).tenant(tenant)
        if applied is None or destination not in {each.name for each in applied.destinations}:
            raise ConfigError(f"{tenant}/{destination}: no such destination is applied")
        _tell([book.open(draft)], as_json=as_json)


@app.command("approve")
def approve_command(identifier: IdArgument, why: WhyOption, by: ByOption = None, as_json: JsonFlag = False) -> None:
    """Put an exception in force until it expires. Only its reviewer can, who is never who opened it."""
    _move(identifier, Move.APPROVE, (who(by), why), as_json=as_json)


@app.command("reject")
def reject_command(identifier: IdArgument, why: WhyOption, by: ByOption = None, as_json: JsonFlag = False) -> None:
    """Refuse an exception, or take back one that was approved. Only its reviewer can."""
    _move(identifier, Move.REJECT, (who(by), why), as_json=as_json)


@app.command("expire")
def expire_command(as_json: JsonFlag = False) -> None:
    """Mark every exception whose time is over. None of them is in force before that either; run it on a schedule."""
    with _book() as (_, book):
        _tell(book.expire_due(), as_json=as_json)


@app.command("list")
def list_command(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    state: Annotated[
        ExceptionState | None,
        typer.Option("--state", help="Only those that are opened, approved, rejected or expired."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List exceptions, newest first."""
    with _book() as (_, book):
        _tell(book.list(tenant, state, limit), as_json=as_json)


def _move(identifier: str, move: Move, said: tuple[str, str], *, as_json: bool) -> None:
    by, why = (text.strip() for text in said)
    if not why:
        raise ConfigError("it needs a reason: --why")
    with _book() as (_, book):
        _tell([book.move(_id(identifier), move, by, why)], as_json=as_json)


def _tell(records: Sequence[ExceptionRecord], *, as_json: bool) -> None:
    now = SystemClock().now()
    rows: list[dict[str, Any]] = [{**asdict(record), "in_force": record.is_in_force(now)} for record in records]
    if as_json:
        print_json({"exceptions": rows})
    else:
        print_table("exceptions", COLUMNS, rows)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise ConfigError(f"{text} is no id in full: 32 hexadecimal digits") from error


def _duration(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--expires {text}: expected a whole number with ms, s, m, h or d, like 90d") from error


@contextmanager
def _book() -> Iterator[tuple[psycopg.Connection[Any], ExceptionBook]]:
    with connect_control() as connection:
        try:
            yield connection, ExceptionBook(connection, SystemClock())
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error
