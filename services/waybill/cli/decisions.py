"""Deciding about deliveries: cancel, redrive, skip, acknowledge, and what became of it.

A command writes the decision and its record in one transaction and waits for the verdict of whoever owns the
partition. It sets no state; run twice it decides once.
"""

import getpass
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.codec import DECISION, AvroWriter, schema_text
from waybill.contracts.decision import CANCELLABLE, Decision, DecisionKind, decision_id, write_decision
from waybill.contracts.envelope import GAP_RESOLUTION_TYPE
from waybill.delivery.core.decisions import Judged
from waybill.delivery.core.gaps import hole_id
from waybill.delivery.decisions.making import list_decisions, make_decision, verdicts
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.infra.registry import Registry
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, DestinationName, Tenant
from waybill.readmodel import ReadModel

__all__ = [
    "By",
    "Identifier",
    "Why",
    "acknowledge_command",
    "app",
    "cancel_command",
    "connect_control",
    "decision_writer",
    "decisions_command",
    "one_of",
    "reason_of",
    "redrive_command",
    "skip_command",
    "who",
]

app = typer.Typer(help="Take deliveries back before they can have been sent.")

Identifier = Annotated[
    str, typer.Argument(metavar="ID", help="A delivery id, or a command id; the first digits will do while unique.")
]
Why = Annotated[str, typer.Option("--why", help="The reason, in words, for the audit; no personal data.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides. Default: the login that runs this.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")]
DestinationOption = Annotated[str | None, typer.Option("--destination", help="Only at this destination.")]
Version = Annotated[
    int | None,
    typer.Option("--version", min=0, help="The version of the state it is made on. Default: the one shown now."),
]
Wait = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait for the verdict.")]

COLUMNS: Final = ("decision", "kind", "of", "at", "verdict", "detail", "by", "why")
_LOOK_S: Final = 0.2
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@app.command()
def cancel_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    identifier: Identifier,
    why: Why,
    by: By = None,
    tenant: TenantOption = None,
    destination: DestinationOption = None,
    wait_s: Wait = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Take a delivery, or all deliveries of a command, back. Exit 1 where it may have been sent: that finishes first."""
    with connect_control() as connection:
        rows = _found(connection, identifier, tenant, destination)
        made = [_about(row, DecisionKind.CANCEL, None, who(by), why) for row in rows]
        _decide(connection, made, wait_s, as_json=as_json)


def redrive_command(
    identifier: Identifier,
    why: Why,
    by: By = None,
    version: Version = None,
    wait_s: Wait = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Send a failed delivery once more, same id and bytes, before it expires. Refused while its outcome is unknown."""
    _decide_on_one(identifier, DecisionKind.REDRIVE, version, (who(by), why, wait_s), as_json=as_json)


def acknowledge_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    identifier: Identifier,
    why: Why,
    evidence: Annotated[
        str, typer.Option("--evidence", help="Where it can be seen: a ticket, a document; no personal data.")
    ],
    digest: Annotated[
        str | None, typer.Option("--digest", metavar="sha256:HEX", help="The digest of what lies there.")
    ] = None,
    by: By = None,
    version: Version = None,
    wait_s: Wait = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Settle a delivery that ended without acknowledgement: people have seen that it was done. It is never sent again."""
    if not evidence.strip():
        raise ConfigError("an acknowledgement needs evidence: --evidence")
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise ConfigError("--digest is sha256: and 64 hexadecimal digits")
    with connect_control() as connection:
        made = _about_one(connection, identifier, DecisionKind.ACKNOWLEDGE, version, (who(by), why))
        seen = replace(made, evidence=evidence.strip(), evidence_digest=digest)
        _decide(connection, [seen], wait_s, as_json=as_json)


def skip_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    why: Why,
    identifier: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A delivery id; the first digits will do.")
    ] = None,
    hole: Annotated[
        tuple[str, str, str, int] | None,
        typer.Option(
            "--hole",
            metavar="TENANT DESTINATION AGGREGATE NUMBER",
            help="Instead: a number whose record was lost, while later ones wait behind it.",
        ),
    ] = None,
    by: By = None,
    version: Version = None,
    wait_s: Wait = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Let a halted aggregate go on behind a delivery that ended without acknowledgement; its listener is told."""
    if (identifier is None) == (hole is None):
        raise ConfigError("say what to skip: a delivery id, or --hole")
    if hole is not None:
        with connect_control() as connection:
            _decide(connection, [_about_hole(hole, who(by), why)], wait_s, as_json=as_json)
        return
    assert identifier is not None
    _decide_on_one(identifier, DecisionKind.SKIP, version, (who(by), why, wait_s), as_json=as_json)


def decisions_command(
    tenant: TenantOption = None,
    destination: DestinationOption = None,
    verdict: Annotated[Judged | None, typer.Option("--verdict", help="Only those with this verdict.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, newest first.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List what people decided, who and why, and what became of it."""
    with connect_control() as connection:
        _print(list_decisions(connection, tenant, destination, verdict, limit), as_json=as_json)


def _decide_on_one(
    identifier: str, kind: DecisionKind, version: int | None, terms: tuple[str, str, float], *, as_json: bool
) -> None:
    by, why, wait_s = terms
    with connect_control() as connection:
        made = _about_one(connection, identifier, kind, version, (by, why))
        _decide(connection, [made], wait_s, as_json=as_json)


def _about_one(
    connection: psycopg.Connection, identifier: str, kind: DecisionKind, version: int | None, said: tuple[str, str]
) -> Decision:
    row = one_of(connection, identifier, resolutions=True)
    return _about(row, kind, int(row["version"]) if version is None else version, *said)


def one_of(connection: psycopg.Connection, identifier: str, *, resolutions: bool = False) -> Mapping[str, Any]:
    """Return the one delivery that is meant."""
    rows = _found(connection, identifier, None, None, resolutions=resolutions)
    if len(rows) > 1:
        listed = ", ".join(f"{row['delivery_id']} at {row['destination']}" for row in rows)
        raise ConfigError(f"{identifier} names {len(rows)} deliveries, decide about one: {listed}")
    return rows[0]


def _found(
    connection: psycopg.Connection,
    identifier: str,
    tenant: str | None,
    destination: str | None,
    *,
    resolutions: bool = False,
) -> Sequence[Mapping[str, Any]]:
    """Return what an identifier names in the read model; a delivery's own id wins over its command's."""
    rows = [
        row
        for row in ReadModel(connection).find(identifier)
        if tenant in {None, row["tenant"]} and destination in {None, row["destination"]}
    ]
    digits = identifier.replace("-", "").lower()
    exact = [row for row in rows if row["delivery_id"].hex.startswith(digits)]
    chosen = exact or rows
    if not exact or not resolutions:
        chosen = [row for row in chosen if row["command_type"] != GAP_RESOLUTION_TYPE]
    if not chosen:
        raise ConfigError(f"nothing is known of {identifier}: see `waybill deliveries list`")
    return chosen


def _about(row: Mapping[str, Any], kind: DecisionKind, version: int | None, by: str, why: str) -> Decision:
    delivery: UUID = row["delivery_id"]
    return Decision(
        decision_id=decision_id(delivery, kind, version),
        tenant=Tenant(row["tenant"]),
        destination=DestinationName(row["destination"]),
        aggregate=Aggregate(row["aggregate"]),
        kind=kind,
        delivery_id=delivery,
        sequence=None,
        version=version,
        states=CANCELLABLE if version is None else (),
        decided_by=by,
        reason=reason_of(why),
        decided_at=SystemClock().now(),
    )


def _about_hole(hole: tuple[str, str, str, int], by: str, why: str) -> Decision:
    tenant, destination, aggregate, sequence = hole
    if sequence < 1:
        raise ConfigError("numbers begin with 1")
    now = SystemClock().now()
    about = hole_id(tenant, destination, aggregate, sequence)
    return Decision(
        # void while nothing waits behind it, and then it may be decided again
        decision_id=decision_id(about, DecisionKind.SKIP, int(now.timestamp())),
        tenant=Tenant(tenant),
        destination=DestinationName(destination),
        aggregate=Aggregate(aggregate),
        kind=DecisionKind.SKIP,
        delivery_id=None,
        sequence=sequence,
        version=None,
        states=(),
        decided_by=by,
        reason=reason_of(why),
        decided_at=now,
    )


def reason_of(why: str) -> str:
    """Return why, which must be said."""
    if not why.strip():
        raise ConfigError("a decision needs a reason: --why")
    return why.strip()


def _decide(connection: psycopg.Connection, made: Sequence[Decision], wait_s: float, *, as_json: bool) -> None:
    """Write decisions, wait for their verdicts, print them; exit 1 when one is void."""
    writer = decision_writer()
    for decision in made:
        if not make_decision(connection, decision, write_decision(decision, writer)):
            console.print(f"decided before: {decision.kind} of {decision.delivery_id}")
    rows = _judged(connection, [decision.decision_id for decision in made], wait_s)
    _print(rows, as_json=as_json)
    if any(row["verdict"] == Judged.VOID for row in rows):
        raise typer.Exit(1)


def decision_writer() -> AvroWriter:
    """Return what makes records of decisions."""
    registry = Registry(Addresses.load().need("registry_url"))
    return AvroWriter(DECISION, registry.schema_id(f"waybill.{DECISION}", schema_text(DECISION)))


def _judged(connection: psycopg.Connection, ids: Sequence[UUID], wait_s: float) -> Sequence[Mapping[str, Any]]:
    clock = SystemClock()
    end = clock.monotonic() + wait_s
    rows = verdicts(connection, ids)
    while any(row["verdict"] == Judged.OPEN for row in rows) and clock.monotonic() < end:
        Event().wait(_LOOK_S)
        rows = verdicts(connection, ids)
    return rows


def _print(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"decisions": rows})
        return
    lines = [
        (
            str(row["decision_id"])[:13],
            row["kind"],
            str(row["delivery_id"] or f"{row['aggregate']} {row['sequence']}")[:13],
            f"{row['tenant']}/{row['destination']}",
            row["verdict"],
            row["detail"],
            row["decided_by"],
            row["reason"],
        )
        for row in rows
    ]
    print_table("decisions", COLUMNS, lines)


def who(by: str | None) -> str:
    """Return who decides."""
    try:
        return by or getpass.getuser()
    except (KeyError, OSError) as error:
        raise ConfigError("nobody is logged in here: say who decides with --by") from error


def connect_control() -> "closing[psycopg.Connection]":
    """Connect to the control database, to be used in a `with`."""
    dsn = Addresses.load().need("control_dsn")
    return closing(connect(dsn, application_name="waybill-cli", autocommit=True))
