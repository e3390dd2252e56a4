"""Applying the rules to connector files: every fault at once, each with file, line, key and what was expected."""

from collections.abc import Sequence
from dataclasses import dataclass

from waybill.kernel.errors import ConfigError
from waybill.relay.core.rules import RULES
from waybill.relay.core.template import ConnectorFile, parse_connector

__all__ = ["LintFault", "lint_connector", "lint_text", "lint_together"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFault:
    """One trap a connector file would fall into."""

    file: str
    line: int
    rule: str
    key: str
    expected: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: expected {self.expected} [{self.rule}: {self.why}]"


def lint_connector(file: ConnectorFile) -> list[LintFault]:
    """Return every fault of one connector, by line; empty when it may be put."""
    faults = [
        LintFault(file=file.file, line=file.line(key), rule=rule.id, key=key, expected=expected, why=rule.why)
        for rule in RULES
        for key, expected in rule.check(file.settings)
    ]
    return sorted(faults, key=lambda fault: (fault.line, fault.key, fault.rule))


def lint_text(text: str, file: str) -> list[LintFault]:
    """Read and lint one file; what cannot be read at all is one fault of rule `readable`."""
    try:
        parsed = parse_connector(text, file)
    except ConfigError as error:
        return [_unreadable(line, file) for line in str(error).splitlines()]
    return lint_connector(parsed)


def _unreadable(message: str, file: str) -> LintFault:
    place, _, rest = message.removeprefix(f"{file}:").partition(": ")
    key, found, expected = rest.partition(": ")
    return LintFault(
        file=file,
        line=int(place) if place.isdigit() else 1,
        rule="readable",
        key=key if found else "file",
        expected=(expected or rest).removeprefix("expected "),
        why="Connect reads a JSON object of texts",
    )


def lint_together(files: Sequence[ConnectorFile]) -> list[LintFault]:
    """Return the faults of several connectors seen together: a slot or prefix that two of them use."""
    faults: list[LintFault] = []
    for key in ("slot.name", "topic.prefix"):
        owner: dict[str, str] = {}
        for file in files:
            value = file.settings.get(key)
            if value is None or "{{" in value:
                continue
            if value in owner:
                faults.append(
                    LintFault(
                        file=file.file,
                        line=file.line(key),
                        rule="own-names",
                        key=key,
                        expected=f"another than in {owner[value]}",
                        why="two connectors on one slot lose rows without a word",
                    )
                )
            owner[value] = file.file
    return faults
