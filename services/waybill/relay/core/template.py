"""Connector files: strict JSON with a line for every key, and placeholders filled after parsing.

Values are filled once the JSON is read, so no value can break out of its string; a value with `${` is refused,
because Connect would resolve it on its own machine.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from waybill.kernel.errors import ConfigError

__all__ = ["ConnectorFile", "parse_connector", "render"]

_PLACEHOLDER: Final = re.compile(r"\{\{([a-z_]+)(\??)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorFile:
    """Settings by key, and the line each stands at (0 for a configuration that was never a file)."""

    file: str
    settings: Mapping[str, str]
    lines: Mapping[str, int]

    def line(self, key: str) -> int:
        """Return the line of a key, the first line for a key that is missing."""
        return self.lines.get(key, 1)


def parse_connector(text: str, file: str) -> ConnectorFile:
    """Read a connector file.

    Raises:
        ConfigError: not a JSON object of texts, or a key twice; names the line.
    """
    pairs: list[tuple[str, Any]] = []

    def collect(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs[:] = found
        return dict(found)

    try:
        document = json.loads(text, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{file}:1: expected a JSON object of connector settings")
    lines = _lines(text, document)
    seen: set[str] = set()
    faults: list[str] = []
    for key, value in pairs:
        if key in seen:
            faults.append(f"{file}:{lines.get(key, 1)}: {key}: expected each setting once, this is given twice")
        if not isinstance(value, str):
            faults.append(f"{file}:{lines.get(key, 1)}: {key}: expected text in quotes")
        seen.add(key)
    if faults:
        raise ConfigError("\n".join(faults))
    return ConnectorFile(file=file, settings=document, lines=lines)


def _lines(text: str, keys: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*\{?\s*"([^"]+)"\s*:', line)
        if match and match[1] in keys:
            found[match[1]] = number  # the last one: of a key given twice, the one to take away
    return found


def render(file: ConnectorFile, values: Mapping[str, str | None]) -> dict[str, str]:
    """Fill the placeholders of a connector file.

    Args:
        file: a parsed file.
        values: by placeholder; None leaves out a setting whose placeholder is optional.

    Raises:
        ConfigError: an unknown or missing placeholder (file, line), or a value Connect would resolve itself.
    """
    rendered: dict[str, str] = {}
    for key, template in file.settings.items():
        names = _PLACEHOLDER.findall(template)
        for name, optional in names:
            if name not in values:
                known = ", ".join(sorted(values))
                raise ConfigError(f"{file.file}:{file.line(key)}: {key}: {{{{{name}}}}} is unknown; expected {known}")
            value = values[name]
            if value is None and not optional:
                raise ConfigError(f"{file.file}:{file.line(key)}: {key}: expected a value for {{{{{name}}}}}")
            if value is not None and ("${" in value or "{{" in value):
                raise ConfigError(f"value of {name}: expected plain text without placeholders")
        if any(values[name] is None for name, _ in names):
            continue
        rendered[key] = _PLACEHOLDER.sub(lambda found: values[found[1]] or "", template)
    return rendered
