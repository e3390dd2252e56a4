"""Read a tree against the declared shape: what fits becomes placed values, what does not becomes problems.

A broken field never hides the rest of the file: the fields that could be read are kept with their lines, the rules
run over those, and records are built only when nothing at all was wrong. Values of secret fields are never quoted.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from waybill.fabric.core.document import Leaf, Listing, Node, Problem, Table
from waybill.fabric.core.shape import SECRET, Field, Kind, Many, Set, Shape

__all__ = ["Placed", "Reading", "build", "problem_at", "read"]

#: What is shown of a value that was refused.
SHOWN: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A value and where it stands."""

    line: int
    path: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One object as far as it could be read: field name → value, listing of values, object or listing of objects."""

    shape: Shape
    line: int
    path: str
    found: Mapping[str, Placed]
    #: Fields whose key is there with a value that is none.
    unreadable: frozenset[str] = frozenset()

    def get(self, attr: str) -> Any:
        """Return a field's value, its default when the key was left out, None when it could not be read."""
        if attr in self.unreadable:
            return None
        placed = self.found.get(attr)
        return placed.value if placed is not None else self.shape.default(attr)

    def many(self, attr: str) -> tuple["Reading", ...]:
        """Return the objects of a `Many` field that could be read."""
        placed = self.found.get(attr)
        return tuple(item.value for item in placed.value) if placed is not None else ()

    def at(self, attr: str) -> Placed:
        """Return where a field stands, or would stand in its object."""
        key = next(field.key for field in self.shape.fields if field.attr == attr)
        return self.found.get(attr) or Placed(line=self.line, path=_join(self.path, key), value=None)


def read(shape: Shape, node: Node, path: str = "") -> tuple[Reading, tuple[Problem, ...]]:
    """Read one object with everything in it, and say everything that is wrong with it."""
    reader = _Reader()
    return reader.table(shape, node, path), tuple(reader.problems)


def build(reading: Reading, inherited: Mapping[str, Any] | None = None) -> Any:
    """Make the record of an object that was read without a problem; `inherited` fills fields the file does not name."""
    values: dict[str, Any] = dict(inherited or {})
    inside = {"tenant": reading.get("name")} if reading.shape.noun == "tenant" else {}
    for field in reading.shape.fields:
        placed = reading.found.get(field.attr)
        if placed is None:
            continue
        if isinstance(field.kind, Set):
            values[field.attr] = field.kind.into(sorted({item.value for item in placed.value}))
        elif isinstance(field.kind, Many):
            values[field.attr] = tuple(build(item.value, inside) for item in placed.value)
        elif isinstance(field.kind, Shape):
            values[field.attr] = build(placed.value)
        else:
            values[field.attr] = placed.value
    return reading.shape.record(**values)


def problem_at(where: Placed, rule: str, message: str) -> Problem:
    """Return a problem with a placed value."""
    return Problem(line=where.line, path=where.path, rule=rule, message=message)


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def table(self, shape: Shape, node: Node, path: str) -> Reading:
        found: dict[str, Placed] = {}
        unreadable: set[str] = set()
        if isinstance(node, Table):
            self._unknown(shape, node, path)
            for field in shape.fields:
                if (placed := self._field(field, node, path)) is not None:
                    found[field.attr] = placed
                elif field.key in node.entries:
                    unreadable.add(field.attr)
            self._one_of_two(shape, node, path)
        else:
            self._refuse(node.line, path, shape.rule, f"expected {shape.expected}{_got(node, shape)}")
        return Reading(shape=shape, line=node.line, path=path, found=found, unreadable=frozenset(unreadable))

    def _unknown(self, shape: Shape, node: Table, path: str) -> None:
        known = [field.key for field in shape.fields]
        for key, (line, _) in node.entries.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                advice = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
                self._refuse(line, _join(path, key), "known-keys", f"expected a key of a {shape.noun}: {advice}")

    def _field(self, field: Field, node: Table, path: str) -> Placed | None:
        if field.key not in node.entries:
            if field.required:
                self._refuse(
                    node.line, _join(path, field.key), "required-keys", f"expected {_what(field)}, the key is missing"
                )
            return None
        line, value = node.entries[field.key]
        here = _join(path, field.key)
        if isinstance(value, Leaf) and value.value is None:
            self._refuse(line, here, "required-keys", f"expected {_what(field)}, the key has no value")
            return None
        if isinstance(field.kind, Shape):
            return Placed(line=line, path=here, value=self.table(field.kind, value, here))
        if isinstance(field.kind, Kind):
            return self._plain(field.kind, value, line, here)
        if not isinstance(value, Listing):
            self._refuse(value.line, here, "type", f"expected {_what(field)}{_got(value)}")
            return None
        return Placed(line=line, path=here, value=tuple(self._items(field.kind, value, here)))

    def _items(self, kind: Set | Many, listing: Listing, path: str) -> Iterator[Placed]:
        if isinstance(kind, Set) and len(listing.items) < kind.least:
            self._refuse(listing.line, path, "type", f"expected at least one value, each {kind.item.expected}")
        if isinstance(kind, Set) and len(listing.items) > kind.most:
            self._refuse(listing.line, path, "type", f"expected at most {kind.most} values, got {len(listing.items)}")
        for number, item in enumerate(listing.items):
            here = f"{path}[{number}]"
            if isinstance(kind, Many):
                yield Placed(line=item.line, path=here, value=self.table(kind.item, item, here))
            elif (placed := self._plain(kind.item, item, item.line, here)) is not None:
                yield placed

    def _plain(self, kind: Kind, node: Node, line: int, path: str) -> Placed | None:
        if isinstance(node, Leaf):
            try:
                return Placed(line=line, path=path, value=kind.read(node.value))
            except (ValueError, TypeError):
                pass
        self._refuse(line, path, kind.rule, f"expected {kind.expected}{_got(node, kind)}")
        return None

    def _one_of_two(self, shape: Shape, node: Table, path: str) -> None:
        if shape is SECRET and len(node.entries) != 1:
            self._refuse(node.line, path, shape.rule, f"expected {shape.expected}, exactly one of the two")

    def _refuse(self, line: int, path: str, rule: str, message: str) -> None:
        self.problems.append(Problem(line=line, path=path, rule=rule, message=message))


def _what(field: Field) -> str:
    if isinstance(field.kind, Set):
        return f"a list, each item {field.kind.item.expected}"
    if isinstance(field.kind, Many):
        return f"a list of {field.key}"
    return field.kind.expected


def _got(node: Node, expected: Kind | Shape | None = None) -> str:
    """Say what stands there instead; nothing of a value where a secret belongs, or that is long or many-lined."""
    if isinstance(node, Table):
        return ", got an object"
    if isinstance(node, Listing):
        return ", got a list"
    rule = expected.rule if expected is not None else ""
    if rule in ("secret-by-reference", "url", "tradeoff", "headers"):
        return ""
    if isinstance(node.value, bool):
        return f", got the truth value {str(node.value).lower()} (quote it if it is a text)"
    if isinstance(node.value, str):
        shown = (
            node.value
            if len(node.value) <= SHOWN and node.value.isprintable()
            else f"a text of {len(node.value)} characters"
        )
        return f", got {shown!r}" if shown is node.value else f", got {shown}"
    return f", got {node.value}" if len(str(node.value)) <= SHOWN else ""


def _join(path: str, name: str) -> str:
    shown = name if len(name) <= SHOWN else name[:SHOWN] + "…"
    return f"{path}.{shown}" if path else shown
