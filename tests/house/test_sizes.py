"""Sizes: the tail is what tires a reader, so the tail is bound.

An exception names its reason and its measure. It may only shrink: when the thing got smaller, the entry must
follow or go.
"""

import ast
from collections.abc import Callable, Iterable, Iterator

from fixtures.fix_house import SourceFile

MODULE_LINES = 500
TEST_FILE_LINES = 500
FUNCTION_LINES = 60
CLASS_LINES = 200
#: In a component's own folder, and again in its `core/`.
COMPONENT_MODULES = 18

#: "file::name" or "file" → (lines allowed, why it is allowed).
EXCEPTIONS: dict[str, tuple[int, str]] = {}


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Count from the first statement after the docstring to the end."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def measured(file: SourceFile) -> Iterator[tuple[str, int, int]]:
    """Yield (name, lines, limit) of a file, its functions and its classes."""
    yield file.name, file.line_count, TEST_FILE_LINES if file.name.startswith("tests/") else MODULE_LINES
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file.name}::{node.name}", code_lines(node), FUNCTION_LINES
        elif isinstance(node, ast.ClassDef) and not file.name.startswith("tests/"):
            yield f"{file.name}::{node.name}", code_lines(node), CLASS_LINES


def too_long(files: Iterable[SourceFile]) -> list[str]:
    return [
        f"{name}: {lines} lines, {limit} allowed"
        for file in files
        for name, lines, limit in measured(file)
        if lines > EXCEPTIONS.get(name, (limit, ""))[0]
    ]


def test_modules_functions_and_classes_stay_readable(modules: list[SourceFile]):
    assert too_long(modules) == []


def test_test_files_stay_readable(test_files: list[SourceFile]):
    assert too_long(test_files) == []


def test_exceptions_only_shrink(modules: list[SourceFile], test_files: list[SourceFile]):
    sizes = {name: (lines, limit) for file in [*modules, *test_files] for name, lines, limit in measured(file)}

    outdated = [
        name
        for name, (allowed, why) in EXCEPTIONS.items()
        if name not in sizes or sizes[name][0] < allowed or sizes[name][0] <= sizes[name][1] or not why
    ]

    assert outdated == []


def test_components_stay_small_enough_to_read_in_one_go(modules: list[SourceFile]):
    counts: dict[str, int] = {}
    for file in modules:
        parts = file.name.split("/")
        if len(parts) > 3 and parts[2] not in {"cli", "infra"} and parts[-1] != "__init__.py":
            folder = "/".join(parts[2:-1])
            counts[folder] = counts.get(folder, 0) + 1

    assert {name: count for name, count in counts.items() if count > COMPONENT_MODULES} == {}


def test_a_long_function_is_found(make_source: Callable[..., SourceFile]):
    body = "\n".join(f"    x{number} = {number}" for number in range(FUNCTION_LINES + 1))

    assert too_long([make_source(f'def long():\n    """Say."""\n{body}\n')]) == ["made.py::long: 61 lines, 60 allowed"]
