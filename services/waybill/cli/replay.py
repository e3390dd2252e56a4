"""`waybill deliveries replay`: many deliveries once more, counted and confirmed before anything is decided."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from waybill.cli.decisions import By, Why, connect_control, decision_writer, reason_of, who
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.codes import ErrorCode
from waybill.contracts.decision import write_decision
from waybill.contracts.states import State
from waybill.delivery.core.replay.sorting import Ended, Refusal, refusal_of
from waybill.delivery.replay.carrying import Carried, Carrier, Look, Meant, Terms, decided_before
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ConfigError
from waybill.readmodel import ReadModel
from waybill.readmodel.selecting import Selection, select

__all__ = ["HINTS", "replay_command"]

_SAMPLE: Final = 5
SAMPLE_COLUMNS: Final = ("delivery", "to", "aggregate", "no", "type", "state", "code", "detail")
#: What to do about what is refused.
HINTS: Final[Mapping[Refusal, str]] = {
    Refusal.ACKNOWLEDGED: "it ended well",
    Refusal.AMBIGUOUS: "it may have happened: ask its destination, or `waybill deliveries acknowledge` with evidence",
    Refusal.UNDER_WAY: "it is on its way",
    Refusal.EXCEPTION: "it has an exception",
    Refusal.SUPERSEDED: "a later command replaces it",
    Refusal.CANCELLED: "people took it back",
    Refusal.EXPIRED: "its time is over: `waybill deliveries reissue`",
    Refusal.REDRIVABLE: "it can be redriven: same id, same bytes",
    Refusal.UNREADABLE: "it can never be read",
    Refusal.DECIDED: "decided before on the same version: see `waybill deliveries decisions`",
}

#: Tenant, destination, state.
Group = tuple[str, str, str]


@dataclass(slots=True)
class Plan:
    """What a selection comes to."""

    meant: list[Meant] = field(default_factory=list)
    groups: Counter[Group] = field(default_factory=Counter)
    refused: Counter[tuple[Refusal, Group]] = field(default_factory=Counter)
    sample: list[Mapping[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        names = ("tenant", "destination", "state")
        return {
            "count": len(self.meant),
            "by": [
                {**dict(zip(names, group, strict=True)), "deliveries": n} for group, n in sorted(self.groups.items())
            ],
            "refused": [
                {"rule": rule, **dict(zip(names, group, strict=True)), "deliveries": n, "hint": HINTS[rule]}
                for (rule, group), n in sorted(self.refused.items())
            ],
            "sample": self.sample,
        }


def replay_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    why: Why,
    identifiers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Delivery or command ids; the first digits will do while unique."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    destination: Annotated[str | None, typer.Option("--destination", help="Only at this destination.")] = None,
    state: Annotated[State | None, typer.Option("--state", help="Only in this state.")] = None,
    code: Annotated[ErrorCode | None, typer.Option("--code", help="Only with this error code.")] = None,
    command_type: Annotated[str | None, typer.Option("--type", help="Only of this command type.")] = None,
    aggregate: Annotated[str | None, typer.Option("--aggregate", help="Only of this aggregate, type/id.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Only moved last at this instant or later.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--to", metavar="INSTANT", help="Only moved last before this instant.")
    ] = None,
    yes: bool = typer.Option(False, "--yes", help="Decide without asking. Without it nothing is decided by programs."),
    expect: Annotated[
        int | None, typer.Option("--expect", min=0, help="Decide nothing if it is another number of deliveries.")
    ] = None,
    stop_at: Annotated[
        float,
        typer.Option("--stop-at", min=0.0, max=1.0, help="Stop where this share is void or ends badly once more."),
    ] = 0.2,
    by: By = None,
    wait_s: Annotated[float, typer.Option("--wait", min=0.0, help="Seconds a batch may wait for its verdicts.")] = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Send failed deliveries once more, same ids and bytes, before they expire: counted and shown first.

    Run it again after it was broken off: nothing is decided twice. Exit 1 when it stopped, when a decision was void,
    or when the number is not the expected one.
    """
    wanted = Selection(
        tenant=tenant,
        destination=destination,
        state=state,
        code=code,
        command_type=command_type,
        aggregate=aggregate,
        since=_instant("--from", since),
        before=_instant("--to", before),
    )
    terms = Terms(by=who(by), reason=reason_of(why), wait_s=wait_s, stop_at=stop_at)
    with connect_control() as connection:
        wanted = _narrowed(connection, wanted, identifiers or ())
        plan = _plan(connection, wanted)
        if not as_json:
            _show(plan)
        is_meant = _is_agreed(connection, wanted, plan, yes=yes and plan.meant != [], expect=expect, ask=not as_json)
        run = _carry(connection, plan.meant, terms) if is_meant else None
    _print(plan, run, as_json=as_json)
    if run is not None and (run.stopped or run.look.void):
        raise typer.Exit(1)


def _narrowed(connection: psycopg.Connection, wanted: Selection, identifiers: Sequence[str]) -> Selection:
    if not identifiers:
        if wanted.is_everything:
            raise ConfigError("say which deliveries: ids, or at least one of the options that narrow them")
        return wanted
    found: list[UUID] = []
    for identifier in identifiers:
        rows = ReadModel(connection).find(identifier)
        if not rows:
            raise ConfigError(f"nothing is known of {identifier}: see `waybill deliveries list`")
        found.extend(row["delivery_id"] for row in rows)
    return Selection(**{name: getattr(wanted, name) for name in wanted.__slots__} | {"ids": tuple(found)})


def _plan(connection: psycopg.Connection, wanted: Selection) -> Plan:
    ReadModel(connection).counts(wanted.tenant, wanted.destination)  # says so where there is no read model yet
    plan, now = Plan(), SystemClock().now()
    seen: list[tuple[Meant, Group, Mapping[str, Any]]] = []
    for row in select(connection, wanted):
        group = (row["tenant"], row["destination"], row["state"])
        ended = Ended(State(row["state"]), row["detail"], row["expires_at"], row["is_replaced"])
        rule = refusal_of(ended, now)
        if rule is not None:
            plan.refused[rule, group] += 1
            continue
        one = Meant(row["tenant"], row["destination"], row["aggregate"], row["delivery_id"], row["version"])
        seen.append((one, group, row if len(seen) < _SAMPLE else {}))
    known = decided_before(connection, [one for one, _, _ in seen])
    for one, group, row in seen:
        if one.delivery_id in known:
            plan.refused[Refusal.DECIDED, group] += 1
            continue
        plan.meant.append(one)
        plan.groups[group] += 1
        if row:
            plan.sample.append(row)
    return plan


def _is_agreed(
    connection: psycopg.Connection, wanted: Selection, plan: Plan, *, yes: bool, expect: int | None, ask: bool
) -> bool:
    """Whether it is to be done: said beforehand, or answered now; not where the number is another by then."""
    count = len(plan.meant)
    if expect is not None and count != expect:
        console.print(f"nothing decided: {count} deliveries, and {expect} were expected", highlight=False)
        raise typer.Exit(1)
    if yes or not count:
        return yes
    if not (ask and sys.stdin.isatty()):
        console.print("nothing decided: --yes decides", highlight=False)
        return False
    if not typer.confirm(f"send {count} deliveries once more?", err=True):
        return False
    now = len(_plan(connection, wanted).meant)
    if now != count:
        console.print(f"nothing decided: there were {count}, and now there are {now}", highlight=False)
        raise typer.Exit(1)
    return True


def _carry(connection: psycopg.Connection, meant: Sequence[Meant], terms: Terms) -> Carried:
    writer = decision_writer()

    def tell(reached: int, look: Look) -> None:
        became = ", ".join(f"{name} {count}" for name, count in sorted(look.verdicts.items()))
        console.print(f"{reached} of {len(meant)}; of the last: {became}", highlight=False)

    return Carrier(connection, lambda one: write_decision(one, writer), terms, SystemClock()).carry(meant, tell)


def _instant(option: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise ConfigError(f"{option} is an instant with its offset, like 2026-11-30T14:00:00Z") from error


def _show(plan: Plan) -> None:
    groups = [(f"{tenant}/{name}", state, count) for (tenant, name, state), count in sorted(plan.groups.items())]
    print_table(f"{len(plan.meant)} deliveries to send once more", ("to", "state", "deliveries"), groups)
    lines = [
        (
            str(row["delivery_id"])[:13],
            f"{row['tenant']}/{row['destination']}",
            *(row[name] for name in ("aggregate", "sequence", "command_type", "state", "error_code", "detail")),
        )
        for row in plan.sample
    ]
    print_table("the first of them", SAMPLE_COLUMNS, lines)
    if plan.refused:
        refused = [
            (rule, f"{tenant}/{name}", state, count, HINTS[rule])
            for (rule, (tenant, name, state)), count in sorted(plan.refused.items())
        ]
        print_table("left out", ("rule", "to", "state", "deliveries", "why"), refused)


def _print(plan: Plan, run: Carried | None, *, as_json: bool) -> None:
    became = None
    if run is not None:
        became = {
            "decided": run.decided,
            "verdicts": run.look.verdicts,
            "ended_again": run.look.ended_again,
            "stopped": run.stopped,
        }
    if as_json:
        print_json({**plan.document(), "run": became})
    elif run is not None:
        print_table("decided", ("verdict", "deliveries"), sorted(run.look.verdicts.items()))
        if run.stopped:
            console.print(f"stopped: {run.stopped}; run it again to go on", highlight=False)
