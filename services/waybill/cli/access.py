"""`waybill access`: who may come in through an API, and who gave out which key."""

import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

import psycopg
import typer

from waybill.access import KeyRing, Minted
from waybill.access.core.keys import KeyRecord, read_scopes
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.crypto.key_texts import read_public_key
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.kernel.units import parse_duration

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Who may come in through an API.")
keys = typer.Typer(no_args_is_help=True, help="Keys of principals: make, list, rotate, revoke.")
app.add_typer(keys, name="keys")

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]
PrincipalArgument = Annotated[str, typer.Argument(help="Who holds the key: a system, a team, a program.")]
ExpiresOption = Annotated[str, typer.Option("--expires", help="How long the key lives, such as 90d; or never.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who does it. Default: the user of this session.")]

PublicKeyOption = Annotated[
    str | None,
    typer.Option("--public-key", help="Ed25519 key it signs its requests with: a PEM file, or whpk_ and base64."),
]

COLUMNS = ("tenant", "principal", "key_id", "kind", "scopes", "state", "created_at", "created_by", "expires_at")


@keys.command("create")
def create_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: TenantArgument,
    principal: PrincipalArgument,
    scope: Annotated[list[str], typer.Option("--scope", help="What it may do; repeat it.")],
    public_key: PublicKeyOption = None,
    expires: ExpiresOption = "365d",
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make the first key of a principal: an API key, shown this once, or its public key where it signs its requests."""
    scopes, lifetime, public = read_scopes(scope), _lifetime(expires), _public_key(public_key)
    with _ring() as (connection, ring):
        if load_applied(connection).tenant(tenant) is None:
            raise ConfigError(f"{tenant}: no such tenant is applied")
        minted = ring.create(Tenant(tenant), principal, scopes, lifetime=lifetime, by=by or _user(), public_key=public)
    _tell(minted, as_json=as_json)


@keys.command("rotate")
def rotate_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: TenantArgument,
    principal: PrincipalArgument,
    overlap: Annotated[str, typer.Option("--overlap", help="How long the keys before it go on, such as 24h.")] = "24h",
    public_key: PublicKeyOption = None,
    expires: ExpiresOption = "365d",
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a principal's next key, with the same scopes, and let those before it end after the overlap."""
    with _ring() as (_, ring):
        minted = ring.rotate(
            Tenant(tenant),
            principal,
            lifetime=_lifetime(expires),
            overlap=_duration("--overlap", overlap),
            by=by or _user(),
            public_key=_public_key(public_key),
        )
    _tell(minted, as_json=as_json)


@keys.command("revoke")
def revoke_command(
    tenant: TenantArgument,
    principal: PrincipalArgument,
    key: Annotated[str | None, typer.Option("--key", help="Only this one, by its id. Default: all of them.")] = None,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take keys back; within seconds they let nobody in. Again it changes nothing."""
    with _ring() as (_, ring):
        if not any(key in {None, each.key_id} for each in ring.list(tenant, principal)):
            raise ConfigError(f"{tenant}/{principal}: no such key; `waybill access keys list` shows them")
        revoked = ring.revoke(Tenant(tenant), principal, key_id=key, by=by or _user())
    if as_json:
        print_json({"tenant": tenant, "principal": principal, "revoked": revoked})
    else:
        console.print(f"revoked: {', '.join(revoked) or 'none was in force'}", markup=False, highlight=False)


@keys.command("list")
def list_command(
    tenant: Annotated[str | None, typer.Argument(help="Only this tenant.")] = None, as_json: JsonFlag = False
) -> None:
    """List keys by id, those that ended too. No key can be shown again."""
    now = SystemClock().now()
    with _ring() as (_, ring):
        rows = [_row(each, now) for each in ring.list(tenant)]
    if as_json:
        print_json({"keys": rows})
    else:
        print_table("keys", COLUMNS, [{**row, "scopes": ", ".join(row["scopes"])} for row in rows])


@app.command("history")
def history_command(
    tenant: Annotated[str | None, typer.Argument(help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """Show who made, shortened or revoked which key, and when, newest first."""
    with _ring() as (_, ring):
        rows = ring.history(tenant, limit)
    if as_json:
        print_json({"events": list(rows)})
    else:
        print_table("keys, newest first", ("at", "by", "action", "tenant", "principal", "key_id", "detail"), rows)


def _tell(minted: Minted, *, as_json: bool) -> None:
    row = _row(minted.record, minted.record.created_at)
    if as_json:
        print_json({**row, "key": minted.text} if minted.text else row)
        return
    if minted.text:
        console.print("shown this once, keep it safe:", markup=False, highlight=False)
        print(minted.text)
    print_table("key", COLUMNS, [{**row, "scopes": ", ".join(row["scopes"])}])


def _row(key: KeyRecord, now: datetime) -> dict[str, Any]:
    state = "revoked" if key.revoked_at is not None else "in force" if key.is_live(now) else "expired"
    return {
        "tenant": key.tenant,
        "principal": key.principal,
        "key_id": key.key_id,
        "kind": "API key" if key.public_key is None else "public key",
        "scopes": sorted(key.scopes),
        "state": state,
        "created_at": key.created_at,
        "created_by": key.created_by,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


@contextmanager
def _ring() -> Iterator[tuple[psycopg.Connection[Any], KeyRing]]:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        try:
            yield connection, KeyRing(connection, SystemClock())
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error


def _public_key(text: str | None) -> bytes | None:
    return read_public_key(text) if text is not None else None


def _lifetime(text: str) -> timedelta | None:
    return None if text == "never" else _duration("--expires", text)


def _duration(option: str, text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise ConfigError(f"{option} {text}: expected a whole number with ms, s, m, h or d, like 90d") from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
