"""Schemas and examples of the catalogue, brought into the document before it is read.

Whoever writes `fabric.yaml` may write a schema where it belongs, as YAML, as JSON text, or name a file beside it
with the SHA-256 of its bytes. What is read and stored afterwards is always text, so that a configuration is whole by
itself and an apply of the same file means the same, whatever happened to the file it names.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from waybill.fabric.core.document import Leaf, Listing, Node, Plain, Problem, Table

__all__ = ["MAX_DOCUMENT", "ReadFile", "with_documents"]

#: Path as the file names it → its bytes; raises OSError.
ReadFile: TypeAlias = Callable[[str], bytes]

#: Characters, and bytes of a file: a configuration object travels as one record.
MAX_DOCUMENT: Final = 65_536
_DIGEST: Final = re.compile(r"^sha256:[0-9a-f]{64}$")


def with_documents(root: Table, read_file: ReadFile) -> tuple[Table, tuple[Problem, ...]]:
    """Return the document with every schema and example of its catalogues as a leaf of text, and what was wrong."""
    reader = _Reader(read_file)
    path = ("tenants", "commandTypes", "versions")
    return _table(reader.walk(root, path, ""), root), tuple(reader.problems)


def _table(node: Node, default: Table) -> Table:
    return node if isinstance(node, Table) else default


class _Reader:
    def __init__(self, read_file: ReadFile) -> None:
        self._read_file = read_file
        self.problems: list[Problem] = []

    def walk(self, node: Node, keys: tuple[str, ...], path: str) -> Node:
        """Go down the lists under `keys` and turn the documents of every object at the end into text."""
        if not isinstance(node, Table):
            return node
        if not keys:
            return self._version(node, path)
        line, listed = node.entries.get(keys[0], (0, None))
        if not isinstance(listed, Listing):
            return node
        here = f"{path}.{keys[0]}" if path else keys[0]
        items = (self.walk(item, keys[1:], f"{here}[{number}]") for number, item in enumerate(listed.items))
        return _with(node, {keys[0]: (line, replace(listed, items=tuple(items)))})

    def _version(self, node: Table, path: str) -> Table:
        found: dict[str, tuple[int, Node]] = {}
        for key in ("schema", "example"):
            line, value = node.entries.get(key, (0, None))
            if key == "schema" and isinstance(value, Table) and "file" in value.entries:
                found[key] = (line, self._file(value, f"{path}.{key}"))
            elif value is not None and not _is_text(value):
                found[key] = (line, Leaf(line=value.line, value=_json(value)))
        return _with(node, found)

    def _file(self, node: Table, path: str) -> Leaf:
        _, name = node.entries["file"]
        _, digest = node.entries.get("digest", (0, None))
        if node.entries.keys() - {"file", "digest"} or not isinstance(name, Leaf) or not isinstance(name.value, str):
            return self._refuse(node, path, "expected {file: PATH, digest: sha256:…} and nothing else")
        try:
            data = self._read_file(name.value)
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return self._refuse(node, path, "expected a file in UTF-8")
        except OSError as error:
            return self._refuse(node, path, f"expected a file that can be read: {error.strerror or 'not there'}")
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if not isinstance(digest, Leaf) or digest.value != found:
            is_digest = isinstance(digest, Leaf) and _DIGEST.match(str(digest.value))
            other = "the file is another one, look at it and write" if is_digest else "write"
            return self._refuse(node, path, f"expected the digest of the file's bytes: {other} digest: {found}")
        return Leaf(line=node.line, value=text)

    def _refuse(self, node: Table, path: str, message: str) -> Leaf:
        self.problems.append(Problem(line=node.line, path=path, rule="schema-file", message=message))
        return Leaf(line=node.line, value=None)


def _is_text(node: Node) -> bool:
    return isinstance(node, Leaf) and isinstance(node.value, str | None)


def _with(node: Table, changed: Mapping[str, tuple[int, Node]]) -> Table:
    return replace(node, entries={**node.entries, **changed})


def _json(node: Node) -> str:
    return json.dumps(_plain(node), ensure_ascii=False, separators=(", ", ": "))


def _plain(node: Node) -> Plain:
    if isinstance(node, Table):
        return {key: _plain(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, Listing):
        return [_plain(item) for item in node.items]
    return node.value
