"""Listeners learn keys from the worker's own HTTP endpoint, and follow a rotation there: Python and Node."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from waybill.crypto.keyring import ensure_signing, rotate_signing
from waybill.crypto.signing import Signer, load_signer
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.public_keys import WELL_KNOWN, PublicKeys
from waybill.kernel.ids import Tenant
from waybill.listener.key_source import JwksUrl

ACME = Tenant("acme")
PACKAGE = Path(__file__).resolve().parents[3] / "services" / "listener-typescript"
BODY = b'{"amount":1.10}'
NODE = """
import { createInterface } from "node:readline";
const { jwksUrl } = await import(`${process.argv[1]}/src/keys.js`);
const { verify } = await import(`${process.argv[1]}/src/signature.js`);
const source = jwksUrl(process.argv[2], { minIntervalSeconds: 0 });
for await (const line of createInterface({ input: process.stdin })) {
  const { headers, body } = JSON.parse(line);
  const judge = (keys) => verify(headers, Buffer.from(body), keys, { now: new Date(), toleranceSeconds: 300 });
  let verdict = judge(await source.current());
  if (!verdict.accepted) verdict = judge((await source.renewed()) ?? (await source.current()));
  console.log(JSON.stringify(verdict.accepted));
}
"""


@pytest.fixture
def keys_dir(tmp_path: Path) -> Path:
    ensure_signing(tmp_path, ACME, datetime.now(UTC) - timedelta(minutes=5))
    return tmp_path


@pytest.fixture
def url(keys_dir: Path) -> Iterator[str]:
    server = MetricsServer(
        CollectorRegistry(),
        alive=lambda: {"alive": True},
        ready=lambda: {"ready": True},
        more=PublicKeys(keys_dir, SystemClock()).answer,
    )
    yield f"http://127.0.0.1:{server.port}{WELL_KNOWN}/acme"
    server.close()


def signed(signer: Signer) -> dict[str, str]:
    stamp = int(datetime.now(UTC).timestamp())
    return {"id": "d-1", "timestamp": str(stamp), "signature": signer.sign("d-1", stamp, BODY)}


def believed(headers: dict[str, str], keys: VerificationKeys) -> bool:
    found = SignatureHeaders(webhook_id=headers["id"], timestamp=headers["timestamp"], signature=headers["signature"])
    return isinstance(verify(found, BODY, keys, datetime.now(UTC)), Accept)


def rotated(keys_dir: Path) -> Signer:
    """Add a key and return what signs with it alone, so that whoever knows the old one only believes nothing."""
    return Signer([rotate_signing(keys_dir, ACME, datetime.now(UTC))])


@pytest.mark.requirement("GW-19")
async def test_the_python_listener_follows_a_rotation(keys_dir: Path, url: str):
    source = JwksUrl(url, SystemClock(), min_interval=timedelta(0))
    known = await source.current()
    before, after = signed(load_signer(keys_dir, ACME)), signed(rotated(keys_dir))

    newer = await source.renewed()

    assert believed(before, known)
    assert not believed(after, known)
    assert newer is not None
    assert believed(after, newer)


@pytest.mark.system
@pytest.mark.requirement("GW-19")
def test_the_node_listener_follows_a_rotation(keys_dir: Path, url: str):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js: `apt-get install nodejs npm`")
    words = [node, "--input-type=module", "-e", NODE, str(PACKAGE), url]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(headers: dict[str, str]) -> object:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"headers": headers, "body": BODY.decode()}) + "\n")
            return json.loads(process.stdout.readline())

        before = ask(signed(load_signer(keys_dir, ACME)))
        after = ask(fresh := signed(rotated(keys_dir)))
        forged = ask({**fresh, "id": "d-2"})
        process.stdin.close()

    assert (before, after, forged) == (True, True, False)


def test_the_endpoint_says_how_long_an_answer_may_be_kept(url: str):
    first = httpx.get(url)
    again = httpx.get(url, headers={"if-none-match": first.headers["etag"]})

    assert (first.status_code, first.headers["content-type"]) == (200, "application/jwk-set+json")
    assert first.headers["cache-control"] == "public, max-age=300"
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(url.replace("acme", "nobody")).status_code == 404
