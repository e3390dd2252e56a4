"""`waybill destinations`: see what holds a destination back, decide about it while workers run, invite a new one."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import psycopg
import typer

from waybill.cli.destinations_invite import invite_command
from waybill.cli.destinations_now import WORKER_COLUMNS, Now, worker_lines
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.fabric import DestinationConfig, FabricConfig, FlowLimits, TenantConfig
from waybill.delivery.controls.report_statements import ReportLog
from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.controls.standing import WHOLE_TENANT, Control, Decider, Standing, changed, in_force
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.kernel.units import format_rate, parse_rate

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Pause, resume, drain and limit destinations; workers follow within seconds. Invite new ones.",
)

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]
DestinationArgument = Annotated[str, typer.Argument(help="The destination, as fabric.yaml names it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the control.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who decides. Default: the user of this session.")]

app.command("invite")(invite_command)

#: How many controls `show` tells of one destination.
_HISTORY = 20


@app.command("show")
def show_command(
    tenant: Annotated[str | None, typer.Argument(help="Only this tenant.")] = None,
    destination: Annotated[str | None, typer.Argument(help="Only this destination, with its controls.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which destinations are attempted and how fast at most, who decided that, when and why, and how each stands.

    How it stands is what the running workers said last: circuit, 429, beginning again slowly, each since when; a
    worker that went silent is told as that. What waits are deliveries that are open rows and will be attempted; what is
    awaited was accepted or handed over in Kafka and owes a result, and unread is what of it its listeners have not read.
    """
    with _database() as (config, log, reports):
        decided, now = log.in_force(), Now(reports)
        rows = [_row(place, decided) for place in _places(config, tenant, destination)]
        rows = [{**row, **now.of((row["tenant"], row["destination"]))} if row["destination"] else row for row in rows]
        history = log.history(tenant, destination, _HISTORY) if tenant and destination else []
    if as_json:
        print_json({"destinations": rows, "history": [_told(control) for control in history]})
        return
    decisions = ("owner", "decided_at", "decided_by", "reason")
    columns = (
        "tenant",
        "destination",
        "standing",
        "rate",
        "in_flight",
        "waiting",
        "oldest_due",
        "awaited",
        "unread",
        *decisions,
    )
    print_table("destinations", columns, rows)
    print_table("in the workers", WORKER_COLUMNS, worker_lines([row for row in rows if row["destination"]]))
    if history:
        told = ("decided_at", "decided_by", "standing", "rate", "in_flight", "reason")
        print_table("controls, newest first", told, [_told(control) for control in history])


@app.command("pause")
def pause_command(
    tenant: TenantArgument,
    destination: DestinationArgument,
    reason: ReasonOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Attempt nothing more at a destination. What comes waits in Kafka, what waits may expire; nothing is lost."""
    _stand(tenant, destination, Standing.PAUSED, reason, by, as_json=as_json)


@app.command("resume")
def resume_command(
    tenant: TenantArgument,
    destination: DestinationArgument,
    reason: ReasonOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Attempt a destination again, slowly at first, whatever stopped it: people, a guard, or its own 410."""
    _stand(tenant, destination, Standing.RUNNING, reason, by, as_json=as_json)


@app.command("drain")
def drain_command(
    tenant: TenantArgument,
    destination: DestinationArgument,
    reason: ReasonOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read nothing more for a destination, finish what was read, then attempt nothing more until it is resumed."""
    _stand(tenant, destination, Standing.DRAINING, reason, by, as_json=as_json)


@app.command("limit")
def limit_command(  # noqa: PLR0913, PLR0917 - one parameter per flag is how a command line is declared
    tenant: TenantArgument,
    destination: Annotated[str | None, typer.Argument(help="Left out: all of the tenant's together.")] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="Attempts begun, such as 50/s, 10/m, 600/h.")] = None,
    in_flight: Annotated[
        int | None, typer.Option("--in-flight", min=1, max=100_000, help="Attempts in flight.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Back to what fabric.yaml says.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the control.")] = "",
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Set how fast a destination, or all of a tenant's together, may be attempted, over all workers.

    Takes the place of both limits set before at run time; what is not named is as fabric.yaml says.
    """
    if clear == (rate is not None or in_flight is not None):
        raise ConfigError("expected --rate, --in-flight or both, or else --clear alone")
    limits = FlowLimits(rate_per_s=None if rate is None else _rate(rate), in_flight=in_flight)
    place = (tenant, destination if destination is not None else WHOLE_TENANT)
    _decide(place, reason, by, lambda before, who: changed(before, place, who, limits=limits), as_json=as_json)


def _stand(tenant: str, destination: str, standing: Standing, reason: str, by: str | None, *, as_json: bool) -> None:
    place = (tenant, destination)
    _decide(place, reason, by, lambda before, who: changed(before, place, who, standing=standing), as_json=as_json)


def _decide(
    place: tuple[str, str],
    reason: str,
    by: str | None,
    change: Callable[[Control | None, Decider], Control | None],
    *,
    as_json: bool,
) -> None:
    if not reason.strip():
        raise ConfigError("--reason: expected why, for whoever reads it later")
    who = Decider(at=SystemClock().now(), by=by or _user(), reason=reason.strip())
    with _database() as (config, log, _):
        (owner,) = _places(config, place[0], place[1]) if place[1] != WHOLE_TENANT else [_tenant(config, place[0])]
        added = log.decide(*place, lambda before: change(before, who))
        row = _row(owner, log.in_force())
    if as_json:
        print_json({"changed": added is not None, **row})
        return
    name = "/".join(part for part in place if part)
    if added is None:
        console.print(f"{name}: is so already", markup=False, highlight=False)
    else:
        facts = ", ".join(f"{key} {row[key]}" for key in ("standing", "rate", "in_flight") if row[key] is not None)
        console.print(f"{name}: {facts}; workers follow within seconds", markup=False, highlight=False)


@contextmanager
def _database() -> Iterator[tuple[FabricConfig, ControlLog, ReportLog]]:
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        try:
            yield load_applied(connection), ControlLog(connection), ReportLog(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error


def _places(
    config: FabricConfig, tenant: str | None, destination: str | None
) -> list[DestinationConfig | TenantConfig]:
    found: list[DestinationConfig | TenantConfig] = []
    for each in [_tenant(config, tenant)] if tenant is not None else config.tenants:
        if destination is None and each.limits != FlowLimits():
            found.append(each)
        found.extend(one for one in each.destinations if destination in {None, one.name})
    if destination is not None and not found:
        raise ConfigError(
            f"{tenant}/{destination}: no such destination is applied; `waybill destinations show` lists them"
        )
    return found


def _tenant(config: FabricConfig, name: str) -> TenantConfig:
    found = config.tenant(name)
    if found is None:
        raise ConfigError(f"{name}: no such tenant is applied")
    return found


def _row(place: DestinationConfig | TenantConfig, decided: dict[tuple[str, str], Control]) -> dict[str, Any]:
    if isinstance(place, TenantConfig):
        tenant, destination, owner = str(place.name), WHOLE_TENANT, None
    else:
        tenant, destination, owner = str(place.tenant), str(place.name), place.owner
    control = decided.get((tenant, destination))
    limits = in_force(place.limits, control.limits if control else FlowLimits())
    return {
        "tenant": tenant,
        "destination": destination or None,
        "owner": owner,
        "transport": None if isinstance(place, TenantConfig) else place.transport.value,
        "standing": control.standing.value if control else Standing.RUNNING.value,
        "rate": None if limits.rate_per_s is None else format_rate(limits.rate_per_s),
        "in_flight": limits.in_flight,
        "decided_at": control.at if control else None,
        "decided_by": control.by if control else None,
        "reason": control.reason if control else None,
    }


def _told(control: Control) -> dict[str, Any]:
    limits = control.limits
    return {
        "decided_at": control.at,
        "decided_by": control.by,
        "standing": control.standing.value,
        "rate": None if limits.rate_per_s is None else format_rate(limits.rate_per_s),
        "in_flight": limits.in_flight,
        "reason": control.reason,
    }


def _rate(text: str) -> float:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise ConfigError(
            f"--rate {text}: expected a whole number by a unit of time, such as 50/s, 10/m, 600/h"
        ) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
