"""A listener's policy as a file: read strictly, every problem with its line and field, and again when it changes.

YAML is cut down to what a person can review: no aliases, no repeated keys, no unknown ones. A file that went bad while
the listener runs is told in the log and the last good one stays in force: a typing error must not lift a legal hold.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import ConfigError
from waybill.listener.core.policy import AllowedValues, Budget, LegalHold, Rules

__all__ = ["API_VERSION", "PolicyFile", "PolicyProblem", "read_policy"]

_log = logging.getLogger("waybill.listener")

API_VERSION: Final = "waybill/policy/v1"
_MAX_BYTES: Final = 1_048_576

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One thing that is wrong."""

    #: Counted from 1.
    line: int
    #: E.g. `legalHolds[0].until`; empty for the file itself.
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field or 'the file'}: {self.message}"


class _WrongError(Exception):
    def __init__(self, node: yaml.Node, field: str, message: str) -> None:
        super().__init__(message)
        self.problem = PolicyProblem(line=node.start_mark.line + 1, field=field, message=message)


def read_policy(data: bytes) -> Rules | tuple[PolicyProblem, ...]:
    """Read a whole file.

    Returns:
        The rules, or every problem, in the order of the file.
    """
    if len(data) > _MAX_BYTES:
        return (PolicyProblem(line=1, field="", message="expected at most 1 MiB"),)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, yaml.SafeLoader)):
            return (PolicyProblem(line=1, field="", message="expected no aliases"),)
        root = yaml.compose(data, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        return (PolicyProblem(line=mark.line + 1 if mark else 1, field="", message="expected YAML"),)
    if root is None:
        return (PolicyProblem(line=1, field="", message=f"expected apiVersion: {API_VERSION}"),)
    problems: list[PolicyProblem] = []
    found: dict[str, tuple[Any, ...]] = {}
    try:
        top = _table(root, "", {"apiVersion"} | {key for key, _, _ in _SECTIONS}, {"apiVersion"})
        if _text(top["apiVersion"], "apiVersion") != API_VERSION:
            raise _WrongError(top["apiVersion"], "apiVersion", f"expected {API_VERSION}")
    except _WrongError as wrong:
        return (wrong.problem,)
    for key, attribute, make in _SECTIONS:
        if key in top:
            found[attribute] = tuple(_entries(top[key], key, make, problems))
    return tuple(problems) or Rules(**found)


def _entries(
    node: yaml.Node, key: str, make: Callable[[yaml.Node, str], R], problems: list[PolicyProblem]
) -> Iterator[R]:
    if not isinstance(node, yaml.SequenceNode):
        problems.append(_WrongError(node, key, "expected a list").problem)
        return
    for index, item in enumerate(node.value):
        try:
            yield make(item, f"{key}[{index}]")
        except _WrongError as wrong:
            problems.append(wrong.problem)


def _legal_hold(node: yaml.Node, path: str) -> LegalHold:
    table = _table(node, path, {"aggregates", "reference", "commands", "until"}, {"aggregates", "reference"})
    aggregates = _texts(table["aggregates"], f"{path}.aggregates")
    for aggregate in aggregates:
        if not all(aggregate.partition("/")[::2]):
            raise _WrongError(table["aggregates"], f"{path}.aggregates", "expected type/id, or type/*")
    return LegalHold(
        aggregates=aggregates,
        reference=_text(table["reference"], f"{path}.reference"),
        until=_instant(table["until"], f"{path}.until") if "until" in table else None,
        **_commands(table, path),
    )


def _allowed_values(node: yaml.Node, path: str) -> AllowedValues:
    table = _table(node, path, {"member", "allowed", "commands"}, {"member", "allowed"})
    return AllowedValues(
        member=_text(table["member"], f"{path}.member"),
        allowed=_texts(table["allowed"], f"{path}.allowed"),
        **_commands(table, path),
    )


def _budget(node: yaml.Node, path: str) -> Budget:
    table = _table(node, path, {"members", "commands"}, {"members"})
    return Budget(members=_texts(table["members"], f"{path}.members"), **_commands(table, path))


#: Key, field of `Rules`, reader of one entry.
_SECTIONS: Final[tuple[tuple[str, str, Callable[[yaml.Node, str], Any]], ...]] = (
    ("legalHolds", "legal_holds", _legal_hold),
    ("purposes", "purposes", _allowed_values),
    ("regions", "regions", _allowed_values),
    ("piiBudgets", "budgets", _budget),
)


def _commands(table: Mapping[str, yaml.Node], path: str) -> dict[str, frozenset[str]]:
    return {"commands": _texts(table["commands"], f"{path}.commands")} if "commands" in table else {}


def _table(node: yaml.Node, path: str, known: set[str], needed: set[str]) -> Mapping[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise _WrongError(node, path, "expected keys and values")
    found: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
        where = f"{path}.{key}".lstrip(".")
        if key not in known:
            raise _WrongError(key_node, where, f"expected one of {', '.join(sorted(known))}")
        if key in found:
            raise _WrongError(key_node, where, "expected once")
        found[key] = value
    for key in sorted(needed - set(found)):
        raise _WrongError(node, f"{path}.{key}".lstrip("."), "expected, and absent")
    return found


def _text(node: yaml.Node, path: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str" or not node.value:
        raise _WrongError(node, path, "expected text; quote what looks like a number or a date")
    return str(node.value)


def _texts(node: yaml.Node, path: str) -> frozenset[str]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _WrongError(node, path, "expected a list with at least one entry")
    return frozenset(_text(item, f"{path}[{index}]") for index, item in enumerate(node.value))


def _instant(node: yaml.Node, path: str) -> datetime:
    try:
        return parse_instant(node.value if isinstance(node, yaml.ScalarNode) else "")
    except ValueError as error:
        raise _WrongError(node, path, "expected an instant such as 2027-01-01T00:00:00.000Z") from error


class PolicyFile:
    """A policy file, read again when it was replaced."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._rules: Rules | None = None

    def current(self) -> Rules:
        """Return the rules of the file as it is now, or as it last was when it could be read.

        Raises:
            ConfigError: it was never readable; names every problem with line and field.
        """
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if mark != self._seen:
                self._seen = mark
                self._take(read_policy(self._path.read_bytes()))
        except OSError as error:
            if self._rules is None:
                raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from error
            _log.error("policy.unreadable", extra={"source": str(self._path), "error": type(error).__name__})
        if self._rules is None:
            raise ConfigError(f"{self._path} is no policy; `waybill policy check` says what is wrong")
        return self._rules

    def _take(self, found: Rules | tuple[PolicyProblem, ...]) -> None:
        if isinstance(found, Rules):
            self._rules = found
            return
        if self._rules is None:
            raise ConfigError(f"{self._path}: " + "; ".join(str(problem) for problem in found))
        _log.error("policy.unreadable", extra={"source": str(self._path), "problems": [str(one) for one in found]})
