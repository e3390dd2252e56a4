"""The TypeScript listener: its own tests, its types, and every level on both of its stores."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.conformance import Level, Scorecard, Subject, run_conformance

pytestmark = pytest.mark.system


def npm(folder: Path, *words: str) -> str:
    done = subprocess.run(["npm", *words], cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kept(command: str) -> Scorecard:
    subject = Subject(run=command, effects="/effects", level=Level.L3, blocked={"hold": True}, patience_s=60)
    card = run_conformance(subject, print)
    assert [row for row in card.rows() if row["result"] != "passed"] == []
    return card


@pytest.mark.requirement("DC-9", "DC-12", "DC-13", "GW-4", "GW-5")
def test_its_own_tests_pass_on_the_golden_vectors(typescript: Path):
    assert re.search(r"\bpass [1-9]", npm(typescript, "test"))


def test_its_types_are_sound_and_up_to_date(typescript: Path):
    npm(typescript, "run", "check")


SIGN_ONE = """
import { ReceiptSigner } from "waybill-listener";
import { deliver, envelope, site } from "./test/support.js";
const { listener } = site({ signer: ReceiptSigner.fromFile(process.argv[1]) });
process.stdout.write((await deliver(listener, envelope())).text);
"""


def run(*words: str) -> Any:
    done = CliRunner().invoke(root, [*words, "--json"])
    assert done.exit_code in {0, 1}, done.output
    return json.loads(done.stdout)


@pytest.mark.requirement("DC-17")
def test_its_signed_receipts_are_proven_offline(typescript: Path, tmp_path: Path):
    files = run("keys", "new", "--tenant", "crm", "--keys-dir", str(tmp_path))["files"]
    command = ["node", "--input-type=module", "-e", SIGN_ONE, files["signing"]]
    made = subprocess.run(command, cwd=typescript, capture_output=True, timeout=100, check=True).stdout
    verdicts = []
    for body in (made, made.replace(b'"count":1', b'"count":2')):
        (tmp_path / "receipt.json").write_bytes(body)
        verdicts.append(run("receipt", "verify", str(tmp_path / "receipt.json"), "--keys", files["jwks"]))

    assert [(each["proven"], each["reason"]) for each in verdicts] == [(True, None), (False, "signature_mismatch")]
    assert verdicts[0]["key_id"].startswith("crm-")


@pytest.mark.requirement("GW-6")
def test_it_keeps_every_level_on_sqlite(typescript: Path, tmp_path: Path):
    card = kept(f"node {typescript}/test/sqlite-app.js {tmp_path}/listener.db")

    assert card.reached is Level.L3


@pytest.mark.postgres
@pytest.mark.requirement("GW-6")
def test_it_keeps_every_level_on_postgresql(
    typescript: Path, site_schema: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DSN", site_schema[1])

    card = kept(f"node {typescript}/examples/postgres.js")

    assert card.reached is Level.L3
