"""`waybill chaos`: kill, freeze and cut everything under load on a stack of its own, and judge what happened."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.chaos.campaign import Options, Report, judge_again, run_campaign
from waybill.chaos.core.verdict import Verdict
from waybill.cli.interrupt import interruptible
from waybill.cli.output import JsonFlag, console, print_json, print_table

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="Break everything under load and ask independent books what happened.")


@app.command()
def chaos_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    minutes: Annotated[float, typer.Option(min=0.2, help="How long commands are emitted and things broken.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Everything drawn follows from it.")] = 1,
    commands: Annotated[int, typer.Option(min=100, help="Commands to commit meanwhile.")] = 20_000,
    aggregates: Annotated[int, typer.Option(min=1, help="Aggregates they are about.")] = 600,
    brokers: Annotated[int | None, typer.Option(help="1, or 3 and one killed at a time.")] = None,
    keep: bool = typer.Option(False, "--keep", help="Leave the stack up, when it was started for this."),
    again: Annotated[
        Path | None, typer.Option("--judge", help="Run nothing: judge the books of an earlier campaign in this folder.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a campaign. Exit 1 when a promise was broken or too little was hit, 3 when something did not start.

    It kills the services of its stack: the one named by WAYBILL_STACK, else `chaos` (`chaos-3` with three brokers),
    which is started and taken down again.
    """
    if again is not None:
        _finish(judge_again(again), {"folder": str(again)}, as_json=as_json)
        return
    began = time.monotonic()

    def tell(line: str) -> None:
        console.print(f"[{time.monotonic() - began:5.1f} s] {line}", markup=False, highlight=False, soft_wrap=True)

    options = Options(minutes=minutes, seed=seed, commands=commands, aggregates=aggregates, brokers=brokers, keep=keep)
    try:
        with interruptible():
            report = run_campaign(options, tell)
    except KeyboardInterrupt:
        tell("interrupted; everything that was started is ended")
        raise typer.Exit(130) from None
    _finish(report.verdict, _circumstances(report), as_json=as_json)


def _circumstances(report: Report) -> Mapping[str, Any]:
    return {
        "seed": report.options.seed,
        "minutes": report.options.minutes,
        "stack": report.stack,
        "folder": str(report.folder),
        "interrupted_transactions": report.interrupted,
        "ended_by_themselves": list(report.ended),
        "seconds": {"setup": report.setup_s, "under_fire": report.run_s, "heal": report.heal_s},
    }


def _finish(verdict: Verdict, circumstances: Mapping[str, Any], *, as_json: bool) -> None:
    document = {"ok": verdict.ok, **asdict(verdict), **circumstances}
    if as_json:
        print_json(document)
    else:
        rows = [(key, value) for key, value in document.items() if key not in {"reasons", "faults"}]
        rows += [(kind, number) for kind, number in verdict.faults.items()]
        print_table("what the books say", ("figure", "value"), rows)
        for reason in verdict.reasons:
            typer.echo(reason)
        typer.echo("every promise was kept" if verdict.ok else "NOT OK")
    if not verdict.ok:
        raise typer.Exit(1)
