"""Every guard under tests/guards still fits the code; `make guards` takes each out and runs its test."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from waybill.contracts.codes import RETRIED, ErrorCode

#: Requirements a test proves although no guard is listed for them. It only shrinks: a new requirement comes with
#: the guard that keeps it.
WITHOUT_GUARD = frozenset(
    {
        "AM-5", "DC-11", "ET-1", "GW-9", "GW-13", "GW-18",
        "RS-6", "RS-8",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def load(checkout: Path) -> Callable[[str], ModuleType]:
    """Load a tool as a module: tools are run by make and not installed."""

    def loaded(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_tool", checkout / "tools" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.fixture(scope="module")
def tool(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("guards")


@pytest.fixture(scope="module")
def proven(load: Callable[[str], ModuleType]) -> set[str]:
    """Every requirement some test says it proves."""
    return set(load("reference").requirements())


def test_every_guard_fits_the_code(tool: ModuleType):
    stale = {guard.name: found for guard in tool.load_guards() if (found := tool.problems(guard))}

    assert stale == {}


def test_guard_names_are_unique(tool: ModuleType):
    names = [guard.name for guard in tool.load_guards()]

    assert len(names) == len(set(names)) > 0


def test_every_proven_requirement_is_kept_by_a_guard(tool: ModuleType, proven: set[str]):
    kept = {requirement for guard in tool.load_guards() for requirement in guard.keeps}

    assert proven - kept - WITHOUT_GUARD == set(), "add a guard with `keeps` under tests/guards"
    assert kept & WITHOUT_GUARD == set(), "these have a guard: take them off the list"
    assert kept - proven == set(), "no test names these"


def test_a_guard_whose_text_is_gone_is_refused(tool: ModuleType, tmp_path: Path):
    (tmp_path / "code.py").write_text("x = 1\nx = 1\n")
    guard = tool.Guard(name="n", file="code.py", remove="x = 1", test="test_code.py::test_x")

    assert tool.problems(guard, tmp_path) == [
        "the text is 2 times in code.py, must be there once",
        "test_code.py::test_x does not exist",
    ]


@pytest.mark.requirement("ET-2")
def test_only_three_codes_are_tried_again():
    assert {ErrorCode.RATE_LIMIT, ErrorCode.TRANSIENT_NETWORK, ErrorCode.SOURCE_UNAVAILABLE} == RETRIED
