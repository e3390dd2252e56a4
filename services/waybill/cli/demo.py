"""`waybill demo`: the whole road once, watched, and judged at the end."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from waybill.cli.deliveries_watch import state_table
from waybill.cli.interrupt import interruptible
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.demo import Options, Report, Snapshot, View, run_demo

__all__ = ["app"]

#: Seconds between two progress lines where there is no terminal.
LINE_EVERY_S: Final = 2.0

app = typer.Typer(help="See it work: two tenants, three destinations, faults on purpose, a verdict at the end.")


@app.command()
def demo_command(
    commands: Annotated[int, typer.Option("--commands", min=20, max=100_000, help="How many commands to emit.")] = 400,
    keep: bool = typer.Option(False, "--keep", help="Leave the stack up, when it was started for this."),
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=10, help="Longest wait in seconds for everything to settle.")
    ] = 300.0,
    as_json: JsonFlag = False,
) -> None:
    """Run the demonstration. Exit 1 when a promise was broken, 3 when something did not start or settle.

    It uses the stack named by WAYBILL_STACK, else the default one when it is up, else starts one named `demo` and takes
    it down again.
    """
    options = Options(commands=commands, keep=keep, timeout_s=timeout_s)
    try:
        with interruptible(), _view() as view:
            report = run_demo(options, view)
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started is ended", highlight=False)
        raise typer.Exit(130) from None
    if as_json:
        print_json(_document(report))
    else:
        _print(report)
    if not report.verdict.ok:
        raise typer.Exit(1)


@contextmanager
def _view() -> Iterator[View]:
    """Offer a live table on a terminal, lines on anything else; both on stderr."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield View(tell=lambda line: _tell(began, line), show=_Lines(began).show)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        table = _Table(live, began)
        yield View(tell=table.tell, show=table.show)


def _tell(began: float, line: str) -> None:
    console.print(f"[{time.monotonic() - began:5.1f} s] {line}", markup=False, highlight=False, soft_wrap=True)


def _totals(snapshot: Snapshot) -> str:
    states: dict[str, int] = {}
    for row in snapshot.counts:
        states[row["state"]] = states.get(row["state"], 0) + row["deliveries"]
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "nothing folded yet"
    return f"{snapshot.committed} of {snapshot.planned} commands committed; {shown}; {snapshot.attempts} attempts"


class _Lines:
    """One line when something changed, not more often than every other second."""

    def __init__(self, began: float) -> None:
        self._began, self._last, self._next_at = began, "", 0.0

    def show(self, snapshot: Snapshot) -> None:
        text = _totals(snapshot)
        if text != self._last and snapshot.seconds >= self._next_at:
            self._last, self._next_at = text, snapshot.seconds + LINE_EVERY_S
            _tell(self._began, text)


class _Table:
    """A table that redraws itself, progress lines above it."""

    def __init__(self, live: Live, began: float) -> None:
        self._live, self._began = live, began

    def tell(self, line: str) -> None:
        _tell(self._began, line)

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(Group(state_table(snapshot.counts, "deliveries"), Text(_totals(snapshot))))


def _document(report: Report) -> Mapping[str, Any]:
    verdict = report.verdict
    numbers = {name: value for name, value in asdict(verdict).items() if name != "promises"}
    return {
        **numbers,
        "ok": verdict.ok,
        "rolled_back": report.rolled_back,
        "stack": report.stack,
        "seconds": {"setup": report.setup_s, "run": report.run_s},
        "promises": [{"name": each.name, "kept": each.is_kept, "seen": each.seen} for each in verdict.promises],
    }


def _print(report: Report) -> None:
    verdict = report.verdict
    rows = [("kept" if each.is_kept else "BROKEN", each.name, each.seen) for each in verdict.promises]
    print_table("what the listeners' own ledgers say", ("", "promise", "seen"), rows)
    typer.echo(
        f"{verdict.commands} commands, {verdict.deliveries} deliveries, {verdict.attempts} attempts, "
        f"{verdict.duplicates_suppressed} duplicates suppressed, {verdict.lost} lost, {verdict.doubled} doubled, "
        f"{verdict.order_violations} out of order; set-up {report.setup_s:.0f} s, run {report.run_s:.0f} s"
    )
    typer.echo("every promise was kept" if verdict.ok else "A PROMISE WAS BROKEN")
