"""`waybill conformance` over real processes: right listeners pass at their level, each defect fails by its name."""

import json
import shlex
import sys
import urllib.request
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from waybill.cli.conformance import app
from waybill.conformance import Level, Scorecard, Subject, run_conformance
from waybill.conformance.core.judging import Result
from waybill.conformance.program import Program, free_port
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError, UnavailableError

ROOT = Path(__file__).resolve().parents[3]
SMALL = ROOT / "tests" / "fixtures" / "small_listener.py"


def small(folder: Path, defect: str = "") -> str:
    return shlex.join([sys.executable, str(SMALL), str(folder / "listener.db"), *([defect] if defect else [])])


def failed(card: Scorecard) -> set[str]:
    return {line.check.name for line in card.lines if line.finding.result is Result.FAILED}


@pytest.mark.parametrize(
    ("defect", "failing"),
    [
        ("", set()),
        ("parses before it verifies", {"verifies_first", "auth"}),
        ("ignores the timestamp", {"late_clock", "early_clock", "forgeries_unapplied"}),
        ("looks before it locks", {"concurrent_once"}),
        ("answers nothing", {"receipt", "operation"}),
        ("redirects", {"accepts", "never_redirects"}),
        ("accepts another body", {"other_body"}),
    ],
)
@pytest.mark.requirement("DC-9", "GW-4", "GW-5")
def test_each_defect_fails_for_its_own_reason(tmp_path: Path, defect: str, failing: set[str]):
    card = run_conformance(Subject(run=small(tmp_path, defect), effects="/effects", level=Level.L1), print)

    assert failed(card) == failing
    assert (card.reached is Level.L1) == (not failing)


@pytest.mark.requirement("GW-6")
def test_an_answer_before_the_commit_is_found_by_a_kill(tmp_path: Path):
    command = small(tmp_path, "answers before it commits")

    card = run_conformance(Subject(run=command, effects="/effects", level=Level.L0), print)

    assert {"applies", "committed_first", "amid_kept"} <= failed(card)


@pytest.mark.postgres
@pytest.mark.requirement("DC-12", "DC-13", "GW-6")
def test_our_listener_keeps_every_level(site_schema: tuple[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSN", site_schema[1])
    command = shlex.join([sys.executable, str(ROOT / "docs" / "examples" / "python-listener" / "app.py")])
    subject = Subject(run=command, effects="/effects", level=Level.L3, blocked={"hold": True}, patience_s=60)

    card = run_conformance(subject, print)

    assert [row for row in card.rows() if row["result"] != "passed"] == []
    assert card.reached is Level.L3


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def running(tmp_path: Path):
    """A listener that runs already, and the folder of the keys it knows."""
    keys = tmp_path / "keys"
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(UnavailableError):  # nothing answers yet; the keys are there from now on
        run_conformance(Subject(url=url, keys_dir=keys), print)
    secret = (keys / "conformance" / "secret.txt").read_text().strip()
    variables = {
        "PORT": str(port),
        "WAYBILL_SECRET": secret,
        "WAYBILL_TENANT": "conformance",
        "WAYBILL_DESTINATION": "listener",
    }
    program = Program(small(tmp_path), variables, tmp_path / "log", SystemClock(), patience_s=30)
    program.start(lambda: answers(url))
    yield url, keys
    program.kill()


def test_a_bare_url_leaves_untested_what_cannot_be_seen(running: tuple[str, Path], tmp_path: Path):
    url, keys = running
    junit = tmp_path / "junit.xml"

    ended = CliRunner().invoke(app, [url, "--keys-dir", str(keys), "--json", "--junit", str(junit)])

    document = json.loads(ended.stdout)
    untested = {row["check"] for row in document["checks"] if row["result"] == "not tested"}
    assert (ended.exit_code, document["failed"], document["reached"]) == (0, 0, None)
    assert {"applies", "concurrent_once", "committed_first", "amid_once"} <= untested
    assert ET.parse(junit).getroot().find("testsuite[@name='L1']") is not None

    assert CliRunner().invoke(app, [url, "--keys-dir", str(keys), "--json", "--strict"]).exit_code == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], ConfigError),
        (["http://127.0.0.1:9/"], ConfigError),
        (["--run", "no-such-program-here"], ConfigError),
        (["--run", "true", "--data", "[]"], ConfigError),
        (["--run", "true", "--tenant", "No"], ConfigError),
        (["--run", "true"], UnavailableError),
    ],
)
def test_what_cannot_be_run_says_so(words: list[str], error: type[Exception]):
    assert isinstance(CliRunner().invoke(app, words).exception, error)


def test_a_count_that_is_none_is_not_available(tmp_path: Path):
    words = ["--run", small(tmp_path), "--effects", "http://127.0.0.1:9/"]

    assert isinstance(CliRunner().invoke(app, words).exception, UnavailableError)
