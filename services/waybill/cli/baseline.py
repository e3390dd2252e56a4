"""`waybill baseline`: tell a new or restored listener where each aggregate goes on, once two people have agreed.

`ask` and `take` run where the listener is, the others where the control database is.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import psycopg
import typer

from waybill.cli.baseline_listener import ask_command, take_command
from waybill.cli.decisions import connect_control, who
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.cli.read_model import records_behind
from waybill.contracts.baseline import APPLIED, statement_digest
from waybill.contracts.fabric import DestinationConfig, FabricConfig
from waybill.contracts.states import State
from waybill.crypto.signing import Signer
from waybill.delivery.baseline.log import BaselineLog, Proposal, approved_parts
from waybill.delivery.baseline.sending import Letter, Said, letters, send
from waybill.delivery.controls.statements import ControlLog
from waybill.delivery.core.baseline.stating import Number, Stated, check_standing, cut, state_lanes
from waybill.delivery.core.controls.standing import Decider
from waybill.delivery.main import KeyFiles
from waybill.delivery.sender import outbound_of
from waybill.egress.client import GuardedClient
from waybill.fabric.store import load_applied
from waybill.infra.addresses import Addresses, environment
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError, RefusedError, UnavailableError
from waybill.readmodel import ReadModel

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Tell a new or restored listener where each aggregate goes on.")
app.command("ask")(ask_command)
app.command("take")(take_command)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The baseline, as `propose` named it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with it.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who decides. Default: the user of this session.")]

_COLUMNS: Final = (
    "baseline_id", "tenant", "destination", "lanes", "parts", "stands", "proposed_by", "approved_by", "expires_at",
)  # fmt: skip
#: How many aggregates of which nothing can be said are named.
_NAMED: Final = 5
#: How long the read model may take to fold what is there.
_FOLD_WAIT_S: Final = 10.0


@app.command("propose")
def propose_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    destination: Annotated[str, typer.Argument(help="The destination, as fabric.yaml names it; paused or drained.")],
    nonce: Annotated[str, typer.Option("--nonce", help="What `waybill baseline ask` printed where the listener is.")],
    reason: ReasonOption,
    hours: Annotated[int, typer.Option("--hours", min=1, max=72, help="How long it may be approved and sent.")] = 4,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """State the next sequence of each aggregate from the read model, for somebody else to approve. Nothing is sent."""
    now = SystemClock().now()
    decider = _decider(by, reason)
    with _control() as connection:
        fabric = load_applied(connection)
        data, lanes = _state(connection, _destination(fabric, tenant, destination))
        proposal = Proposal(
            baseline_id=uuid.uuid4(),
            tenant=tenant,
            destination=destination,
            nonce=nonce.strip(),
            digest=_digest(data),
            data=data,
            lanes=lanes,
            config_version=fabric.version,
            expires_at=now + timedelta(hours=hours),
        )
        if not proposal.nonce:
            raise ConfigError("--nonce: expected what `waybill baseline ask` printed where the listener is")
        log = BaselineLog(connection)
        log.propose(proposal, decider)
        found = log.find(str(proposal.baseline_id))
    _print_one(found, [], [], as_json=as_json)


@app.command("list")
def list_command(
    tenant: Annotated[str | None, typer.Argument(help="Only this tenant's.")] = None,
    destination: Annotated[str | None, typer.Argument(help="Only this destination's.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, newest first.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List baselines: who proposed, who approved, what the listener said last."""
    with _control() as connection:
        rows = [_told(row) for row in BaselineLog(connection).list(tenant, destination, limit)]
    if as_json:
        print_json({"baselines": rows})
    else:
        print_table("baselines, newest first", _COLUMNS, rows)


@app.command("show")
def show_command(
    baseline_id: IdArgument,
    aggregate: Annotated[str | None, typer.Option("--aggregate", help="Only this one, type/id.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many aggregates.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Show what a baseline states of its aggregates, its digest, and what the listener said of each part."""
    with _control() as connection:
        log = BaselineLog(connection)
        found = log.find(baseline_id)
        data, sendings = log.data(found["baseline_id"]), log.sendings(found["baseline_id"])
    listed = (lane for each in data for lane in json.loads(each)["lanes"])
    lanes = [lane for lane in listed if aggregate in {None, lane["aggregate"]}][:limit]
    _print_one(found, lanes, sendings, as_json=as_json)


@app.command("approve")
def approve_command(
    baseline_id: IdArgument,
    digest: Annotated[str, typer.Option("--digest", help="Of what you looked at: `show` prints it.")],
    reason: ReasonOption,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Approve what somebody else proposed. Nothing is sent yet."""
    decider = _decider(by, reason)
    with _control() as connection:
        log = BaselineLog(connection)
        log.approve(log.find(baseline_id), digest.strip().lower(), decider)
        found = log.find(baseline_id)
    _print_one(found, [], [], as_json=as_json)


@app.command("send")
def send_command(
    baseline_id: IdArgument,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the signed parts to this file, for `waybill baseline take`.")
    ] = None,
    by: ByOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send an approved baseline to the listener's url, while what it states still holds. May be run again.

    Exit 1 when the listener refused a part, 3 when it did not answer; nothing of it counts there then.
    """
    sender, clock = who(by), SystemClock()
    addresses = Addresses.load()
    with _control() as connection:
        log, fabric = BaselineLog(connection), load_applied(connection)
        found = log.find(baseline_id)
        sent = letters(found, approved_parts(log, found, clock.now()))
        config = _destination(fabric, found["tenant"], found["destination"])
        if _digest(_state(connection, config)[0]) != found["digest"]:
            raise RefusedError("sequences have moved since it was proposed: propose it anew", rule="baseline_stale")
        said: list[Said] = []

        def note(each: Said) -> None:
            log.sent(found["baseline_id"], each.part, (each.outcome, each.detail), sender, clock.now())
            said.append(each)

        signer = KeyFiles(Path(addresses.need("keys_dir")), environment()).signer(config)
        if to is not None:
            for letter in sent:
                note(Said(part=letter.part, outcome="written", detail=str(to)))
            _write(to, [(dict(letter.headers(signer, clock)), letter) for letter in sent])
        else:
            asyncio.run(_send(config, fabric, sent, (signer, note)))
    _report(said, to, as_json=as_json)


@contextmanager
def _control() -> Iterator[psycopg.Connection]:
    with connect_control() as connection:
        try:
            yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error


def _decider(by: str | None, reason: str) -> Decider:
    if not reason.strip():
        raise ConfigError("--reason: expected why, for whoever reads it later")
    return Decider(at=SystemClock().now(), by=who(by).strip(), reason=reason.strip())


def _destination(fabric: FabricConfig, tenant: str, name: str) -> DestinationConfig:
    found = fabric.destination(tenant, name)
    if found is None:
        raise ConfigError(f"{tenant}/{name}: no such destination is applied; `waybill destinations show` lists them")
    return found


def _state(connection: psycopg.Connection, config: DestinationConfig) -> tuple[tuple[bytes, ...], int]:
    """Return the data of the parts that can be stated now, and of how many aggregates.

    Raises:
        ConfigError: the destination is attempted, or of some aggregates nothing can be said; says what to do.
        UnavailableError: the read model is behind.
    """
    control = ControlLog(connection).in_force().get((config.tenant, config.name))
    check_standing(control, config.timeouts, SystemClock().now())
    if left := records_behind(config.tenant, _FOLD_WAIT_S):
        raise UnavailableError(
            f"the read model has not folded {left} records: see `waybill read-model status`, and try again"
        )
    stated = _stated(connection, config)
    if stated.doubts:
        raise ConfigError(_doubtful(stated.doubts))
    return cut(stated.lanes), len(stated.lanes)


def _stated(connection: psycopg.Connection, config: DestinationConfig) -> Stated:
    model, place = ReadModel(connection), (config.tenant, config.name)
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        holding = BaselineLog(connection).holding(*place)
        numbers = [
            Number(
                aggregate=row["aggregate"],
                sequence=row["sequence"],
                delivery_id=row["delivery_id"],
                state=State(row["state"]),
                detail=row["detail"],
                expires_at=row["expires_at"],
                blocks=holding.get((row["aggregate"], row["sequence"])),
            )
            for row in model.not_acknowledged(*place)
        ]
        return state_lanes(model.tops(*place), numbers, model.broken(*place), SystemClock().now())


def _doubtful(doubts: Mapping[str, str]) -> str:
    named = [f"{aggregate}: {why}" for aggregate, why in list(doubts.items())[:_NAMED]]
    more = [f"and {len(doubts) - _NAMED} more"] if len(doubts) > _NAMED else []
    return "\n  ".join([f"of {len(doubts)} aggregates nothing can be said:", *named, *more])


def _digest(data: Sequence[bytes]) -> str:
    return statement_digest([sha256(each).hexdigest() for each in data])


async def _send(
    config: DestinationConfig,
    fabric: FabricConfig,
    sent: Sequence[Letter],
    tools: tuple[Signer, Callable[[Said], None]],
) -> None:
    if config.url is None:
        raise ConfigError(f"{config.name} takes deliveries from Kafka: write a file with --to, and take it there")
    client = GuardedClient(outbound_of(config, fabric))
    signer, note = tools
    try:
        async for said in send(client, config.url, sent, signer, SystemClock()):
            note(said)
    finally:
        await client.close()


def _write(to: Path, signed: Sequence[tuple[Mapping[str, str], Letter]]) -> None:
    lines = [json.dumps({"headers": headers, "body": letter.body.decode()}) for headers, letter in signed]
    try:
        to.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--to {to}: {error.strerror}") from error


def _report(said: Sequence[Said], to: Path | None, *, as_json: bool) -> None:
    last = said[-1]
    is_applied = last.outcome == APPLIED
    if as_json:
        listed = [{"part": each.part, "outcome": each.outcome, "detail": each.detail} for each in said]
        print_json({"applied": is_applied, "parts": listed})
    elif to is not None:
        console.print(f"{len(said)} parts written to {to}", markup=False, soft_wrap=True)
    elif is_applied:
        console.print(f"applied, in {len(said)} parts; resume the destination", markup=False)
    if last.outcome == "unanswered":
        raise UnavailableError(f"part {last.part} was not answered ({last.detail}): send it again")
    if to is None and not is_applied:
        console.print(f"part {last.part}: {last.outcome} {last.detail}; the listener goes by none of it", markup=False)
        raise typer.Exit(1)


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    stands = "proposed" if row["approved_by"] is None else row["last_outcome"] or "approved"
    return {**row, "stands": stands}


def _print_one(
    row: Mapping[str, Any],
    lanes: Sequence[Mapping[str, Any]],
    sendings: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
) -> None:
    told = _told(row)
    if as_json:
        print_json({**told, "aggregates": lanes, "sendings": sendings})
        return
    print_table("baseline", ("fact", "value"), [(name, value) for name, value in told.items() if value is not None])
    if lanes:
        columns = ("aggregate", "next", "may still come, or never")
        print_table("aggregates", columns, [(lane["aggregate"], lane["next"], _entries(lane)) for lane in lanes])
    if sendings:
        print_table("sent", ("part", "sent_by", "sent_at", "outcome", "detail"), sendings)


def _entries(lane: Mapping[str, Any]) -> str:
    return ", ".join(f"{entry['sequence']} {entry['resolution']}" for entry in lane["told"])
