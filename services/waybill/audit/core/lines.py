"""Entries and anchors as lines of JSON: one exact form, so that every byte of an export is held against something."""

import json
from dataclasses import asdict, fields

from waybill.audit.core.chain import Anchor, Entry

__all__ = ["read_anchor", "read_line", "write_line"]


def write_line(item: Entry | Anchor) -> str:
    """Return the line of an entry or anchor, without its end."""
    kind = "entry" if isinstance(item, Entry) else "anchor"
    return json.dumps({"kind": kind, **asdict(item)}, separators=(",", ":"))


def read_line(line: str) -> Entry | Anchor | None:
    """Read a line; None when `write_line` would not have written exactly this one."""
    try:
        found = json.loads(line)
        shape = {"entry": Entry, "anchor": Anchor}[found.pop("kind")]
        item = shape(**found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_typed = all(type(getattr(item, field.name)) is field.type for field in fields(item))
    return item if is_typed and write_line(item) == line else None


def read_anchor(line: str) -> Anchor | None:
    """Read the line of an anchor; None when it is none."""
    item = read_line(line)
    return item if isinstance(item, Anchor) else None
