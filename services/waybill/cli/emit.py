"""`waybill emit`: one command into an outbox, in a transaction of its own.

For trying things out and for scripts. An application emits inside the transaction of its own change: with the SDK
(`waybill.outbox`) or the SQL function `emit`.
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from uuid import UUID

import psycopg
import typer

from waybill.cli.output import JsonFlag, print_json, print_table
from waybill.crypto.sealing import load_sealing_keys
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import CommandId, Tenant
from waybill.kernel.units import parse_duration
from waybill.outbox import CommandDraft, Emitted, Outbox

__all__ = ["app"]

app = typer.Typer(help="Put one command into an outbox.")


def _duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise ConfigError(f"--ttl {text}: expected a whole number with ms, s, m, h or d, like 7d") from error


def _data(text: str) -> bytes:
    """Return the bytes of `@file`, `-` (standard input) or the text itself."""
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"--data {text}: {error.strerror}") from error
    return text.encode()


def _aggregate(text: str) -> tuple[str, str]:
    kind, slash, name = text.partition("/")
    if not slash or not kind or not name:
        raise ConfigError(f"{text} is no aggregate: expected type/id, like subject/7")
    return kind, name


def _uuid(text: str | None) -> CommandId | None:
    try:
        return CommandId(UUID(text)) if text is not None else None
    except ValueError as error:
        raise ConfigError(f"--replaces {text}: expected a command id, a UUID") from error


@app.command()
def emit(  # noqa: PLR0913, PLR0917 - one parameter per flag is how a command line is declared
    command_type: Annotated[str, typer.Argument(metavar="TYPE", help="The command type, like subject.erase.")],
    aggregate: Annotated[str, typer.Argument(metavar="AGGREGATE", help="What it is about, type/id: subject/7.")],
    dsn: Annotated[
        str, typer.Option("--dsn", envvar="WAYBILL_OUTBOX_DSN", help="The producer's database, as a libpq URI.")
    ],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose command it is.")],
    schema: Annotated[str, typer.Option("--schema", help="The outbox's database schema.")] = "waybill",
    data: Annotated[str, typer.Option("--data", help="JSON, @file, or - for standard input.")] = "{}",
    destination: Annotated[
        list[str] | None, typer.Option("--destination", help="In place of the route's; repeat it.")
    ] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="In place of the route's: 90s, 12h, 7d.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="The request this command belongs to.")] = None,
    request_size: Annotated[
        int | None, typer.Option("--request-size", help="How many commands the request has.")
    ] = None,
    operation: Annotated[str | None, typer.Option("--operation", help="What the destination deduplicates on.")] = None,
    content_type: Annotated[str, typer.Option("--content-type", help="Of the data.")] = "application/json",
    instruction_version: Annotated[int, typer.Option("--instruction-version", help="Above 1 for a correction.")] = 1,
    replaces: Annotated[str | None, typer.Option("--replaces", help="The command a correction corrects.")] = None,
    data_ref: Annotated[str | None, typer.Option("--data-ref", help="Where the data are, when not here.")] = None,
    data_digest: Annotated[str | None, typer.Option("--data-digest", help="Their digest: sha256:….")] = None,
    seal: Annotated[
        Path | None, typer.Option("--seal", metavar="KEYS_DIR", help="Seal the data with the tenant's key there.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Put one command into an outbox and print its id, numbers and expiry."""
    aggregate_type, aggregate_id = _aggregate(aggregate)
    key = load_sealing_keys(seal, Tenant(tenant)).current(SystemClock().now()) if seal is not None else None
    is_reference = data_ref is not None or data_digest is not None
    draft = CommandDraft(
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        command_type=command_type,
        data=b"" if is_reference and data == "{}" else _data(data),
        destinations=tuple(destination or ()),
        ttl=_duration(ttl),
        request_id=request,
        request_size=request_size,
        operation_id=operation,
        content_type=content_type,
        instruction_version=instruction_version,
        replaces=_uuid(replaces),
        data_ref=data_ref,
        data_digest=data_digest,
        seal_with=key,
    )
    _show(_run(dsn, tenant, schema, draft), as_json=as_json)


def _run(dsn: str, tenant: str, schema: str, draft: CommandDraft) -> Emitted:
    with connect(dsn, application_name="waybill emit") as connection:
        try:
            return Outbox(connection, tenant=tenant, schema=schema).emit(draft)
        except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName) as error:
            raise UnavailableError(
                f"there is no outbox in schema {schema} of this database: run `waybill outbox install`"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise UnavailableError(
                f"this role may not emit in schema {schema}: `waybill outbox check` says what it lacks"
            ) from error


def _show(command: Emitted, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "command_id": command.command_id,
                "aggregate": command.aggregate,
                "sequences": dict(command.sequences),
                "delivery_ids": command.delivery_ids,
                "issued_at": command.issued_at,
                "expires_at": command.expires_at,
            }
        )
        return
    rows = [
        (name, command.sequences[name], delivery, command.expires_at.isoformat(timespec="milliseconds"))
        for name, delivery in sorted(command.delivery_ids.items())
    ]
    title = f"command {command.command_id} for {command.aggregate}"
    print_table(title, ("destination", "sequence", "delivery", "expires"), rows)
