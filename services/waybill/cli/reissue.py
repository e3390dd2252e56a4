"""`waybill deliveries reissue`: a new command in the place of a delivery whose time is over."""

from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer

from waybill.cli.decisions import By, Identifier, Why, connect_control, one_of, reason_of, who
from waybill.cli.output import JsonFlag, print_json, print_table
from waybill.cli.replay import HINTS
from waybill.contracts.command import Command, parse_command
from waybill.contracts.names import commands_topic
from waybill.contracts.states import State
from waybill.delivery.core.replay.sorting import Ended, reissue_refusal_of
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.infra.secrets import read_secret
from waybill.infra.topic_log import scan
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import DeliveryId, DestinationName, Tenant
from waybill.kernel.units import parse_duration
from waybill.outbox.core.draft import Emitted
from waybill.outbox.reissuing import Reissues, draft_again
from waybill.readmodel.selecting import Selection, select

__all__ = ["reissue_command"]


def reissue_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    identifier: Identifier,
    why: Why,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            envvar="WAYBILL_OUTBOX_DSN",
            help="Producer database that numbers its aggregate. Default: the applied outbox, if its secret is here.",
        ),
    ] = None,
    schema: Annotated[str, typer.Option("--schema", help="Schema of the outbox that --dsn names.")] = "waybill",
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long it may be tried. Default: its route's.")] = None,
    by: By = None,
    as_json: JsonFlag = False,
) -> None:
    """Issue a delivery that expired as a new command that replaces it: same content, new id, number and expiry.

    Asked again it shows the same command. Refused while its outcome is unknown, and while it can be redriven.
    """
    decided_by, reason = who(by), reason_of(why)
    with connect_control() as control:
        row = one_of(control, identifier)
        if dsn is None:
            dsn, schema = _outbox_of(control, row)
        tenant, about = Tenant(row["tenant"]), DeliveryId(row["delivery_id"])
        with closing(connect(dsn, application_name="waybill reissue", autocommit=True)) as connection:
            reissues = Reissues(connection, tenant, schema)
            known, is_new = reissues.find(about), False
            if known is None:
                _check(control, row)
                draft = draft_again(_command_of(row), DestinationName(row["destination"]), _ttl(ttl))
                known, is_new = reissues.issue(about, draft, by=decided_by, reason=reason)
    _show(row, known, is_new=is_new, as_json=as_json)


def _outbox_of(control: psycopg.Connection, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return DSN and schema of the applied outbox that numbers the delivery's aggregate."""
    aggregate_type = str(row["aggregate"]).partition("/")[0]
    for tenant in load_applied(control).tenants:
        for outbox in tenant.outboxes:
            if tenant.name == row["tenant"] and aggregate_type in outbox.aggregate_types:
                return read_secret(outbox.dsn, outbox.name), outbox.schema
    raise ConfigError(f"no applied outbox of {row['tenant']} numbers {aggregate_type}: say which one with --dsn")


def _check(control: psycopg.Connection, row: Mapping[str, Any]) -> None:
    (now,) = select(control, Selection(ids=(row["delivery_id"],), tenant=row["tenant"]))
    ended = Ended(State(now["state"]), now["detail"], now["expires_at"], now["is_replaced"])
    rule = reissue_refusal_of(ended, SystemClock().now())
    if rule is not None:
        raise RefusedError(f"{row['delivery_id']} is not issued again ({rule}): {HINTS[rule]}", rule=rule)


def _command_of(row: Mapping[str, Any]) -> Command:
    if row["command_offset"] is None:
        raise ConfigError(f"the command of {row['delivery_id']} is not folded yet")
    topic, partition, offset = commands_topic(Tenant(row["tenant"])), row["command_partition"], row["command_offset"]
    starts, ends = (*[0] * partition, offset), (*[0] * partition, offset + 1)  # of the others nothing is read
    for record in scan(Addresses.load().need("kafka"), topic, starts=starts, ends=ends, clock=SystemClock()):
        command = parse_command(record.key, record.headers, record.value)
        if command.command_id == row["command_id"]:
            return command
    raise ConfigError(f"the command of {row['delivery_id']} is in its topic no more: emit it anew")


def _show(row: Mapping[str, Any], command: Emitted, *, is_new: bool, as_json: bool) -> None:
    destination = DestinationName(row["destination"])
    document = {
        "is_new": is_new,
        "replaces": row["command_id"],
        "command_id": command.command_id,
        "delivery_id": command.delivery_ids[destination],
        "aggregate": command.aggregate,
        "sequence": command.sequences[destination],
        "issued_at": command.issued_at,
        "expires_at": command.expires_at,
    }
    if as_json:
        print_json(document)
    else:
        title = f"{row['delivery_id']} {'is' if is_new else 'was'} issued again"
        print_table(title, ("", ""), [(name.replace("_", " "), value) for name, value in document.items()])


def _ttl(text: str | None) -> timedelta | None:
    try:
        return None if text is None else timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise ConfigError(f"--ttl {text}: expected a whole number with ms, s, m, h or d, like 7d") from error
