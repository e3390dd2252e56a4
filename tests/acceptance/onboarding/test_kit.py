"""The onboarding kit: its own page is followed step by step, and ends with a green L1."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.destinations import app
from waybill.contracts.envelope import Envelope
from waybill.contracts.envelope_reader import parse
from waybill.crypto.keyring import ensure_signing
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

ROOT = Path(__file__).resolve().parents[3]
FABRIC = ROOT / "docs" / "examples" / "fabric.yaml"
BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    ensure_signing(tmp_path / "keys", Tenant("acme"), SystemClock().now())
    return tmp_path / "keys"


@pytest.fixture
def kit(tmp_path: Path, keys: Path) -> Path:
    out = tmp_path / "kit"
    words = ["invite", "acme", "crm", "--out", str(out), "-f", str(FABRIC), "--keys-dir", str(keys)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.exception
    return out


def run(line: str, folder: Path) -> str:
    """Run one line of the page; `waybill` is this checkout's."""
    words = shlex.split(line)
    if words[0] == "waybill":
        words[:1] = [sys.executable, "-c", "from waybill.cli import main; main()"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system
@pytest.mark.requirement("GW-4", "GW-6")
def test_the_page_of_a_kit_leads_to_a_green_level(kit: Path):
    if shutil.which("node") is None or int(run("node --version", kit).removeprefix("v").partition(".")[0]) < 20:
        pytest.skip("no Node.js 20: `apt-get install nodejs npm`")
    steps = [line for block in BASH.findall((kit / "README.md").read_text()) for line in block.splitlines()]

    verified, checked, made = [run(line, kit) for line in steps]

    public = json.loads((kit / "results-jwks.json").read_text())
    assert verified.startswith("subject.erase.json: good")
    assert "reached: L1; " in checked
    assert ", 0 failed, 0 not_tested" in checked
    assert "send back" in made
    assert "d" not in public["keys"][0]
    assert VerificationKeys.from_jwks(public)
    assert (kit / "results-private.jwk").stat().st_mode & 0o077 == 0


def test_a_kit_holds_no_secret_of_the_fabric(kit: Path, keys: Path):
    private = json.loads((keys / "acme" / "signing.json").read_text())["keys"][0]["secret"].removeprefix("whsk_")

    inside = {path.relative_to(kit).as_posix(): path.read_bytes() for path in kit.rglob("*") if path.is_file()}

    assert [name for name, content in inside.items() if private.encode() in content] == []
    assert inside["keys/jwks.json"] == (keys / "acme" / "jwks.json").read_bytes()


def test_samples_verify_with_the_sandbox_and_with_nothing_else_and_are_over(kit: Path):
    sample = json.loads((kit / "samples" / "subject.erase.json").read_text())
    headers, body = sample["headers"], sample["body"].encode()
    signed = SignatureHeaders(
        webhook_id=headers["webhook-id"],
        timestamp=headers["webhook-timestamp"],
        signature=headers["webhook-signature"],
    )
    now = SystemClock().now()

    def verdict(name: str) -> object:
        keys = VerificationKeys.from_jwks(json.loads((kit / name).read_text()))
        return verify(signed, body, keys, now)

    envelope = parse(body)
    assert isinstance(verdict("sandbox/acme/jwks.json"), Accept)
    assert not isinstance(verdict("keys/jwks.json"), Accept)
    assert isinstance(envelope, Envelope)
    assert envelope.expires_at < now


def test_a_kit_holds_what_the_catalogue_says_of_its_types(tmp_path: Path, keys: Path):
    out = tmp_path / "kit"
    words = ["invite", "acme", "archive", "--out", str(out), "-f", str(FABRIC), "--keys-dir", str(keys)]

    CliRunner().invoke(app, words)

    page, sample = (out / "README.md").read_text(), json.loads((out / "samples" / "order.ship.json").read_text())
    envelope = parse(sample["body"].encode())
    assert "[`order.ship`](types/order.ship.md), `subject.erase`" in page
    assert '"note"' in (out / "types" / "order.ship.md").read_text()
    assert isinstance(envelope, Envelope)
    assert json.loads(sample["body"])["data"] == {"order": 7}
    assert json.loads(sample["body"])["dataschema"] == "waybill://acme/types/order.ship/v1.0"


def test_a_kit_may_be_one_file(tmp_path: Path, keys: Path):
    out = tmp_path / "crm-kit.zip"
    words = ["invite", "acme", "new-one", "--out", str(out), "--type", "order.ship", "--keys-dir", str(keys)]

    ended = CliRunner().invoke(app, [*words, "--keys-url", "https://fabric.example/.well-known/waybill/keys/acme"])
    again = CliRunner().invoke(app, words)

    with zipfile.ZipFile(out) as archive:
        page = archive.read("crm-kit/README.md").decode()
        assert {"crm-kit/samples/order.ship.json", "crm-kit/listener/app.mjs"} <= set(archive.namelist())
    assert ended.exit_code == 0
    assert "https://fabric.example/.well-known/waybill/keys/acme" in page
    assert isinstance(again.exception, ConfigError)
    assert "stays as it is" in str(again.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["acme", "crm"], "no command type goes there"),
        (["acme", "No", "--type", "a.b"], "lower case"),
        (["other", "crm", "--type", "a.b"], "waybill keys new --tenant other"),
        (["acme", "crm", "--type", "a.b", "-f", "nowhere.yaml"], "nowhere.yaml"),
        (["acme", "crm", "--type", "a.b", "--keys-url", "ftp://x"], "expected https"),
    ],
)
def test_wrong_input_says_what_was_expected(tmp_path: Path, keys: Path, words: list[str], message: str):
    ended = CliRunner().invoke(app, ["invite", *words, "--out", str(tmp_path / "out"), "--keys-dir", str(keys)])

    assert isinstance(ended.exception, ConfigError)
    assert message in str(ended.exception)
    assert not (tmp_path / "out").exists()
