"""`waybill keys`: what is there stays, what is added counts from now on."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waybill.cli.keys import app


def run(folder: Path, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*words, "--tenant", "acme", "--keys-dir", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("new", "rotate"), [("new", "rotate"), ("seal-new", "seal-rotate")])
def test_a_first_key_is_made_once_and_another_is_added(tmp_path: Path, new: str, rotate: str) -> None:
    made, again, added = run(tmp_path, new), run(tmp_path, new), run(tmp_path, rotate)

    assert [made["changed"], again["changed"], added["changed"]] == [True, False, True]
    assert again["keys"] == made["keys"]
    assert [len(shown["keys"]) for shown in (made, added)] == [1, 2]
    assert made["keys"][0]["kid"] in {key["kid"] for key in added["keys"]}


def test_another_algorithm_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["seal-new", "--tenant", "acme", "--keys-dir", str(tmp_path), "--algorithm", "rot13"]
    )

    assert "aes-256-gcm" in str(done.exception)
    assert not list(tmp_path.iterdir())
