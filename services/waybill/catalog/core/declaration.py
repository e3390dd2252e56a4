"""One topic file, read and checked.

Every fault of a file is found in one pass and named as `file:line: field: expected …`, because a person fixing a
file wants the whole list. Unknown and repeated fields are faults: a setting that is silently ignored is worse than
one that is refused.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from waybill.kernel.errors import ConfigError
from waybill.kernel.units import parse_duration, parse_size

__all__ = ["TENANT_COUNT", "TopicDeclaration", "parse_topic"]

#: The value of `partitions` that stands for the tenant's own count.
TENANT_COUNT: Final = "tenant"
_CLUSTER: Final = "cluster"
_FOREVER: Final = "forever"
_DESTINATION: Final = "destination"
_ASKED: Final = "asked"
#: Settings that have a field of their own.
_FIELD_OF: Final = {
    "cleanup.policy": "cleanup",
    "retention.ms": "retention",
    "retention.bytes": "retention",
    "max.message.bytes": "max_message",
    "min.insync.replicas": "replication",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeclaration:
    """One topic of every tenant, as its file declares it."""

    #: Last part of the topic's name.
    name: str
    #: The file it was read from, for messages.
    file: str
    description: str
    owner: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    key: str
    value: str
    ordering_key: str
    #: None: as the cluster allows.
    replication: int | None
    cleanup: frozenset[str]
    #: None where only compaction cleans, or only size bounds it.
    retention_ms: int | None
    retention_bytes: int | None
    max_message_bytes: int
    settings: Mapping[str, str]
    #: There is one for each destination that needs it; its name has the destination's behind it.
    is_per_destination: bool = False
    #: Only tenants that ask for it have it.
    is_optional: bool = False

    def for_destination(self, destination: str) -> "TopicDeclaration":
        """Return the declaration of one destination's own topic."""
        return replace(self, name=f"{self.name}.{destination}", is_per_destination=False)

    def topic(self, tenant: str) -> str:
        """Return the topic's full name for a tenant."""
        return f"waybill.{tenant}.{self.name}"


class _Expected(Exception):  # noqa: N818 - never leaves this module: it carries the expectation to its line
    """What a field should have held, and at which line when that is not the field's own."""

    def __init__(self, expectation: str, line: int | None = None) -> None:
        super().__init__(expectation)
        self.line = line


def parse_topic(text: str, file: str) -> TopicDeclaration:
    """Read one topic file.

    Args:
        text: the file's content.
        file: its path as shown in messages; the stem is the topic's name.

    Raises:
        ConfigError: every fault, one line each: `file:line: field: expected …`.
    """
    nodes = _fields(text, file)
    faults: list[tuple[int, str]] = []
    values: dict[str, Any] = {}
    for field, (line, node) in nodes.items():
        reader = _READERS.get(field)
        try:
            if reader is None:
                raise _Expected(f"expected one of {', '.join(_READERS)}")
            values[field] = reader(node)
        except _Expected as fault:
            faults.append((fault.line or line, f"{field}: {fault}"))
    faults.extend((1, f"{field}: missing; expected {_HINTS[field]}") for field in _HINTS if field not in nodes)
    if faults:
        raise ConfigError("\n".join(f"{file}:{line}: {fault}" for line, fault in sorted(faults)))
    retention_ms, retention_bytes = values.pop("retention")
    del values["partitions"]
    values["max_message_bytes"] = values.pop("max_message")
    values.setdefault("settings", {})
    values["is_per_destination"] = values.pop("per", None) is not None
    values["is_optional"] = values.pop("when", None) is not None
    name = file.rsplit("/", 1)[-1].removesuffix(".yaml")
    return TopicDeclaration(name=name, file=file, retention_ms=retention_ms, retention_bytes=retention_bytes, **values)


def _fields(text: str, file: str) -> dict[str, tuple[int, yaml.Node]]:
    """Return line and node of every top-level field."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not YAML: {error.problem}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{file}:1: expected a mapping of fields")
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, node in root.value:
        line = key.start_mark.line + 1
        if key.value in found:
            raise ConfigError(f"{file}:{line}: {key.value}: given twice; expected each field once")
        found[key.value] = (line, node)
    return found


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not str(node.value).strip():
        raise _Expected("expected text")
    return " ".join(str(node.value).split())


def _texts(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _Expected("expected a list of texts")
    return tuple(_text(item) for item in node.value)


def _partitions(node: yaml.Node) -> str:
    if _text(node) != TENANT_COUNT:
        raise _Expected("expected `tenant`: all topics of a tenant have its one count")
    return TENANT_COUNT


def _per(node: yaml.Node) -> str:
    if _text(node) != _DESTINATION:
        raise _Expected("expected `destination`, or no such field where a tenant has one such topic")
    return _DESTINATION


def _when(node: yaml.Node) -> str:
    if _text(node) != _ASKED:
        raise _Expected("expected `asked`, or no such field where every tenant has the topic")
    return _ASKED


def _replication(node: yaml.Node) -> int | None:
    text = _text(node)
    if text == _CLUSTER:
        return None
    if not text.isdigit() or not 1 <= int(text) <= 9:
        raise _Expected("expected `cluster` or a number of copies from 1 to 9")
    return int(text)


def _cleanup(node: yaml.Node) -> frozenset[str]:
    policies = frozenset(_texts(node))
    if not policies <= {"delete", "compact"}:
        raise _Expected("expected [delete], [compact] or [compact, delete]")
    return policies


def _retention(node: yaml.Node) -> tuple[int | None, int | None]:
    bounds = _texts(node)
    if bounds == (_FOREVER,):
        return None, None
    expectation = "expected `forever`, or a time such as 30d and/or a size such as 64MiB"
    times: list[int] = []
    sizes: list[int] = []
    for bound in bounds:
        try:
            times.append(round(parse_duration(bound) * 1000))
        except ValueError:
            with suppress(ValueError):
                sizes.append(parse_size(bound))
    if len(times) + len(sizes) != len(bounds) or len(times) > 1 or len(sizes) > 1:
        raise _Expected(expectation)
    if 0 in times or 0 in sizes:
        raise _Expected(f"{expectation}, above zero")
    return (times[0] if times else None), (sizes[0] if sizes else None)


def _size(node: yaml.Node) -> int:
    with suppress(ValueError):
        if size := parse_size(_text(node)):
            return size
    raise _Expected("expected a size above zero such as 1MiB")


def _settings(node: yaml.Node) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        raise _Expected("expected a mapping of Kafka topic settings")
    found: dict[str, str] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in _FIELD_OF:
            raise _Expected(f"expected {key.value} in the field `{_FIELD_OF[key.value]}`", line)
        if not isinstance(value, yaml.ScalarNode):
            raise _Expected(f"expected one value for {key.value}", line)
        found[key.value] = str(value.value)
    return found


_READERS: Final[Mapping[str, Callable[[yaml.Node], Any]]] = {
    "description": _text,
    "owner": _text,
    "per": _per,
    "when": _when,
    "producers": _texts,
    "consumers": _texts,
    "key": _text,
    "value": _text,
    "ordering_key": _text,
    "partitions": _partitions,
    "replication": _replication,
    "cleanup": _cleanup,
    "retention": _retention,
    "max_message": _size,
    "settings": _settings,
}
#: What each field must hold, said where it is missing; `settings`, `per` and `when` may be.
_HINTS: Final[Mapping[str, str]] = {
    "description": "a sentence that says what a record means",
    "owner": "the team that answers for the topic",
    "producers": "a list of who writes it",
    "consumers": "a list of who reads it",
    "key": "what the record key is",
    "value": "a file of avro/ or words",
    "ordering_key": "within what order is promised",
    "partitions": "`tenant`",
    "replication": "`cluster` or a number",
    "cleanup": "[delete], [compact] or both",
    "retention": "`forever`, a time such as 30d and/or a size such as 64MiB",
    "max_message": "a size such as 1MiB",
}
