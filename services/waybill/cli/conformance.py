"""`waybill conformance`: play the fabric against anybody's listener and say what it keeps."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.cli.interrupt import interruptible
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.conformance import Level, Scorecard, Subject, render_junit, run_conformance
from waybill.conformance.core.judging import Result
from waybill.contracts.fabric import Profile
from waybill.kernel.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="Play the fabric against a listener and say what it keeps of the wire.")

UrlArgument = Annotated[
    str | None, typer.Argument(help="Where deliveries go; with --run a free port of 127.0.0.1 unless given.")
]
RunOption = Annotated[
    str | None, typer.Option("--run", help="Command that starts the listener, for example 'node app.js'; it is killed.")
]
EffectsOption = Annotated[
    str | None, typer.Option("--effects", help='URL, or path, that answers {"count": N}: how much was applied so far.')
]
StatusOption = Annotated[str | None, typer.Option("--status-url", help="Where status queries go, if elsewhere.")]
LevelOption = Annotated[Level, typer.Option("--level", help="What the listener declares; each holds those below it.")]
ProfileOption = Annotated[Profile, typer.Option("--profile", help="What the destination declares it can bear.")]
TenantOption = Annotated[str, typer.Option("--tenant", help="Whose commands are sent.")]
DestinationOption = Annotated[str, typer.Option("--destination", help="The name it is delivered to under.")]
TypeOption = Annotated[str, typer.Option("--type", help="The command type it serves.")]
DataOption = Annotated[str, typer.Option("--data", help="JSON object: members of the data beside isTest and subject.")]
BlockedOption = Annotated[
    str | None, typer.Option("--blocked", help="JSON object: data that it refuses by policy; without, not tested.")
]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys-dir", help="Folder of the run's keys, made if absent; needed without --run."),
]
StartOption = Annotated[float, typer.Option("--patience", min=1, help="Seconds a start may take.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", help="Write the scorecard as JUnit to this file.")]
StrictFlag = Annotated[bool, typer.Option("--strict", help="What was not tested fails too.")]


@app.command()
def conformance(  # noqa: PLR0913, PLR0917 - one parameter per option
    url: UrlArgument = None,
    run: RunOption = None,
    effects: EffectsOption = None,
    status_url: StatusOption = None,
    level: LevelOption = Level.L1,
    profile: ProfileOption = Profile.DURABLE_IDEMPOTENT,
    tenant: TenantOption = "conformance",
    destination: DestinationOption = "listener",
    command_type: TypeOption = "conformance.check",
    data: DataOption = "{}",
    blocked: BlockedOption = None,
    keys_dir: KeysOption = None,
    patience: StartOption = 30.0,
    junit: JunitOption = None,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Check a listener: one that runs at URL, or one that --run starts, kills and starts again.

    A program that --run starts finds PORT, WAYBILL_TENANT, WAYBILL_DESTINATION, WAYBILL_JWKS (a file),
    WAYBILL_SECRET and WAYBILL_COMMAND_TYPE in its environment. What cannot be seen is `not tested`. Exit 1 when a
    check failed, with --strict also when one was not tested.
    """
    subject = Subject(
        url=url,
        run=run,
        effects=effects,
        status_url=status_url,
        level=level,
        profile=profile,
        tenant=tenant,
        destination=destination,
        command_type=command_type,
        data=_object("--data", data),
        blocked=_object("--blocked", blocked) if blocked is not None else None,
        keys_dir=keys_dir,
        patience_s=patience,
    )

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        with interruptible():
            card = run_conformance(subject, tell)
    except KeyboardInterrupt:
        tell("interrupted; the listener that was started is ended")
        raise typer.Exit(130) from None
    _finish(card, junit, strict=strict, as_json=as_json)


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}: not JSON") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option}: expected a JSON object")
    return found


def _finish(card: Scorecard, junit: Path | None, *, strict: bool, as_json: bool) -> None:
    if junit is not None:
        junit.write_bytes(render_junit(card))
    counts = {result.value.replace(" ", "_"): card.count(result) for result in Result}
    ok = card.ok and not (strict and card.count(Result.NOT_TESTED))
    if as_json:
        reached = card.reached.value if card.reached is not None else None
        declared = {"level": card.level.value, "profile": card.profile.value}
        print_json({"ok": ok, **declared, "reached": reached, **counts, "checks": card.rows()})
    else:
        print_table(f"{card.level} {card.profile}", ("level", "check", "result", "claim", "why"), card.rows())
        reached = card.reached.value if card.reached is not None else "no level"
        typer.echo(f"reached: {reached}; " + ", ".join(f"{number} {name}" for name, number in counts.items()))
    if not ok:
        raise typer.Exit(1)
