"""One way to print: a rich table for people, one JSON document for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table

from waybill.kernel.clock import format_instant

__all__ = ["JsonFlag", "console", "print_json", "print_table"]

#: Declare as `as_json: JsonFlag = False` on every command that prints a table.
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]

#: Progress and notes go to stderr, so that stdout stays one parseable document.
console = Console(stderr=True)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(document: Any) -> None:
    """Write one JSON document and a newline to stdout."""
    sys.stdout.write(json.dumps(document, default=_plain, indent=2) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object] | Mapping[str, object]]) -> None:
    """Write a table to stdout; a mapping row is read by column name."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = [row.get(column) for column in columns] if isinstance(row, Mapping) else row
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console().print(table)
