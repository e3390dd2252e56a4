"""`fabric.yaml` to records: everything that is wrong at once, or nothing is.

A file is judged alone here, without what is applied; `plan` judges the step from one to the other.
"""

from waybill.contracts.fabric import FabricConfig
from waybill.fabric.core.document import Leaf, Problem, Table, read_yaml
from waybill.fabric.core.reading import build, read
from waybill.fabric.core.rules import check, find_secrets
from waybill.fabric.core.schema_files import ReadFile, with_documents
from waybill.fabric.core.shape import API_VERSION, FABRIC

__all__ = ["parse"]


def _no_files(name: str) -> bytes:
    raise FileNotFoundError(f"{name} is read from no folder")


def parse(data: bytes, read_file: ReadFile = _no_files) -> FabricConfig | tuple[Problem, ...]:
    """Read a whole file.

    Args:
        data: its bytes.
        read_file: path → bytes of the files it names.

    Returns:
        The wanted configuration, its version 0 since nobody has applied it, or every problem in the order of lines.
    """
    node, problems = read_yaml(data)
    if node is None:
        return problems
    wrong = list(problems)
    if isinstance(node, Table):
        entries = dict(node.entries)
        line, version = entries.pop("apiVersion", (0, None))
        if not isinstance(version, Leaf) or version.value != API_VERSION:
            message = f"expected {API_VERSION}" + ("" if version else ", the key is missing")
            wrong.append(Problem(line=line or node.line, path="apiVersion", rule="api-version", message=message))
        wrong.extend(find_secrets(node))
        node, unread = with_documents(Table(line=node.line, entries=entries), read_file)
        wrong.extend(unread)
    reading, unreadable = read(FABRIC, node)
    wrong.extend(unreadable)
    wrong.extend(check(reading))
    if wrong:
        return tuple(sorted(_once(wrong), key=lambda problem: (problem.line, problem.path, problem.rule)))
    config: FabricConfig = build(reading, {"version": 0})
    return config


def _once(problems: list[Problem]) -> set[Problem]:
    """Keep one problem a place: a secret pasted where a reference belongs, or into a url, is one mistake."""
    kept = {(problem.line, problem.path): problem for problem in reversed(problems)}
    return set(kept.values())
