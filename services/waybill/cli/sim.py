"""`waybill sim`: the delivery engine under simulated bad luck, seed by seed."""

from typing import Annotated, Any

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.simulator import Verdict, run_seed

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="Run the delivery engine under simulated bad luck.")

#: A line of progress comes after so many seeds.
_PROGRESS = 500
#: More failing seeds than this are counted and not kept.
_KEPT = 20


@app.command()
def sim_command(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many schedules to run.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first one; the others follow it.")] = 0,
    trace: bool = typer.Option(False, "--trace", help="Tell every run step by step, on stderr; for few seeds."),
    as_json: JsonFlag = False,
) -> None:
    """Run the worker on virtual time under kills, freezes, rebalances and failures drawn from each seed.

    Checked are the laws of the engine. The first seed that breaks one is told step by step, with the command that
    does it again. Exit 1 when a law was broken. Needs no stack.
    """
    counts = {"seeds": 0, "failed": 0, "attempts": 0, "effects": 0}
    seconds = 0.0
    failed: list[Verdict] = []
    for number in range(seed, seed + seeds):
        verdict = run_seed(number, is_traced=trace)
        counts["seeds"] += 1
        counts["attempts"] += verdict.attempts
        counts["effects"] += verdict.effects
        seconds += verdict.seconds
        if trace:
            _tell(verdict)
        if not verdict.ok:
            counts["failed"] += 1
            _show(verdict, is_first=counts["failed"] == 1 and not trace)
            failed = [*failed, verdict][:_KEPT]
        if counts["seeds"] % _PROGRESS == 0:
            console.print(f"{counts['seeds']} of {seeds} seeds, {counts['failed']} failed", highlight=False)
    _report({**counts, "virtual_seconds": round(seconds, 1)}, failed, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _show(verdict: Verdict, *, is_first: bool) -> None:
    if is_first:
        _tell(run_seed(verdict.seed, is_traced=True))
    for violation in verdict.violations:
        console.print(f"seed {verdict.seed}: {violation}", highlight=False, markup=False)
    console.print(f"again: {_again(verdict)}", highlight=False)


def _tell(verdict: Verdict) -> None:
    for line in verdict.trace.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _again(verdict: Verdict) -> str:
    return f"waybill sim --seeds 1 --seed {verdict.seed} --trace"


def _report(counts: dict[str, Any], failed: list[Verdict], *, as_json: bool) -> None:
    if not as_json:
        print_table("simulated schedules", ("what", "value"), list(counts.items()))
        return
    told = [
        {"seed": verdict.seed, "violations": [str(found) for found in verdict.violations], "again": _again(verdict)}
        for verdict in failed
    ]
    print_json({"ok": not failed, **counts, "failures": told})
