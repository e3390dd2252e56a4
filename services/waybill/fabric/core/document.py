"""A document as a tree of leaves, listings and tables that remember their line.

Two ways lead here: the text of a file (`read_yaml`) and a stored object (`from_plain`), so that one reader
(`reading`) serves both. YAML is cut down to what a person can review: no aliases, no repeated keys, no tags; what
a reader sees on a line is what that line means. Nothing here raises on bad input: problems are values, and none of
them quotes the document, which may hold a pasted secret.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import yaml

__all__ = ["Leaf", "Listing", "Node", "Plain", "Problem", "Table", "from_plain", "read_yaml"]

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

MAX_BYTES: Final = 4 * 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, where it is, and what was expected there."""

    #: Counted from 1; 0 when it concerns the file as a whole.
    line: int
    #: E.g. `tenants[0].destinations[2].url`; empty for the document itself.
    path: str
    #: The rule it breaks: a key of `rules.RULES`.
    rule: str
    #: A sentence fragment: `expected …`.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One plain value."""

    line: int
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list, in the document's order."""

    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A mapping; keys are unique, each with the line it stands on."""

    line: int
    entries: Mapping[str, tuple[int, "Node"]]


Node: TypeAlias = Leaf | Listing | Table


def from_plain(value: Plain) -> Node:
    """Turn a stored object into the tree a file would have given; every line is 0."""
    if isinstance(value, dict):
        return Table(line=0, entries={key: (0, from_plain(item)) for key, item in value.items()})
    if isinstance(value, list):
        return Listing(line=0, items=tuple(from_plain(item) for item in value))
    return Leaf(line=0, value=value)


def read_yaml(data: bytes) -> tuple[Node | None, tuple[Problem, ...]]:
    """Read a whole file.

    Returns:
        The tree, or None when the text is not YAML at all, and every problem met on the way.
    """
    if len(data) > MAX_BYTES:
        return None, (_whole("expected a file of at most 4 MiB"),)
    composed = _compose(data)
    if isinstance(composed, Problem):
        return None, (composed,)
    builder = _Builder()
    node = builder.build(composed, "")
    return node, tuple(builder.problems)


def _compose(data: bytes) -> yaml.Node | Problem:
    root: yaml.Node | None
    try:
        root = yaml.compose(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        return _whole(f"expected UTF-8 text, byte {error.start} is not", data.count(b"\n", 0, error.start) + 1)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return _whole(f"not readable as YAML: {_said(error)}", mark.line + 1 if mark else 0)
    except yaml.YAMLError:
        return _whole("not readable as YAML: it holds a character that YAML does not allow")
    except RecursionError:
        return _whole("expected a document that is not nested hundreds deep")
    return root if root is not None else _whole("expected a document, the file is empty")


def _whole(message: str, line: int = 0) -> Problem:
    return Problem(line=line, path="", rule="yaml", message=message)


def _said(error: yaml.MarkedYAMLError) -> str:
    """Return the parser's own words; what it quotes of the text, beyond a sign or a token's name, is cut out."""
    said = " ".join(part for part in (error.context, error.problem) if part)
    return re.sub(r"'[^'<]{4,}'", "'…'", said) or "syntax error"


class _Builder:
    """Turns the parser's nodes into ours and collects what it refuses on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._seen: set[int] = set()
        self._plain = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: str) -> Node:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            self._refuse(line, path, "expected the value itself: aliases (*name) are not read here")
            return Leaf(line=line, value=None)
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return Table(line=line, entries=dict(self._entries(node, path)))
        if isinstance(node, yaml.SequenceNode):
            return Listing(
                line=line, items=tuple(self.build(item, f"{path}[{i}]") for i, item in enumerate(node.value))
            )
        return Leaf(line=line, value=self._scalar(node, path))

    def _entries(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, tuple[int, Node]]]:
        names: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self._refuse(line, path, "expected a plain word as key")
            elif name in names:
                self._refuse(line, _join(path, name), f"expected each key once, it is already on line {names[name]}")
            else:
                names[name] = line
                yield name, (line, self.build(value, _join(path, name)))

    def _scalar(self, node: yaml.Node, path: str) -> str | int | float | bool | None:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "timestamp"):
            return str(node.value)
        try:
            if kind in ("int", "float", "bool", "null"):
                value: str | int | float | bool | None = self._plain.construct_object(node)
                return value
        except (ValueError, KeyError, yaml.YAMLError):
            pass
        self._refuse(node.start_mark.line + 1, path, "expected plain text or a number, tags (!name) are not read here")
        return None

    def _refuse(self, line: int, path: str, message: str) -> None:
        self.problems.append(Problem(line=line, path=path, rule="yaml", message=message))


def _join(path: str, name: str) -> str:
    shown = name if len(name) <= 40 else name[:40] + "…"
    return f"{path}.{shown}" if path else shown
