"""Reading the books of a campaign: JSON lines in, records out. Nothing of Waybill is imported.

A folder holds `campaign.json` (destinations, demands), `promised.jsonl`, `ledger.jsonl`, `exchanges.jsonl`,
`faults.jsonl`, `states.json` and `unread.json`. A ledger line is an arrival (`n`) or the effect of one (`done`); its
number is its place. A half line at the end of a book, from a writer that was killed, is no line.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from waybill.chaos.core.verdict import Arrival, Books, Demands, Destination, Exchange, Fault, Promised

__all__ = ["lines", "read_books", "read_ledger"]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a book; none when there is no book."""
    if not path.is_file():
        return
    with path.open("rb") as book:
        for line in book:
            if line.endswith(b"\n"):
                yield json.loads(line)


def read_ledger(path: Path) -> list[Arrival]:
    """Return the arrivals of a ledger in their order, each with the place of its effect."""
    found: dict[int, Arrival] = {}
    for place, line in enumerate(lines(path)):
        if "done" in line:
            found[line["done"]] = replace(found[line["done"]], done_place=place)
            continue
        number = line.pop("n")
        found[number] = Arrival(place=place, **line)
    return list(found.values())


def read_books(folder: Path) -> Books:
    """Return the books of one campaign, cut to its own deliveries where a book may hold others'."""
    campaign = json.loads((folder / "campaign.json").read_text())
    promised = [Promised(**line) for line in lines(folder / "promised.jsonl")]
    prefix = campaign["aggregate_prefix"]
    return Books(
        destinations={name: Destination(**each) for name, each in campaign["destinations"].items()},
        promised=promised,
        arrivals=[each for each in read_ledger(folder / "ledger.jsonl") if each.aggregate.startswith(prefix)],
        exchanges=[Exchange(**line) for line in lines(folder / "exchanges.jsonl")],
        faults=[
            Fault(**{**line, "ports": frozenset(line.get("ports", ()))}) for line in lines(folder / "faults.jsonl")
        ],
        states=json.loads((folder / "states.json").read_text()),
        unread=json.loads((folder / "unread.json").read_text()),
        demands=Demands(**campaign["demands"]),
    )
