"""Every guard under tests/guards still fits the code; `make guards` takes each out and runs its test."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from waybill.contracts.codes import RETRIED, ErrorCode


@pytest.fixture(scope="module")
def tool(checkout: Path) -> ModuleType:
    """The tool as a module: it is run by make and not installed."""
    spec = importlib.util.spec_from_file_location("guards_tool", checkout / "tools" / "guards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["guards_tool"] = module
    spec.loader.exec_module(module)
    return module


def test_every_guard_fits_the_code(tool: ModuleType):
    stale = {guard.name: found for guard in tool.load_guards() if (found := tool.problems(guard))}

    assert stale == {}


def test_guard_names_are_unique(tool: ModuleType):
    names = [guard.name for guard in tool.load_guards()]

    assert len(names) == len(set(names)) > 0


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
