"""The live view of deliveries: a table that redraws itself on a terminal, lines elsewhere."""

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from waybill.contracts.states import BLOCKING, State
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import format_instant
from waybill.readmodel import ReadModel

__all__ = ["Watch", "open_deliveries", "state_table", "watch"]

COLOURS: Final = {
    State.ACKNOWLEDGED: "green",
    State.RETRYING: "yellow",
    State.AMBIGUOUS: "magenta",
    State.FAILED: "red",
    State.DEAD_LETTER: "red",
}

Row = Mapping[str, Any]


def open_deliveries(counts: Sequence[Row]) -> int:
    """Return how many deliveries the fabric still works on."""
    return sum(row["deliveries"] for row in counts if row["state"] in BLOCKING)


def state_table(counts: Sequence[Row], title: str) -> Table:
    """Return one line per destination, one column per state."""
    table = Table(title=title, title_justify="left")
    table.add_column("tenant")
    table.add_column("destination")
    for state in State:
        table.add_column(state.value, justify="right", style=COLOURS.get(state, ""))
    lanes = dict.fromkeys((row["tenant"], row["destination"]) for row in counts)
    by_state = {(row["tenant"], row["destination"], row["state"]): row["deliveries"] for row in counts}
    for tenant, destination in lanes:
        cells = [by_state.get((tenant, destination, state.value), 0) for state in State]
        table.add_row(tenant, destination, *(str(cell) if cell else "·" for cell in cells))
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to look at, how often, and when to stop."""

    tenant: str | None = None
    destination: str | None = None
    every_s: float = 1.0
    #: None watches until interrupted.
    for_s: float | None = None
    until_settled: bool = False
    as_json: bool = False


def watch(model: ReadModel, wanted: Watch) -> bool:
    """Look again and again; return whether the last look found everything settled. Ctrl-C ends it quietly."""
    clock, console, pause = SystemClock(), Console(), threading.Event()
    deadline = clock.monotonic() + wanted.for_s if wanted.for_s is not None else None
    is_live = console.is_terminal and not wanted.as_json
    shown = ""
    with Live(console=console, refresh_per_second=4) if is_live else nullcontext() as live:
        try:
            while True:
                counts, now = model.counts(wanted.tenant, wanted.destination), clock.now()
                if live is not None:
                    live.update(state_table(counts, f"deliveries at {now:%H:%M:%S}"))
                else:
                    shown = _print(counts, now, shown, as_json=wanted.as_json)
                is_settled = bool(counts) and open_deliveries(counts) == 0
                if (wanted.until_settled and is_settled) or (deadline is not None and clock.monotonic() >= deadline):
                    return is_settled
                pause.wait(wanted.every_s)
        except KeyboardInterrupt:
            return False


def _print(counts: Sequence[Row], now: datetime, shown: str, *, as_json: bool) -> str:
    """Print a look, in text only when it differs from the last; return what was shown."""
    if as_json:
        document = {
            "at": format_instant(now),
            "open": open_deliveries(counts),
            "deliveries": [{**row, "oldest": row["oldest"] and format_instant(row["oldest"])} for row in counts],
        }
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
        return shown
    text = "  ".join(f"{row['tenant']}/{row['destination']} {row['state']} {row['deliveries']}" for row in counts)
    if text != shown:
        sys.stdout.write(f"{now:%H:%M:%S}  {text or 'no delivery yet'}\n")
        sys.stdout.flush()
    return text
