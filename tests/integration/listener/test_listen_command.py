"""`waybill listen`: what it says when it cannot start."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.listen import app
from waybill.kernel.errors import ConfigError, UnavailableError

APP = """
async def listener(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with an application, whose import leaves no trace in other tests."""
    (tmp_path / "absent_database.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent_database", "expected module:attribute"),
        ("nowhere:listener", "no module 'nowhere'"),
        ("absent_database:other", "has no 'other'"),
        ("absent_database:number", "is not an ASGI application"),
    ],
)
def test_a_target_that_is_none_is_wrong_input(folder: Path, target: str, message: str) -> None:
    ended = CliRunner().invoke(app, [target])

    assert isinstance(ended.exception, ConfigError)
    assert message in str(ended.exception)
    assert ended.stdout == ""


def test_a_taken_port_is_named(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ended = CliRunner().invoke(app, ["absent_database:listener", "--port", str(port)])

    assert isinstance(ended.exception, UnavailableError)
    assert f"127.0.0.1:{port}" in str(ended.exception)
    assert "--port" in str(ended.exception)


def test_an_application_that_does_not_start_is_not_available(folder: Path) -> None:
    command = [sys.executable, "-c", "from waybill.cli import main; main()", "listen", "absent_database:listener"]

    ended = subprocess.run(
        [*command, "--port", "0", "--json"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.returncode, ended.stdout) == (3, "")
    assert "no database" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--kafka", "127.0.0.1:9", "--results-key", "signing.json"], "needs a listener as module:attribute"),
        (["absent_database:listener", "--kafka", "127.0.0.1:9"], "and --results-key"),
        (["--forward-to", "http://127.0.0.1:9", "--kafka", "127.0.0.1:9"], "leave out --kafka"),
        (["absent_database:listener", "--kafka", "127.0.0.1:9", "--results-key", "signing.json"], "runs a Listener"),
        (["absent_database:listener", "--kafka", "127.0.0.1:9", "--hold-age", "soon"], "--hold-age soon: expected"),
        (["absent_database:listener", "--hold-count", "7"], "they need --kafka"),
        (["absent_database:listener", "--hold-age", "7m"], "they need --kafka"),
    ],
)
def test_a_topic_needs_a_listener_and_its_key(folder: Path, given: list[str], message: str) -> None:
    ended = CliRunner().invoke(app, given)

    assert isinstance(ended.exception, ConfigError)
    assert message in str(ended.exception)
