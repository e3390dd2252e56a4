"""What judges a campaign shares nothing with what it judges: not one module of the fabric is loaded."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from fixtures.fix_house import SourceFile

FOLDER = "services/waybill/chaos/"
#: Listener, proxy, books and verdict, with what is random in them.
WITNESSES = ("listener", "proxy", "wire", "books")


def of_waybill(file: SourceFile) -> Iterator[str]:
    """Yield the modules of Waybill a file imports, chaos and its own `core` apart."""
    for node in ast.walk(file.tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        for name in names:
            if (name.split(".")[0] == "waybill" or name.startswith(".")) and not name.startswith(
                ("waybill.chaos.core.", *(f"waybill.chaos.{witness}" for witness in WITNESSES))
            ):
                yield name


def test_witnesses_name_no_module_of_the_fabric(modules: list[SourceFile]):
    witnesses = [
        file
        for file in modules
        if file.name in {f"{FOLDER}{name}.py" for name in (*WITNESSES, "__init__")}
        or file.name.startswith(f"{FOLDER}core/")
    ]

    assert len(witnesses) >= 9
    assert {file.name: found for file in witnesses if (found := list(of_waybill(file)))} == {}


@pytest.mark.parametrize(
    "line", ["import waybill.kernel", "from waybill import kernel", "from waybill.chaos.site import x"]
)
def test_a_witness_that_names_one_is_found(make_source: Callable[..., SourceFile], line: str):
    assert list(of_waybill(make_source(f"def late():\n    {line}\n")))


def test_witnesses_load_no_module_of_the_fabric():
    named = ", ".join(f"waybill.chaos.{name}" for name in (*WITNESSES, "core.verdict", "core.schedule"))
    script = f"import sys, {named}; print(*(m for m in sys.modules if m.split('.')[0] == 'waybill'))"

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    strangers = {name for name in loaded.stdout.split() if name != "waybill" and not name.startswith("waybill.chaos")}
    assert strangers == set()
