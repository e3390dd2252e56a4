"""The Go listener of the examples, written from the page on the wire alone: built from its source, held to L1."""

import shutil
import subprocess
from pathlib import Path

import pytest

from waybill.conformance import Level, Subject, run_conformance

SOURCE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "go-listener"


@pytest.mark.system
@pytest.mark.requirement("DC-9", "GW-4", "GW-5", "GW-6")
def test_a_listener_from_the_page_alone_keeps_its_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if shutil.which("go") is None:
        pytest.skip("no Go: `apt-get install golang-go`")
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    monkeypatch.setenv("GOPROXY", "off")  # the standard library is all it needs
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal"))
    build = ["go", "build", "-o", str(tmp_path / "listener"), "."]
    done = subprocess.run(build, cwd=SOURCE, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr

    card = run_conformance(Subject(run=f"{tmp_path}/listener", effects="/effects", level=Level.L1), print)

    assert [row for row in card.rows() if row["result"] != "passed"] == []
    assert card.reached is Level.L1
