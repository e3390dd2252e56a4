"""`waybill deliveries`: what happened, what next, who owns it, by when."""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Annotated, Any, Final

import psycopg
import typer

from waybill.cli.decisions import acknowledge_command, decisions_command, redrive_command, skip_command
from waybill.cli.deliveries_watch import Watch, watch
from waybill.cli.output import JsonFlag, print_json, print_table
from waybill.cli.reissue import reissue_command
from waybill.cli.replay import replay_command
from waybill.contracts.fabric import FabricConfig
from waybill.contracts.states import State
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.infra.secrets import read_secret
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ConfigError, FabricError, UnavailableError
from waybill.readmodel import DeliveryFilter, ReadModel
from waybill.readmodel.account import account_of, accounts_of_unseen
from waybill.readmodel.query import id_range
from waybill.readmodel.source import KafkaSource
from waybill.readmodel.unseen import IdRange, Unseen, find_in_outbox, find_in_topics

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What happened to each delivery, what is next, who owns it and by when.")

TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")]
DestinationOption = Annotated[str | None, typer.Option("--destination", help="Only this destination's.")]

LIST_COLUMNS: Final = ("delivery", "to", "aggregate", "no", "type", "state", "tries", "due")
ANOMALY_COLUMNS: Final = ("kind", "where", "lane", "missing", "what", "resolved")


@app.command("list")
def list_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: TenantOption = None,
    destination: DestinationOption = None,
    state: Annotated[State | None, typer.Option("--state", help="Only in this state.")] = None,
    aggregate: Annotated[str | None, typer.Option("--aggregate", help="Only of this aggregate, type/id.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="Only of this parent request.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, newest first.")] = 50,
    anomalies: bool = typer.Option(
        False, "--anomalies", help="Instead: holes, reused numbers and other things that should not be in the topics."
    ),
    as_json: JsonFlag = False,
) -> None:
    """List deliveries, newest first."""
    wanted = DeliveryFilter(
        tenant=tenant,
        destination=destination,
        state=state,
        aggregate=aggregate,
        request_id=request,
        limit=limit,
    )
    with _connect() as connection:
        model = ReadModel(connection)
        rows = model.anomalies(wanted) if anomalies else model.list(wanted)
    if as_json:
        print_json({"anomalies" if anomalies else "deliveries": rows})
    elif anomalies:
        print_table("anomalies", ANOMALY_COLUMNS, map(_anomaly_line, rows))
    else:
        print_table("deliveries", LIST_COLUMNS, map(_line, rows))


@app.command("show")
def show_command(
    identifier: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A delivery id, or a command id for all its deliveries; a unique prefix will do."
        ),
    ],
    tenant: TenantOption = None,
    outbox_dsn: Annotated[
        str | None,
        typer.Option(
            "--outbox-dsn",
            envvar="WAYBILL_OUTBOX_DSN",
            help="Producer database to look into when the command is in no topic yet. Default: the applied outboxes.",
        ),
    ] = None,
    outbox_schema: Annotated[str, typer.Option("--outbox-schema", help="Schema of that outbox.")] = "waybill",
    as_json: JsonFlag = False,
) -> None:
    """Tell one delivery's whole story: every attempt, the next step, its owner, by when. Exit 2 when nobody has it."""
    wanted, now = id_range(identifier), SystemClock().now()
    with _connect() as connection:
        applied = _applied(connection)

        def owner_of(tenant_name: str, destination: str) -> str | None:
            found = applied.destination(tenant_name, destination) if applied else None
            return found.owner if found else None

        found = _folded(connection, identifier, tenant)
        accounts = [account_of(ReadModel(connection), row, now, owner_of) for row in found]
        if not accounts:
            outboxes = [(outbox_dsn, outbox_schema)] if outbox_dsn else _outboxes(applied, tenant)
            unseen = _in_topics(connection, tenant, wanted) or _in_outboxes(outboxes, wanted)
            if unseen is None:
                raise ConfigError(f"nothing is known of {identifier}: {_where_looked(outboxes)}")
            accounts = accounts_of_unseen(unseen, wanted, now, owner_of)
    if as_json:
        print_json({"deliveries": accounts})
        return
    for account in accounts:
        _print_account(account)


@app.command("watch")
def watch_command(
    tenant: TenantOption = None,
    destination: DestinationOption = None,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 1.0,
    for_s: Annotated[float | None, typer.Option("--for", help="Stop after so many seconds. Default: never.")] = None,
    until_settled: bool = typer.Option(
        False,
        "--until-settled",
        help="Stop with exit 0 when no delivery is queued, delivered or retrying; 1 after --for.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document per look, one a line."),
) -> None:
    """Watch deliveries settle: a live table on a terminal, one line per change elsewhere."""
    with _connect() as connection:
        settled = watch(
            ReadModel(connection),
            Watch(
                tenant=tenant,
                destination=destination,
                every_s=every_s,
                for_s=for_s,
                until_settled=until_settled,
                as_json=as_json,
            ),
        )
    if until_settled and not settled:
        raise typer.Exit(1)


app.command("redrive")(redrive_command)
app.command("replay")(replay_command)
app.command("reissue")(reissue_command)
app.command("skip")(skip_command)
app.command("acknowledge")(acknowledge_command)
app.command("decisions")(decisions_command)


def _connect() -> psycopg.Connection:
    return connect(Addresses.load().need("control_dsn"), application_name="waybill-cli", autocommit=True)


def _folded(connection: psycopg.Connection, identifier: str, tenant: str | None) -> Sequence[Mapping[str, Any]]:
    """Return the deliveries the read model has, none when there is no read model yet."""
    try:
        rows = ReadModel(connection).find(identifier)
    except UnavailableError:
        return []
    return [row for row in rows if tenant in {None, row["tenant"]}]


def _applied(connection: psycopg.Connection) -> FabricConfig | None:
    """Return the applied configuration, or None where nothing was ever applied."""
    with suppress(FabricError, psycopg.errors.UndefinedTable):
        return load_applied(connection)
    return None


def _outboxes(applied: FabricConfig | None, tenant: str | None) -> list[tuple[str, str]]:
    """Return DSN and schema of the applied outboxes whose secret can be read here."""
    found: dict[tuple[str, str], None] = {}
    for one in applied.tenants if applied else ():
        for outbox in one.outboxes:
            if tenant in {None, one.name}:
                with suppress(ConfigError):
                    found[read_secret(outbox.dsn, outbox.name), outbox.schema] = None
    return list(found)


def _in_topics(connection: psycopg.Connection, tenant: str | None, wanted: IdRange) -> Unseen | None:
    kafka = Addresses.load().kafka
    if kafka is None:
        return None
    positions: dict[tuple[str, int], int] = {}
    with suppress(UnavailableError):  # no read model yet: from the first record
        positions = {place: at for place, (at, _) in ReadModel(connection).positions(tenant).items()}
    with suppress(UnavailableError), closing(KafkaSource(kafka)) as source:
        return find_in_topics(source, tenant, positions, wanted, SystemClock())
    return None


def _in_outboxes(outboxes: Sequence[tuple[str, str]], wanted: IdRange) -> Unseen | None:
    for dsn, schema in outboxes:
        with suppress(UnavailableError), connect(dsn, application_name="waybill-cli", autocommit=True) as connection:
            if (found := find_in_outbox(connection, schema, wanted)) is not None:
                return found
    return None


def _where_looked(outboxes: Sequence[tuple[str, str]]) -> str:
    places = "it is not in the read model nor in a topic behind it"
    if outboxes:
        return f"{places}, nor in {len(outboxes)} outbox{'es' if len(outboxes) > 1 else ''}; was its transaction committed?"
    return f"{places}; give --outbox-dsn to look into its outbox too"


def _short(instant: Any) -> str:
    return f"{instant:%m-%d %H:%M:%S}" if instant is not None else ""


def _instant(instant: Any) -> str:
    return format_instant(instant) if instant is not None else ""


def _line(row: Mapping[str, Any]) -> tuple[object, ...]:
    due = row["next_due"] or (row["expires_at"] if row["state"] != State.ACKNOWLEDGED else None)
    return (
        str(row["delivery_id"])[:13],
        f"{row['tenant']}/{row['destination']}",
        row["aggregate"],
        row["sequence"],
        row["command_type"],
        row["state"],
        row["attempts"],
        _short(due),
    )


def _anomaly_line(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["kind"],
        f"{row['tenant']}.{row['topic']} partition {row['partition']} offset {row['offset']}",
        f"{row['aggregate']} at {row['destination']}" if row["aggregate"] else "",
        row["missing"] or "",
        row["detail"],
        _short(row["resolved_at"]),
    )


def _print_account(account: Mapping[str, Any]) -> None:
    shown = (
        ("state", account["state"]),
        ("what happened", account["what_happened"]),
        ("what next", account["what_next"]),
        ("who owns it", account["owner"]),
        ("by when", _instant(account["by"]) or "nothing is due"),
        ("command", f"{account['command_id']} ({account['command_type'] or 'type unreadable'})"),
        (
            "destination",
            f"{account['tenant']}/{account['destination']} of {account['destination_owner'] or 'unknown owner'}",
        ),
        ("number", f"{account['sequence']} of {account['aggregate']}"),
        ("request", account["request_id"] or "none"),
        ("expires", _instant(account["expires_at"])),
    )
    print_table(f"delivery {account['delivery_id']}", ("", ""), shown)
    if account["history"]:
        columns: tuple[str, ...] = (
            "started_at",
            "kind",
            "attempt",
            "phase",
            "http_status",
            "error_code",
            "detail",
            "state_after",
        )
        print_table("attempts", columns, account["history"])
    alone = [move for move in account["moves"] if move["attempt_id"] is None]
    if alone:
        print_table(
            "moves without an attempt", ("ended_at", "state_before", "state_after", "error_code", "detail"), alone
        )
    if account["dead_letters"]:
        print_table("dead letters", ("recorded_at", "code", "cause", "detail"), account["dead_letters"])
