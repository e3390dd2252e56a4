"""Whether a reader with one Avro schema reads what was written with another: the resolution rules of the standard.

Registries ask the same (FULL_TRANSITIVE is: every version reads every other), and are asked again when a version is
registered. It is asked here so that a file is judged before anything is reached. In doubt it says no: a logical type
that changes is another meaning, and a named type keeps its full name, or is known under it by an alias.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, Final

from waybill.commandtypes.core.avro import AvroSchema, read_avro
from waybill.commandtypes.core.json_schema import pointer
from waybill.commandtypes.core.narrowing import Narrowing

__all__ = ["disagreements", "unreadable"]

#: Written as the one, readable as the others too.
_PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}

_Path = tuple[str | int, ...]


def disagreements(old: str, new: str) -> list[Narrowing]:
    """Return where one of two versions does not read the other; none means that both read both."""
    return list(dict.fromkeys(each for pair in permutations((old, new)) for each in unreadable(*pair)))


def unreadable(reader: str, writer: str) -> list[Narrowing]:
    """Return where a reader does not read what a writer may have written, by the reader's fields."""
    question = _Question(read_avro(reader), read_avro(writer))
    return list(question.ask(question.reader.root, question.writer.root, ()))


class _Question:
    """Two schemas; the pairs of named types met on the way, each asked about once."""

    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self.reader, self.writer = reader, writer
        self._asked: set[tuple[str, str]] = set()

    def ask(self, read: Any, written: Any, path: _Path) -> Iterator[Narrowing]:
        """Compare the types of one place."""
        reader, writer = self.reader.resolve(read), self.writer.resolve(written)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.ask(read, branch, path)
        elif isinstance(reader, list):
            if not any(self._reads(branch, written) for branch in reader):
                yield Narrowing(pointer(path), f"no branch reads {writer['type']}")
        elif reader.get("logicalType") != writer.get("logicalType"):
            yield Narrowing(pointer(path), "another logical type is another meaning")
        elif reader["type"] != writer["type"]:
            if reader["type"] not in _PROMOTED.get(writer["type"], ()):
                yield Narrowing(pointer(path), f"{reader['type']} does not read {writer['type']}")
        else:
            yield from self._alike(reader, writer, path)

    def _reads(self, read: Any, written: Any) -> bool:
        return not any(True for _ in self.ask(read, written, ()))

    def _alike(self, reader: Any, writer: Any, path: _Path) -> Iterator[Narrowing]:
        match reader["type"]:
            case "array":
                yield from self.ask(reader["items"], writer["items"], (*path, "*"))
            case "map":
                yield from self.ask(reader["values"], writer["values"], (*path, "*"))
            case "record" | "enum" | "fixed":
                yield from self._named(reader, writer, path)

    def _named(self, reader: Any, writer: Any, path: _Path) -> Iterator[Narrowing]:
        pair = (reader["name"], writer["name"])
        if pair in self._asked:
            return
        self._asked.add(pair)
        if writer["name"] not in {reader["name"], *reader.get("aliases", ())}:
            yield Narrowing(pointer(path), f"{reader['name']} does not read {writer['name']}")
        elif reader["type"] == "fixed":
            if reader["size"] != writer["size"]:
                yield Narrowing(pointer(path), "another size")
        elif reader["type"] == "enum":
            unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if unknown and "default" not in reader:
                yield Narrowing(pointer(path), f"a reader does not know {', '.join(unknown)} and has no default")
        else:
            yield from self._fields(reader, writer, path)

    def _fields(self, reader: Any, writer: Any, path: _Path) -> Iterator[Narrowing]:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            here = (*path, field["name"])
            names = (field["name"], *field.get("aliases", ()))
            found = next((written[name] for name in names if name in written), None)
            if found is not None:
                yield from self.ask(field["type"], found["type"], here)
            elif "default" not in field:
                yield Narrowing(pointer(here), "it may be missing, and has no default")
